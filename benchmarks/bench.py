"""Speed of one language model on one device: `python -m magellan bench`.

The operations of a run of `magellan` are timed with the paper's constants. One that is too slow for
the time limit is timed at reduced size, which the table notes.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from tokenizers import pre_tokenizers
from torch import nn
from torch.utils.benchmark import timer
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM
from transformers.utils import logging as transformers_logging

from magellan.agent.replay import Episodes
from magellan.backends import check_backend
from magellan.backends.local import LocalBackend
from magellan.backends.machine import configure_torch, cpu_model
from magellan.config import RunConfig, resolve_run
from magellan.core.codec import stack
from magellan.core.errors import is_out_of_memory, not_allowed
from magellan.core.files import check_writable, new_folder, write_atomically
from magellan.jobs.provenance import code_version, host_description, peak_memory_mb
from magellan.model.files import check_backbone, number_of_parameters
from magellan.pretraining.tokenizer import PHRASES, SPECIAL, word_tokenizer
from magellan.training.loop import Trainer
from magellan.worlds import WORLDS
from magellan.worlds.little_zoo.vocabulary import OBJECTS

SECONDS, QUICK_SECONDS = 440.0, 60.0
"""Time limits, including loading the model; the full benchmark ends within 8 minutes."""
GOAL_SPACE, TRANSITIONS = "25k", 2_000
"""Goal space of the refresh; transitions of random play, from which batches are drawn."""
MOST_CALLS, MOST_GROWTH = 20, 16
EPISODES, EPISODE_STEPS = 500_000, 5
"""Episodes of the paper's runs; steps of one in the reference study, 4 to 6.4 by sampler."""
HEADINGS = ("what", "seconds", "n", "memory", "note")
T5 = {"model_type": "t5", "feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0}
T5 |= {"tie_word_embeddings": False}  # `transformers` then does not scale the decoder's output
SMALL_T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4, "num_layers": 2}
SMALL_T5 |= {"vocab_size": 66}  # words of the tokenizer
SHAPES: dict[str, dict[str, Any]] = {
    "t5": {**T5, **SMALL_T5},
    "flan-t5-base-shape": {**T5, "d_model": 768, "num_heads": 12, "num_layers": 12},
}
"""Configurations of random models: T5 of 206,080 (the released code's timings) and 247.6 million
parameters."""

Operation = Callable[[], object]
Part = tuple[Callable[[int], Operation], int, int, int, str]
"""How to make an operation of a size; the size timed if the time suffices, and that timed first;
the operation's share of the time; what the size counts."""


@contextmanager
def model_folder(model: str) -> Iterator[str]:
    """Value of `backbone.model` for a name or a folder, as given, or for one of `SHAPES`.

    The latter is written to a temporary folder, with one token per word and punctuation mark.
    """
    if model not in SHAPES:
        yield model
        return
    split = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("isolated")]
    )
    words = dict.fromkeys(word for word, _ in split.pre_tokenize_str(" ".join((*PHRASES, "all"))))
    tokenizer = word_tokenizer([*SPECIAL, *words, *OBJECTS], split)
    config = AutoConfig.for_model(**SHAPES[model], pad_token_id=0, eos_token_id=2)
    kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    transformers_logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            made = kind.from_config(config)
            if config.is_encoder_decoder:  # transformers 5 ties the embeddings of a new T5
                made.lm_head.weight = nn.Parameter(torch.randn_like(made.lm_head.weight))
        made.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        yield folder


def configuration(
    model: str, parameters: int, device: str, settings: Sequence[Mapping[str, Any]] = ()
) -> RunConfig:
    """Preset `paper` with a model of so many parameters, without warm-up of the actor.

    bfloat16 on a GPU, float32 on a CPU; `settings` are further keys.
    """
    dtype = "float32" if device == "cpu" else "bfloat16"
    lora_mode = "merged" if parameters < 10_000_000 else "per_token"
    layer = {
        "sampler": "magellan",
        "goal_space": "2500",  # of acting; the refresh draws its own
        "backbone": {"model": model, "lora_mode": lora_mode},
        "backend": {"device": device, "dtype": dtype, "micro_batch": "auto"},
        "agent": {"actor_warmup_updates": 0},
    }
    return resolve_run("paper", [layer, *settings])


