"""TRL's GRPO on the prompts of the leaderboard's place "GRPO" (docs/studies/grpo.md).

    pip install '.[all,trl]'
    python examples/trl_digits.py --samplers random pcl plr --seeds 11 12 --output evaluation.csv

Prompts, model, constants and evaluation are those of a run of the preset `grpo`; answers, loss and
updates are TRL's. Appends the rows of each run, and prints its mean success on held-out prompts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig

from magellan.config import resolve_run
from magellan.config.presets import PRESETS
from magellan.curriculum import Curriculum
from magellan.integrations.trl import CurriculumGRPOTrainer
from magellan.pretraining.digits import build_tokenizer
from magellan.samplers import SAMPLERS
from magellan.training.answers import make_trainer

SPACE = "114-28-40-40-40-40-40"


class Practice(TrainerCallback):
    """Rewards answers, counts their tokens, evaluates where a run does, and stops where it ends."""

    __name__ = "right"  # TRL names reward functions

    def __init__(self, seed: int, tokens: int) -> None:
        run = {"world": "digits", "goal_space": SPACE, "sampler": "random", "seed": seed}
        self.run: Any = make_trainer(resolve_run("grpo", [run, {"budget": {"steps": tokens}}]))

    def __call__(self, completions: list[str], completion_ids: Any, goal: Any, **_: Any) -> Any:
        goals, pairs = self.run.goals, zip(goal, completions, strict=True)
        self.run.steps += sum(map(len, completion_ids))
        self.run.episodes += len(completions)
        return [float(goals.world.is_right(goals.goal(i), text.strip())) for i, text in pairs]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.run.updates = state.global_step
        self.run._evaluate_when_due()
        control.should_training_stop = self.run.done

    on_train_begin = on_step_end


def practised(sampler: str, seed: int, tokens: int) -> pd.DataFrame:
    """Evaluations of a run of `tokens` generated tokens."""
    practice = Practice(seed, tokens)
    config, goals = practice.run.config, practice.run.goals
    prompts = [goals.prompt(i) for i in range(len(goals))]
    reads = SAMPLERS[sampler].estimator == "learned"
    sections = ("samplers", "backbone", *("competence",) * reads)
    settings = {name: PRESETS["grpo"][name] for name in sections}
    model = config.backbone.model if reads else None
    curriculum = Curriculum(prompts, sampler, model, seed, settings=settings)
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            folder,
            seed=seed,
            per_device_train_batch_size=config.grpo.prompts * config.grpo.answers,
            num_generations=config.grpo.answers,
            max_completion_length=goals.world.answer_tokens,
            learning_rate=config.grpo.learning_rate,
            lr_scheduler_type="constant",
            max_steps=tokens,  # each writes more than one; `Practice` stops
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        )
        CurriculumGRPOTrainer(
            practice.run.backend.writer._model,
            practice,
            args,
            Dataset.from_dict({"prompt": prompts}),
            curriculum=curriculum,
            processing_class=build_tokenizer(),
            callbacks=[practice],
        ).train()
        practice.run.record.write(Path(folder))
        table = pd.read_csv(Path(folder) / "evaluation.csv")
    run = {"sampler": sampler, "variant": "trl", "goal_space": SPACE, "seed": seed}
    return pd.DataFrame(run, table.index).join(table)


def main() -> None:
    """Run seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samplers", nargs="+", default=["random", "pcl", "plr"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[100])
    parser.add_argument("--tokens", type=int, default=200_000, help="generated, of each run")
    parser.add_argument("--output", type=Path, default=Path("evaluation.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)  # the model is too small for more
    for seed, sampler in ((s, name) for s in options.seeds for name in options.samplers):
        began = time.process_time()
        table = practised(sampler, seed, options.tokens)
        table.to_csv(options.output, mode="a", header=not options.output.exists(), index=False)
        held = table[table["split"] == "unseen"].groupby("step")["success"].mean()
        mean, seconds = np.trapezoid(held, held.index) / options.tokens, time.process_time() - began
        print(f"{sampler} {seed}: {mean:.4f} over training, {seconds:.0f} core s", flush=True)


if __name__ == "__main__":
    main()
