"""Speed of one language model on one device: `python -m magellan bench`.

The operations of a run of `magellan` are timed with the paper's constants. One that is too slow for
the time limit is timed at reduced size, which the table notes.
"""

from __future__ import annotations

import math
import os
import platform
import resource
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from tokenizers import pre_tokenizers
from torch import nn
from torch.utils.benchmark import timer
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM
from transformers.utils import logging as transformers_logging

from magellan.agent.replay import Episodes
from magellan.backends import check_backend
from magellan.backends.local import LocalBackend
from magellan.backends.machine import configure_torch, cpu_model
from magellan.config import RunConfig, resolve_run
from magellan.core.codec import stack
from magellan.core.errors import InputError, is_out_of_memory
from magellan.jobs.provenance import code_version
from magellan.model.devices import HAS_ONEDNN
from magellan.model.files import check_backbone, number_of_parameters
from magellan.pretraining.tokenizer import SPECIAL, word_tokenizer
from magellan.training.loop import Trainer
from magellan.worlds import WORLDS
from magellan.worlds.little_zoo.vocabulary import OBJECTS

SECONDS, QUICK_SECONDS = 440.0, 60.0
"""Time limits, including loading the model; the full benchmark ends within 8 minutes."""
SMALL_MODEL = 10_000_000
"""Number of parameters below which adapters are merged into the weights."""
GOAL_SPACE, TRANSITIONS = "25k", 2_000
"""Goal space of the refresh; transitions of random play, from which batches are drawn."""
SQUARE = {"cuda": 8192, "cpu": 1024}
"""Rows and columns of the product that measures the peak of a device."""
MOST_CALLS, MOST_GROWTH = 20, 16
EPISODES, EPISODE_STEPS = 500_000, 5
"""Episodes of the paper's runs; steps of one in the reference study, 4 to 6.4 by sampler."""
HEADINGS = ("what", "seconds", "n", "GFLOP", "share of peak", "memory", "note")
T5 = {"model_type": "t5", "feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0}
T5 |= {"tie_word_embeddings": False}  # `transformers` then does not scale the decoder's output
SMALL_T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4, "num_layers": 2}
SMALL_T5 |= {"vocab_size": 66}  # words of the tokenizer
SHAPES: dict[str, dict[str, Any]] = {
    "t5": {**T5, **SMALL_T5},
    "flan-t5-base-shape": {**T5, "d_model": 768, "num_heads": 12, "num_layers": 12},
    "smollm2-135m-shape": {
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49_152,
        "tie_word_embeddings": True,
    },
}
"""Configurations of random models: two T5 of 206,080 (the released code's timings) and 247.6
million parameters, a Llama of 134.5 million."""
SAMPLE = """Goal: Grow baby seed
You see: nothing,
You are standing on: nothing
Inventory (0/2): empty
Inventory (1/2):
Action: Go to Grasp Release all"""
"""Every word and punctuation mark of Little-Zoo but the names of objects."""

Operation = Callable[[], object]


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
    words = dict.fromkeys(word for word, _ in split.pre_tokenize_str(SAMPLE))
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


def _flop(left: int) -> Callable[..., int]:
    """Floating point operations of a product, from the shapes; `left` is its left factor."""
    return lambda *shapes, out_shape, **_: 2 * math.prod(out_shape) * shapes[left][-1]


UNKNOWN = {torch.ops.aten.addmm_: _flop(1), torch.ops.aten.baddbmm_: _flop(1)}
"""Products that the library's counter does not know."""
if HAS_ONEDNN:
    UNKNOWN[torch.ops.mkldnn._linear_pointwise] = _flop(0)


class Part(NamedTuple):
    """An operation of a run: how to make one of a size, its sizes, and its share of the time.

    `things` are counted by the size; `smallest` is timed first, `size` if the time suffices.
    """

    make: Callable[[int], Operation]
    size: int
    smallest: int
    share: int
    things: str


class Timed(NamedTuple):
    """Seconds and GFLOP of an operation of full size; the median of `calls` of `size`."""

    seconds: float
    calls: int
    size: int
    gflop: float