def run(
    output: Path,
    model: str,
    device: str,
    settings: Sequence[Mapping[str, Any]] = (),
    quick: bool = False,
) -> str:
    """Time a model in eight minutes (`quick`: one), and write OUTPUT/device.md, which it returns.

    Args:
        model: a name, a folder, or one of `SHAPES`.
        device, settings: see `configuration`.

    Raises:
        InputError: no such device or model, or a folder that cannot be written.
    """
    start = timer()
    check_writable(output)
    with model_folder(model) as folder:
        check_backbone(folder)
        parameters = number_of_parameters(folder)
        config = configuration(folder, parameters, device, settings)
        used = {"sampler": config.sampler, "backend.kind": config.backend.kind}
        for (key, value), alone in zip(used.items(), ("magellan", "local"), strict=True):
            if value != alone:
                raise not_allowed(key, value, alone, ", as it is not timed")
        check_backend(config.backend, config.backbone)
        bench = Bench(config)
        seconds = (QUICK_SECONDS if quick else SECONDS) - (timer() - start)
        rows = [HEADINGS, ("---", *["---:"] * 3, "---"), *bench.rows(seconds)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    text = f"{bench.headline(model, parameters)}\n\n{table}\n\n{bench.loop()}\n"
    new_folder(output)
    write_atomically(output / "device.md", text.encode())
    return text


class Bench:
    """The timed operations of one run; `seconds` has those of each that was timed."""

    def __init__(self, config: RunConfig) -> None:
        configure_torch(config.threads, config.backend.deterministic)
        self.config = config
        self.trainer = Trainer(config)
        self.backend = cast(LocalBackend, self.trainer.backend)
        self.device = self.backend.backbone.device
        self.cuda = self.device.type == "cuda"
        self.seconds: dict[str, float] = {}
        envs = config.agent.num_envs
        self.steps = math.ceil(config.agent.steps_per_update / envs) * envs

    def parts(self) -> dict[str, Part]:
        """What is timed, by name."""
        batch, collector = self.config.agent.batch_size, self.trainer.collector
        while len(self.trainer.replay) < TRANSITIONS:
            collector.step(at_random=True)
        transitions = self.trainer.replay.sample(batch)
        learned = self.config.section("competence").batch_size
        success = (np.arange(learned) % 2).astype(np.float32)
        episodes = Episodes(*self._prompts(self.config.goal_space, learned), success)
        goals = sum(WORLDS[self.config.world].parse(GOAL_SPACE))

        def act(steps: int) -> Operation:
            return lambda: [collector.step() for _ in range(0, steps, self.config.agent.num_envs)]

        def refresh(n: int) -> Operation:
            prompts = self.backend.cache_prompts(self._prompts(GOAL_SPACE, n))
            return lambda: self.backend.competence(prompts)

        def policy(n: int) -> Operation:
            return partial(self.backend.update_policy, _first(n, transitions))

        def competence(n: int) -> Operation:
            return partial(self.backend.update_competence, _first(n, episodes))

        return {
            "acting": (act, self.steps, self.steps, 4, "steps"),
            "SAC update": (policy, batch, 4, 10, "transitions"),
            "competence update": (competence, learned, 4, 4, "episodes"),
            "refresh": (refresh, goals, 64, 5, "goals"),
        }

    def rows(self, seconds: float) -> Iterator[tuple[str, ...]]:
        """Rows of the table, as text; what does not fit in memory says so."""
        parts = self.parts()
        seconds /= sum(share for *_, share, _ in parts.values())
        for name, (make, full, smallest, share, things) in parts.items():
            if self.cuda:
                torch.cuda.reset_peak_memory_stats(self.device)
            try:
                taken, calls, size = timed(make, full, smallest, seconds * share)
            except Exception as error:  # the type is the library's choice
                if not is_out_of_memory(error):
                    raise
                row: tuple[str, ...] = (name, *[""] * 3, "out of memory")
            else:
                self.seconds[name] = taken
                peak = torch.cuda.max_memory_allocated(self.device) if self.cuda else 0
                memory = f"{peak / 1e6:,.0f} MB" * self.cuda
                note = f"measured on {size:,} of {full:,} {things}" * (size < full)
                row = (f"{name}, {full:,} {things}", number(taken), str(calls), memory, note)
            print(*row[:2], row[-1], file=sys.stderr, flush=True)
            yield row

    def loop(self) -> str:
        """Speed of the whole loop and hours of `EPISODES`, both from the parts that were timed."""
        if len(self.seconds) < 4:
            return f"Whole loop, {EPISODES:,} episodes: **not measured**."
        paper = resolve_run("paper", []).budget
        refreshes = self.config.section("competence").refresh
        once = sum(self.seconds.values()) - (1 - 1 / refreshes) * self.seconds["refresh"]
        updates = math.ceil(EPISODES * EPISODE_STEPS / self.steps)
        played = 2 * 4 * paper.evaluation_goals  # splits, feasible categories
        evaluated = (EPISODES // paper.evaluate_every + 1) * played * EPISODE_STEPS
        seconds = updates * once + evaluated / self.steps * self.seconds["acting"]
        return (
            f"Whole loop, the parts and 1/{refreshes} of a refresh added: "
            f"**{number(self.steps / once)} steps/s**. {EPISODES:,} episodes of {EPISODE_STEPS} "
            f"steps, {updates:,} updates, evaluations at the speed of acting: "
            f"**{number(seconds / 3600)} h**."
        )

    def headline(self, model: str, parameters: int) -> str:
        """Model, machine, settings and code."""
        config, backend = self.config, self.backend
        gpu = f"{torch.cuda.get_device_name(self.device)}, " if self.cuda else ""
        weights = ", random weights, each word a token" if model in SHAPES else ""
        return (
            f"`{model}` ({parameters / 1e6:,.1f} million parameters{weights}) on {backend.device}: "
            f"{gpu}{cpu_model()}, {host_description()}; {backend.dtype}, `lora_mode: "
            f"{config.backbone.lora_mode}`, micro-batch {backend.backbone.micro_batch or 'none'}, "
            f"passes {backend.passes}, deterministic: {config.backend.deterministic}, threads "
            f"{config.threads}, PyTorch {torch.__version__}, code {code_version()}. Peak memory of "
            f"the process: {peak_memory_mb():,} MB. Seconds: median of n calls, of the full size."
        )

    def _prompts(self, goal_space: str, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and segments, (n, length) each, of n goals drawn uniformly from a space."""
        goals = WORLDS[self.config.world].goals(goal_space, 0)
        positions = np.random.default_rng(0).choice(len(goals), n, replace=n > len(goals))
        texts = [goals.prompt(int(position)) for position in positions]
        return stack(self.backend.codec.pack(texts, [()] * n))


def timed(
    make: Callable[[int], Operation], total: int, smallest: int, seconds: float
) -> tuple[float, int, int]:
    """Time an operation in about `seconds`, at full size if they suffice.

    Returns: seconds of an operation of full size, the median of so many calls of what size.

    Its first call, of the smallest size, has one-time costs and is not timed. The size grows while
    the next one is likely to take at most half of the time left; the last one is repeated in the
    rest, and called at least once.
    """
    end = timer() + seconds
    size = min(smallest, total)
    operation = make(size)
    operation()
    calls = [_seconds(operation)]
    while size < total:
        growth = (end - timer()) / 2 / max(calls[0], 1e-9)
        larger = min(total, size * int(min(growth, MOST_GROWTH)))
        if larger <= size:
            break
        size, operation = larger, make(larger)
        calls = [_seconds(operation)]
    while len(calls) < MOST_CALLS and timer() + calls[0] <= end:
        calls.append(_seconds(operation))
    return statistics.median(calls) * total / size, len(calls), size


def _first(n: int, data: Any) -> Any:
    return type(data)(*(getattr(data, field.name)[:n] for field in fields(data)))


def _seconds(operation: Operation) -> float:
    start = timer()  # waits for a GPU
    operation()
    return timer() - start


def number(value: float) -> str:
    """Three significant digits, whole above 100, commas between thousands."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}".rstrip(".")
