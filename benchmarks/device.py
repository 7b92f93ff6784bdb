"""How fast one language model is on one device: `python -m magellan bench --device D --model M`.

Everything a run does with the model is timed with the paper's constants, within a time that is
given; what is too slow for it is measured in part, and the table says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch

from benchmarks.model_flops import ModelFlops, flops_of
from benchmarks.models import ModelBenchmark, fill_replay, steps_per_update
from benchmarks.needs import EPISODE_STEPS, EPISODES, length_of
from benchmarks.peaks import Peak, peak_of, synchronize
from benchmarks.timed import Deadline, Operation, Timed, timed
from magellan.agent.replay import Batch, Episodes
from magellan.backends.local import LocalBackend
from magellan.backends.machine import settle
from magellan.config import RunConfig, resolve_run
from magellan.core.codec import stack
from magellan.core.errors import is_out_of_memory
from magellan.training.loop import Trainer
from magellan.worlds import WORLDS

SECONDS, QUICK_SECONDS = 440.0, 60.0
"""Time of a benchmark, with loading the model; the full one ends within 8 minutes."""
SMALL_MODEL = 10_000_000
"""Parameters: adapters of smaller models are merged into their weights."""
SHARES = {"acting": 4, "SAC": 10, "competence": 4, "25k": 5, "100k": 8, "loop": 6, "free": 5}
"""How the time is shared; what one leaves over goes to those behind it."""
GOALS = {"25k": 64, "100k": 64}
"""Goal spaces that are refreshed, and how many goals are tried first."""
ROUNDS, EVALUATION_STEPS = 8, 30


@dataclass(frozen=True)
class Part:
    """A measured operation.

    row, size: what, and on which goal space.
    value, unit: environment steps per second or seconds.
    seconds: of one operation.
    gflop: 10^9 operations that the model needs for it; None where they are not counted.
    utilisation: share of the device's peak; None as well.
    memory_mb: largest memory of the device while it ran, 10^6 bytes; None on a CPU.
    note: what has to be known of the measurement; empty where all was measured.
    """

    row: str
    size: str
    value: float
    unit: str
    seconds: float
    repetitions: int
    gflop: float | None
    utilisation: float | None
    memory_mb: float | None
    note: str


@dataclass(frozen=True)
class Missing:
    """A part that was not measured, and why."""

    row: str
    size: str
    note: str


def device_configuration(
    model: str,
    parameters: int,
    device: str,
    dtype: str | None,
    settings: Sequence[Mapping[str, Any]] = (),
) -> RunConfig:
    """Preset `paper` with this model on this device; the actor learns at once.

    Args:
        model: value of `backbone.model`.
        parameters: numbers in its weights.
        device: value of `backend.device`.
        dtype: value of `backend.dtype`; None: bfloat16 on a GPU, float32 on a CPU.
        settings: further keys.
    """
    usual = "float32" if device == "cpu" else "bfloat16"
    small = parameters < SMALL_MODEL
    layer = {
        "sampler": "magellan",
        # For the loop; goal spaces that are refreshed are drawn by themselves.
        "goal_space": "2500",
        "backbone": {"model": model, "lora_mode": "merged" if small else "per_token"},
        "backend": {"device": device, "dtype": dtype or usual, "micro_batch": "auto"},
        "agent": {"actor_warmup_updates": 0},
        "budget": {"evaluation_goals": 1, "evaluate_every": EPISODES},
    }
    return resolve_run("paper", [layer, *settings])


class DeviceBenchmark:
    """The operations of one run, and the time that they may take.

    Args:
        config: of the run.
        deadline: of all measurements.
    """

    def __init__(self, config: RunConfig, deadline: Deadline) -> None:
        self.deadline = deadline
        settle(config.threads, config.backend.deterministic)
        self.trainer = Trainer(config)
        self.config = config
        self.backend = cast(LocalBackend, self.trainer.backend)
        self.device = self.backend.backbone.device
        fill_replay(self.trainer)
        name = "cpu" if self.device.type == "cpu" else torch.cuda.get_device_name(self.device)
        self.peak: Peak = peak_of(name, self.device, self.backend.backbone.dtype)
        self.flops: ModelFlops = flops_of(self.backend.backbone)
        self._shares = dict(SHARES)

    @property
    def scored(self) -> bool:
        """Whether the output layer is applied to all words of the vocabulary."""
        return self.config.agent.score == "log_prob_sum"

    @cached_property
    def batch(self) -> Batch:
        """Transitions of random play, as many as an update takes."""
        return self.trainer.replay.sample(self.config.agent.batch_size)

    def parts(self) -> Iterator[Part | Missing]:
        """All measurements, in order."""
        found: dict[str, Part] = {}
        for name, row, size, measure in (
            ("acting", "acting", "", self._acting),
            ("SAC", "SAC update", "", self._sac),
            ("competence", "competence update", "", self._competence),
            *(
                (goals, "refresh", goals, lambda s, goals=goals: self._refresh(goals, s))
                for goals in GOALS
            ),
        ):
            part = self._measured(name, row, size, measure)
            if isinstance(part, Part):
                found[name] = part
            yield part
        yield self._loop(found)
        yield self._not_deterministic(found)

    def _measured(
        self, name: str, row: str, size: str, measure: Callable[[float], Part]
    ) -> Part | Missing:
        seconds = self._share(name)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        try:
            return measure(seconds)
        except Exception as error:  # the library's own kinds
            if not is_out_of_memory(error):
                raise
            return Missing(row, size, f"not measured: out of memory on {self.backend.device}")

    def _share(self, name: str) -> float:
        """Seconds that a measurement may take of those that are left."""
        share = self._shares.pop(name) / (sum(self._shares.values()) + SHARES[name])
        return self.deadline.left * share

    def _acting(self, seconds: float) -> Part:
        steps = steps_per_update(self.config)
        rounds = steps // self.config.agent.num_envs

        def act() -> None:
            for _ in range(rounds):
                self.trainer.collector.step()

        found = self._timed(lambda _: act, 1, 1, seconds)
        states = self.batch.segments
        gflop = self.flops.forward(states, self.scored) * steps / len(states)
        return self._part("acting", "", found, gflop, "", steps)

    def _sac(self, seconds: float) -> Part:
        found = self._timed(self._sac_update, len(self.batch.actions), 4, seconds)
        return self._part("SAC update", "", found, self._sac_gflop(), "transitions")

    def _sac_update(self, size: int) -> Operation:
        some = _first(self.batch, size)
        return lambda: self.backend.update_policy(some)

    def _sac_gflop(self) -> float:
        """Bootstrap by policy and target, the critic's step, the actor's step."""
        batch, flops = self.batch, self.flops
        goes_on = batch.next_segments[batch.discounts > 0]
        states = self.backend.backbone.batch(batch.tokens, batch.segments)
        taken = states.with_one_candidate(batch.actions).segment_array
        return (
            2 * flops.forward(goes_on, self.scored)
            + flops.with_gradients(taken)
            + flops.with_gradients(batch.segments, self.scored)
        )

    def _competence(self, seconds: float) -> Part:
        size = self.config.section("competence").batch_size
        tokens, segments = self._prompts(self.config.goal_space, size)
        episodes = Episodes(tokens, segments, (np.arange(size) % 2).astype(np.float32))

        def make(n: int) -> Operation:
            some = _first(episodes, n)
            return lambda: self.backend.update_competence(some)

        found = self._timed(make, size, 4, seconds)
        gflop = self.flops.with_gradients(segments)
        return self._part("competence update", "", found, gflop, "episodes")

    def _refresh(self, goal_space: str, seconds: float) -> Part:
        total = sum(WORLDS[self.config.world].parse(goal_space))
        counted = self._prompts(goal_space, min(total, 1_000))[1]

        def make(n: int) -> Operation:
            held = self.backend.hold(self._prompts(goal_space, n))

            def score() -> None:
                self.backend.competence(held)

            return score

        found = self._timed(make, total, GOALS[goal_space], seconds)
        gflop = self.flops.forward(counted) * total / len(counted)
        return self._part("refresh", goal_space, found, gflop, "goals")

    def _prompts(self, goal_space: str, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Prompts of so many goals of a space, drawn evenly, (n, length) both."""
        goals = WORLDS[self.config.world].goals(goal_space, 0)
        chosen = np.random.default_rng(0).choice(len(goals), n, replace=n > len(goals))
        texts = [goals.prompt(int(position)) for position in chosen]
        return stack(self.backend.codec.pack(texts, [()] * n))

    def _loop(self, found: Mapping[str, Part]) -> Part | Missing:
        """Rounds of the real loop where there is time for some, else the sum of its parts."""
        needed = ("acting", "SAC", "competence", "25k")
        lacking = [name for name in needed if name not in found]
        if lacking:
            return Missing("whole loop", "25k", f"not measured: {lacking[0]} is not")
        one = sum(found[name].seconds for name in needed[:3])
        refresh = found["25k"].seconds / self.config.section("competence").refresh
        seconds, steps = self._share("loop"), steps_per_update(self.config)
        start = found["acting"].seconds * EVALUATION_STEPS / 2
        rounds = min(int((seconds - start) / one) - 1, ROUNDS)
        note, said = "1/32 of a refresh added", "acting, both updates and 1/32 of a refresh, added"
        if rounds > 0:
            one = ModelBenchmark(self.trainer).quiet_round_seconds(rounds)
            whole = Timed(one + refresh, rounds, 1, 1)
            return self._part("whole loop", "25k", whole, None, "", steps, note)
        whole = Timed(one + refresh, 0, 1, 1)
        return self._part("whole loop", "25k", whole, None, "", steps, f"not measured: {said}")

    def _not_deterministic(self, found: Mapping[str, Part]) -> Part | Missing:
        """What the same numbers every time cost: the update with the other setting."""
        chosen = self.config.backend.deterministic
        row = f"SAC update, deterministic: {str(not chosen).lower()}"
        if self.device.type == "cpu":
            return Missing(row, "", "not measured: a CPU adds in the same order either way")
        if "SAC" not in found:
            return Missing(row, "", "not measured: SAC update is not")
        torch.use_deterministic_algorithms(not chosen)
        try:
            part = self._measured("free", row, "", self._sac)
        finally:
            torch.use_deterministic_algorithms(chosen)
        return type(part)(**{**asdict(part), "row": row})

    def _timed(
        self, make: Callable[[int], Operation], total: int, smallest: int, seconds: float
    ) -> Timed:
        def complete(size: int) -> Operation:
            operation = make(size)

            def run() -> None:
                operation()
                synchronize(self.device)

            return run

        return timed(complete, total, smallest, seconds, self.deadline)

    def _part(
        self,
        row: str,
        size: str,
        found: Timed,
        gflop: float | None,
        things: str,
        steps: int = 0,
        note: str = "",
    ) -> Part:
        """A measurement as a row; `steps` of the environment make it a rate."""
        rate = None if gflop is None else gflop / 1e3 / found.seconds
        memory = None
        if self.device.type == "cuda":
            memory = torch.cuda.max_memory_allocated(self.device) / 1e6
        return Part(
            row=row,
            size=size,
            value=steps / found.seconds if steps else found.seconds,
            unit="steps/s" if steps else "s",
            seconds=found.seconds,
            repetitions=found.repetitions,
            gflop=gflop,
            utilisation=None if rate is None else rate / self.peak.tflops,
            memory_mb=memory,
            note="; ".join(filter(None, (found.said(things), note))),
        )