def configuration(
    model: str,
    parameters: int,
    device: str,
    dtype: str | None = None,
    settings: Sequence[Mapping[str, Any]] = (),
) -> RunConfig:
    """Preset `paper` with a model of so many parameters, without warm-up of the actor.

    No `dtype`: bfloat16 on a GPU, float32 on a CPU. `settings` are further keys.
    """
    dtype = dtype or ("float32" if device == "cpu" else "bfloat16")
    lora_mode = "merged" if parameters < SMALL_MODEL else "per_token"
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
    dtype: str | None = None,
    settings: Sequence[Mapping[str, Any]] = (),
    quick: bool = False,
) -> str:
    """Time a model, and write device.md to a folder; returns the Markdown.

    Args:
        output: the folder; created if absent.
        model: a name, a folder, or one of `SHAPES`.
        device, dtype, settings: see `configuration`.
        quick: a minute instead of eight.

    Raises:
        InputError: no such device or model, or a folder that cannot be written.
    """
    start = timer()
    with model_folder(model) as folder:
        check_backbone(folder)
        parameters = number_of_parameters(folder)
        config = configuration(folder, parameters, device, dtype, settings)
        for key, value, allowed in (
            ("sampler", config.sampler, "magellan"),
            ("backend.kind", config.backend.kind, "local"),
        ):
            if value != allowed:
                raise InputError(f"{key}: {value!r} is not timed here; allowed: {allowed}")
        check_backend(config.backend, config.backbone)
        try:
            output.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=output).close()
        except OSError as error:
            raise InputError(f"--output: {output} cannot be written ({error.strerror})") from error
        bench = Bench(config)
        seconds = (QUICK_SECONDS if quick else SECONDS) - (timer() - start)
        rows = [HEADINGS, ("---", *["---:"] * 5, "---"), *bench.rows(seconds)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    lines = [bench.headline(model, parameters), table, bench.loop(), bench.notes()]
    text = "\n\n".join(lines) + "\n"
    (output / "device.md").write_text(text, encoding="utf-8")
    return text


class Bench:
    """The timed operations of one run; `seconds` has those of each that was timed."""

    def __init__(self, config: RunConfig) -> None:
        configure_torch(config.threads, config.backend.deterministic)
        self.config = config
        self.trainer = Trainer(config)
        self.backend = cast(LocalBackend, self.trainer.backend)
        self.device = self.backend.backbone.device
        self.peak = self._peak()
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

        def update(learn: Callable[[Any], object], data: Any) -> Callable[[int], Operation]:
            def of_size(n: int) -> Operation:
                rows = {field.name: getattr(data, field.name)[:n] for field in fields(data)}
                return lambda: learn(type(data)(**rows))

            return of_size

        policy = update(self.backend.update_policy, transitions)
        competence = update(self.backend.update_competence, episodes)
        return {
            "acting": Part(act, self.steps, self.steps, 4, "steps"),
            "SAC update": Part(policy, batch, 4, 10, "transitions"),
            "competence update": Part(competence, learned, 4, 4, "episodes"),
            "refresh": Part(refresh, goals, 64, 5, "goals"),
        }

    def rows(self, seconds: float) -> Iterator[tuple[str, ...]]:
        """Rows of the table, as text; what does not fit in memory says so."""
        parts = self.parts()
        for name, part in parts.items():
            share = seconds * part.share / sum(part.share for part in parts.values())
            if self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(self.device)
            try:
                result = timed(part.make, part.size, part.smallest, share)
            except Exception as error:  # the type is the library's choice
                if not is_out_of_memory(error):
                    raise
                row: tuple[str, ...] = (name, *[""] * 5, "out of memory")
            else:
                self.seconds[name] = result.seconds
                row = (f"{name}, {part.size:,} {part.things}", *self._figures(result, part))
            print(*row[:2], row[-1], file=sys.stderr, flush=True)
            yield row

    def _figures(self, result: Timed, part: Part) -> tuple[str, ...]:
        counts = number(result.gflop), f"{result.gflop / 1e3 / result.seconds / self.peak:.1%}"
        if self.backend.passes.startswith("compiled"):  # PyTorch does not see its products
            counts = "", ""
        memory = note = ""
        if self.device.type == "cuda":
            memory = f"{torch.cuda.max_memory_allocated(self.device) / 1e6:,.0f} MB"
        if result.size < part.size:
            note = f"measured on {result.size:,} of {part.size:,} {part.things}"
        return number(result.seconds), str(result.calls), *counts, memory, note

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
        where = cpu_model()
        if self.device.type == "cuda":
            where = f"{torch.cuda.get_device_name(self.device)}, {where}"
        weights = ", random weights, each word a token" if model in SHAPES else ""
        unit = 1 if sys.platform == "darwin" else 1024
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
        return (
            f"`{model}` ({parameters / 1e6:,.1f} million parameters{weights}) on {backend.device}: "
            f"{where}, {os.cpu_count()} cores, {platform.system()}; {backend.dtype}, `lora_mode: "
            f"{config.backbone.lora_mode}`, micro-batch {backend.backbone.micro_batch or 'none'}, "
            f"passes {backend.passes}, deterministic: {config.backend.deterministic}, threads "
            f"{config.threads}, PyTorch {torch.__version__}, code {code_version()}. Peak memory of "
            f"the process: {memory:,.0f} MB."
        )

    def notes(self) -> str:
        """What the columns are."""
        return (
            "Seconds: median of n calls, scaled to the full size. GFLOP: what PyTorch multiplies, "
            f"padding included. Share of peak: GFLOP / seconds / {number(self.peak)} TFLOP/s, the "
            "device's rate in a product of "
            f"{SQUARE[self.device.type]} x {SQUARE[self.device.type]}."
        )

    def _prompts(self, goal_space: str, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and segments, (n, length) each, of n goals drawn uniformly from a space."""
        goals = WORLDS[self.config.world].goals(goal_space, 0)
        positions = np.random.default_rng(0).choice(len(goals), n, replace=n > len(goals))
        texts = [goals.prompt(int(position)) for position in positions]
        return stack(self.backend.codec.pack(texts, [()] * n))

    def _peak(self) -> float:
        size, dtype = SQUARE[self.device.type], self.backend.backbone.dtype
        left = torch.ones(size, size, dtype=dtype, device=self.device)
        out = torch.empty_like(left)
        calls = [_seconds(lambda: torch.mm(left, left, out=out)) for _ in range(MOST_CALLS)]
        return 2 * size**3 / min(calls) / 1e12


def timed(make: Callable[[int], Operation], total: int, smallest: int, seconds: float) -> Timed:
    """Time an operation in about `seconds`, at full size if they suffice.

    Its first call, of the smallest size, has one-time costs and is not timed; the second is
    counted. The size grows while the next one is likely to take at most half of the time left; the
    last one is repeated in the rest, and called at least once.
    """
    end = timer() + seconds
    size = min(smallest, total)
    operation = make(size)
    operation()
    with FlopCounterMode(display=False, custom_mapping=UNKNOWN) as counter:
        operation()
    gflop = counter.get_total_flops() / 1e9 * total / size
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
    return Timed(statistics.median(calls) * total / size, len(calls), size, gflop)


def _seconds(operation: Operation) -> float:
    start = timer()  # waits for a GPU
    operation()
    return timer() - start


def number(value: float) -> str:
    """Three significant digits, whole above 100, commas between thousands."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}".rstrip(".")
