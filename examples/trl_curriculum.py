"""GRPO on procedurally generated tasks, with goals drawn by a curriculum. Minutes on a CPU.

    pip install '.[trl]' matplotlib
    python examples/trl_curriculum.py --output docs/trl_curriculum.png

A Llama of 0.2 million weights, which has seen some answers of each family, practises 2,000 goals of
reasoning-gym. Half of the families are beyond it. Drawn: its success on other goals of the families
within reach, and how much of the practice went to these.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import reasoning_gym
import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig

from magellan.curriculum import Curriculum
from magellan.integrations.hugging_face import HiddenStates
from magellan.integrations.trl import CurriculumGRPOTrainer

LARGE = {"min_digits": 4, "max_digits": 5}
REACHED = {
    "chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
    "gcd": {"max_value": 20},
    "calendar_arithmetic": {"tasks": ["is_leap_year"]},
    "products": {"min_digits": 1, "max_digits": 1},
}
BEYOND = {
    "products": LARGE,
    "chain_sum": {"min_terms": 5, "max_terms": 6, **LARGE},
    "lcm": {"min_value": 500, "max_value": 999},
    "prime_factorization": {"min_value": 5000, "max_value": 9999},
}
SAMPLERS = {"random": "black", "learnability": "tab:pink", "magellan": "tab:red"}
# A run of some hundred updates, not of 10,000: exploration and estimates change sooner.
SOON = {"samplers": {"epsilon_decay": 40.0}}
SOONER = {"competence": {"learning_rate": 1e-3, "refresh": 8, "delay": 24}}


def tasks(families: dict[str, Any], size: int, seed: int, reached: bool) -> list[dict[str, Any]]:
    """`size` goals of each family: prompt, answer, whether they are within reach."""
    return [
        {"prompt": entry["question"].strip(), "answer": entry["answer"], "reached": reached}
        for name, config in families.items()
        for entry in reasoning_gym.create_dataset(name, size=size, seed=seed, **config)
    ]


def tokenizer_of(rows: list[dict[str, Any]]) -> PreTrainedTokenizerFast:
    """A token for each word, digit and sign."""
    pieces = sorted({p for row in rows for p in re.findall(PIECE, row["prompt"] + row["answer"])})
    words = {word: number for number, word in enumerate(["<pad>", "<eos>", "<unk>", *pieces])}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(PIECE), "removed", invert=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )


PIECE = r"[A-Za-z]+|[^\sA-Za-z]"


def right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """Reward 1 for the answer, 0 for anything else; spaces, which join tokens, do not count."""
    pairs = zip(completions, answer, strict=True)
    return [float(text.replace(" ", "") == own.replace(" ", "")) for text, own in pairs]


def pretrained(
    tokenizer: PreTrainedTokenizerFast, rows: list[dict[str, Any]], steps: int
) -> LlamaForCausalLM:
    """A small model that knows what answers look like."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    model, rng = LlamaForCausalLM(config), np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    for _ in range(steps):
        some = [rows[i] for i in rng.integers(len(rows), size=64)]
        texts = [f"{row['prompt']} {row['answer']} <eos>" for row in some]
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
        for row, label in zip(some, labels, strict=True):  # answers only
            label[: len(label) - len(tokenizer(row["answer"])["input_ids"]) - 1] = -100
        model(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=labels
        ).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


@torch.no_grad()
def success(model: Any, tokenizer: PreTrainedTokenizerFast, rows: list[dict[str, Any]]) -> float:
    """Share of correct answers, four sampled for each row."""
    inputs = tokenizer([row["prompt"] for row in rows], return_tensors="pt", padding=True)
    inputs.pop("token_type_ids", None)
    out = model.generate(
        **inputs, max_new_tokens=4, do_sample=True, top_k=0, num_return_sequences=4
    )
    texts = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return float(np.mean(right(texts, [row["answer"] for row in rows for _ in range(4)])))


class Looks(TrainerCallback):
    """Success on other goals every `every` steps, and the share of practice within reach."""

    def __init__(self, tokenizer: Any, rows: list[dict[str, Any]], every: int) -> None:
        self._tokenizer, self._rows, self._every = tokenizer, rows, every
        self.trainer: Any = None
        self.curve: list[tuple[int, float, float]] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._every == 0:
            self._look(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._look(state.global_step)

    def _look(self, step: int) -> None:
        model, reached = self.trainer.model, np.array(self.trainer.train_dataset["reached"])
        model.eval()
        found = success(model, self._tokenizer, self._rows)
        model.train()
        share = float(self.trainer.curriculum.probabilities()[reached].sum())
        self.curve.append((step, found, share))
        print(f"{step:4} success {found:.3f}, within reach {share:.2f}", flush=True)


def practised(
    name: str, goals: list[dict[str, Any]], looks: Looks, model: Any, tokenizer: Any, steps: int
) -> list[tuple[int, float, float]]:
    """The curve of one sampler, from the same model."""
    curriculum = Curriculum(
        [goal["prompt"] for goal in goals],
        name,
        embed=HiddenStates(model, tokenizer),  # the policy itself; only magellan asks it
        settings={**SOON, **(SOONER if name == "magellan" else {})},
    )
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            folder,
            per_device_train_batch_size=128,
            num_generations=8,
            max_completion_length=4,
            learning_rate=3e-4,
            lr_scheduler_type="constant",
            max_steps=steps,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        )
        looks.trainer = CurriculumGRPOTrainer(
            model,
            right,
            args,
            Dataset.from_list(goals),
            curriculum=curriculum,
            processing_class=tokenizer,
            callbacks=[looks],
        )
        looks.trainer.train()
    return looks.curve


def draw(curves: dict[str, list[tuple[int, float, float]]], path: Path) -> None:
    """Both measures over steps, a line for each sampler."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right_ = figure.subplots(1, 2)
    for name, curve in curves.items():
        steps, found, share = np.array(curve).T
        left.plot(steps, found, color=SAMPLERS[name], label=name)
        right_.plot(steps, share, color=SAMPLERS[name])
    left.set(xlabel="optimizer steps", ylabel="success on other goals in reach", ylim=(0, 0.5))
    right_.set(xlabel="optimizer steps", ylabel="share of draws within reach", ylim=(0, 1))
    left.legend(frameon=False)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Practise with each sampler, print curves, write them and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--samplers", nargs="+", default=[*SAMPLERS], choices=[*SAMPLERS])
    parser.add_argument("--goals", type=int, default=250, help="of each family")
    parser.add_argument("--output", type=Path, default=Path("trl_curriculum.png"))
    options = parser.parse_args()
    torch.set_num_threads(1)  # the model is too small for more
    goals, few, other = (
        tasks(REACHED, size, seed, True) + tasks(BEYOND, size, seed, False)
        for seed, size in enumerate((options.goals, 50, 50))
    )
    tokenizer, curves = tokenizer_of(goals + few + other), {}
    for name in options.samplers:
        began = time.process_time()
        model = pretrained(tokenizer, few, steps=60)
        looks = Looks(tokenizer, [row for row in other if row["reached"]], every=25)
        print(name)
        curves[name] = practised(name, goals, looks, model, tokenizer, options.steps)
        print(f"{name}: {time.process_time() - began:.0f} s on one core")
    options.output.with_suffix(".json").write_text(json.dumps(curves, indent=1) + "\n")
    draw(curves, options.output)


if __name__ == "__main__":
    main()