def _first(data: Any, n: int) -> Any:
    """The first n rows of a dataclass of arrays."""
    return type(data)(**{each.name: getattr(data, each.name)[:n] for each in fields(data)})


@dataclass(frozen=True)
class Hours:
    """How long a run of the paper takes here, and why."""

    hours: float
    arithmetic: str


def hours_of(parts: Sequence[Part | Missing], config: RunConfig) -> Hours | None:
    """Hours of `EPISODES` episodes with evaluations; None where the loop is unknown."""
    known = {(part.row, part.size): part for part in parts if isinstance(part, Part)}
    loop, acting = known.get(("whole loop", "25k")), known.get(("acting", ""))
    if loop is None or acting is None:
        return None
    length = length_of(config)
    evaluating = length.played * EPISODE_STEPS / acting.value
    training = length.updates * loop.seconds
    return Hours(
        (training + evaluating) / 3600,
        f"{EPISODES:,} episodes x {EPISODE_STEPS:g} steps / {length.steps} steps per update = "
        f"{length.updates:,} updates x {loop.seconds:.4g} s = {training / 3600:.3g} h; "
        f"{length.looks} evaluations of {length.played // length.looks} episodes x "
        f"{EPISODE_STEPS:g} steps / {acting.value:.4g} steps/s = "
        f"{evaluating / 3600:.3g} h",
    )
