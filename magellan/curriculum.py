"""Which goals come next, in a training loop of your own.

The samplers, estimators and random streams are those of a run: told the same outcomes, a
`Curriculum` draws the same goals. numpy only, but for the sampler `magellan` and others whose
estimator reads goals with a model.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from magellan.backends import Backend, make_backend
from magellan.competence import (
    ESTIMATORS,
    CompetenceEstimator,
    EstimatorParts,
    EstimatorSpec,
    Outcomes,
)
from magellan.competence.arms import EachCategory
from magellan.config import RunConfig, checked_run, estimators_of
from magellan.core.errors import InputError, refused, shown
from magellan.core.randomness import Streams, initial_seeds
from magellan.core.registry import is_built_in
from magellan.samplers import SAMPLERS, SamplerSpec
from magellan.training.estimators import Estimators
from magellan.worlds import Categories, Category
from magellan.worlds.texts import Texts

if TYPE_CHECKING:
    from magellan.model.embedded import Embed

Settings = Mapping[str, Mapping[str, Any]]
"""Constants that differ from their defaults, by section, as under `overrides` of an experiment."""
ONLY = "all"
"""Name of the only group where none are given."""


class Curriculum:
    """Draws goals, known by their place in a list, and learns from their outcomes.

    Args:
        goals: prompts, or other texts that say what each goal is; more may be added on the way.
        sampler: any that is registered, such as random, online, ek_online, learnability, magellan.
        embed: what reads goals, for samplers that need that. A name or folder of a Hugging Face
            model: for MAGELLAN, LoRA adapters on it learn with the head (`settings={"competence":
            {"adapter": "frozen"}}`: the head alone). Or a function, n texts to an array (n, width):
            the head alone. Other samplers do without.
        seed: of all randomness.
        groups: group of each goal, for samplers that choose among groups.
        impossible: names of groups whose goals nobody can reach: they are only explored.
        settings: constants that differ from their defaults, such as
            `{"samplers": {"epsilon_decay": 50}, "competence": {"refresh": 8}}`.
        play: plays goals (n,) once, only to see whether they succeed, (n,); for samplers whose
            estimator asks for that, such as ek_eval.

    Raises:
        InputError: a value that is not allowed, or something that this sampler needs is missing.
    """

    def __init__(
        self,
        goals: Sequence[str],
        sampler: str = "magellan",
        embed: str | Embed | None = None,
        seed: int = 0,
        groups: Sequence[str] | None = None,
        impossible: Collection[str] = (),
        settings: Settings | None = None,
        play: Callable[[np.ndarray], Any] | None = None,
    ) -> None:
        self._config = _configured(sampler, seed, settings or {})
        names = sorted(set(groups or [ONLY]))
        self._categories = Categories(Category(name, name not in impossible) for name in names)
        self._goals: list[str] = []
        self._numbers: list[int] = []
        self._added: list[list[Any]] = []
        self._play, self._episodes = play, 0
        self._extend(goals, groups)
        self._first = _digest([self._goals, self._numbers, names])
        streams, (for_model, _, for_head) = Streams(seed), initial_seeds(seed)
        self._rng, self._space = streams("sampler"), self._world().goals()
        self._backend = backend_for(self._config, embed, self._world(), for_model)
        parts = EstimatorParts(self._space, streams, for_head, self._backend)
        self._estimators = Estimators(self._config, parts)
        self.sampler = self._estimators.drive(sampler, self._space, self._rng)
        self._check(groups is not None)

    def __len__(self) -> int:
        return len(self._goals)

    def sample(self, n: int) -> np.ndarray:
        """`n` goals with replacement: places in the list, int64 (n,)."""
        if self._play is not None:
            play = self._play
            self._estimators.play_wanted(self._episodes, lambda goals, _: np.asarray(play(goals)))
        return self.sampler.sample(n)

    def update(self, indices: Any, success: Any, advantage: Any = None) -> None:
        """Hear of episodes that ended, once per update of the policy; none is an update, too.

        Args:
            indices: goals (m,), oldest first; one stands there as often as it was played.
            success: 0 or 1 for each.
            advantage: |return - value| of each, for samplers that want it, such as plr.

        Raises:
            InputError: shapes differ, a goal that there is not, a success that is neither.
            NotFiniteError: the head's loss or a weight is NaN or infinite.
        """
        goals = np.asarray(indices).reshape(-1)
        wrong = goals[(goals < 0) | (goals >= len(self)) | (goals != np.trunc(goals))]
        if len(wrong):
            raise InputError(
                f"indices: {shown(wrong[0].item())} is not allowed; allowed: 0 to {len(self) - 1}"
            )
        outcomes = Outcomes(goals, np.asarray(success, float).reshape(-1), advantage=advantage)
        self._episodes += len(outcomes)
        self.sampler.update(outcomes)
        self._estimators.update(outcomes)
        self._estimators.check(self.sampler.step)

    def probabilities(self) -> np.ndarray:
        """Probability of each goal at the next draw, float64 (n,), sums to one."""
        return self.sampler.probabilities()

    def competence(self) -> tuple[np.ndarray, np.ndarray]:
        """Predicted success of each goal, tried or not, now and delayed: two float64 (n,).

        Raises:
            InputError: this sampler predicts nothing.
        """
        if self.sampler.estimator is None:
            raise InputError(f"sampler: {self._config.sampler} has no estimator that could predict")
        return self.sampler.estimator.predict(self._space, np.arange(len(self)))

    def add(self, goals: Sequence[str], groups: Sequence[str] | None = None) -> None:
        """More goals, behind those that are there; what is known of these stays.

        groups: of groups that there were at the start.

        Raises:
            InputError: the sampler's estimator cannot go on with other goals.
        """
        for name, estimator in self._estimators.by_name.items():
            if type(estimator).set_goal_space is CompetenceEstimator.set_goal_space:
                raise InputError(
                    f"goals: none can be added, the estimator {name!r} has no `set_goal_space`"
                )
        self._extend(goals, groups)
        self._added.append([list(goals), None if groups is None else list(groups)])
        self._space = self._world().goals()
        former = self.sampler
        self._estimators.set_goal_space(self._space)
        self.sampler = self._estimators.drive(self._config.sampler, self._space, self._rng)
        self.sampler.carry_on(former)

    def state_dict(self) -> dict[str, Any]:
        """All that changes, copied: numpy arrays and JSON-able values; of goals, those added."""
        backend = {} if self._backend is None else self._backend.state_dict()
        return {
            "sampler": self._config.sampler,
            "first": self._first,
            "added": copy.deepcopy(self._added),
            "episodes": self._episodes,
            "state": copy.deepcopy(self.sampler.state_dict()),
            "estimators": copy.deepcopy(self._estimators.state_dict()),
            "backend": copy.deepcopy(backend),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict` as if never stopped; goals that were added come back.

        Raises:
            InputError: it is of another sampler or other goals, or goals were added here already.
        """
        mine = self._config.sampler, self._first
        if (state["sampler"], state["first"]) != mine or self._added:
            raise InputError(
                f"curriculum: a state of {state['sampler']} is not allowed; allowed: one of "
                f"{mine[0]} that began with the same goals and groups, before any are added"
            )
        for goals, groups in state["added"]:
            self.add(goals, groups)
        self._episodes = int(state["episodes"])
        if self._backend is not None:
            self._backend.load_state_dict(state["backend"])
        self.sampler.load_state_dict(state["state"])
        self._estimators.load_state_dict(state["estimators"])

    def _world(self) -> Texts:
        return Texts(self._goals, np.array(self._numbers), self._categories)

    def _extend(self, goals: Sequence[str], groups: Sequence[str] | None) -> None:
        """Write goals and their groups down, after a look at them."""
        if not len(goals) or not all(isinstance(goal, str) for goal in goals):
            raise InputError("goals: none, or one that is no text; allowed: a list of texts")
        names = self._categories.names
        given = [ONLY] * len(goals) if groups is None else list(groups)
        unknown = [name for name in given if name not in names]
        if len(given) != len(goals) or unknown:
            raise InputError(
                f"groups: {shown(unknown or len(given))} is not allowed; allowed: one for each of "
                f"{len(goals)} goals, of {', '.join(names)}"
            )
        self._goals += goals
        self._numbers += [names.index(name) for name in given]

    def _check(self, grouped: bool) -> None:
        """What the sampler needs was given."""
        name = self._config.sampler
        if isinstance(self.sampler.arms, EachCategory) and not grouped:
            raise InputError(f"groups: none given; the sampler {name} chooses among groups")
        for each, estimator in self._estimators.by_name.items():
            base = CompetenceEstimator.goals_to_evaluate
            if type(estimator).goals_to_evaluate is not base and self._play is None:
                raise InputError(f"play: none given; the estimator {each} of {name} wants to play")


def _configured(sampler: str, seed: int, settings: Settings) -> RunConfig:
    """Configuration of a run with this sampler, for the sections that choose goals."""
    spec = SAMPLERS.find(sampler)
    allowed = {"samplers", "backbone", "backend", spec.section}
    if spec.estimator is not None:
        driver = settings.get("samplers", {}).get("estimator") or spec.estimator
        allowed.add(ESTIMATORS.find(driver, "samplers.estimator").section)
    for name in settings.keys() - allowed:
        raise refused("settings", name, ", ".join(sorted(allowed)))
    return checked_run({"sampler": sampler, "seed": seed, **settings})


def backend_for(
    config: RunConfig, embed: str | Embed | None, world: Texts, seed: int
) -> Backend | None:
    """What reads goals; None where neither sampler nor estimators do, or nothing is given."""
    used: list[SamplerSpec | EstimatorSpec] = [SAMPLERS[config.sampler]]
    used += [ESTIMATORS[name] for name in estimators_of(config)]
    wanted = [each for each in used if each.reads or not is_built_in(each)]
    if embed is None and any(each.reads for each in wanted):
        raise InputError(
            f"embed: none given; the sampler {config.sampler} reads goals; allowed: the name of a "
            "language model, or a function from texts to vectors"
        )
    if embed is None or not wanted:
        return None
    if isinstance(embed, str):
        model = config.backbone.model_copy(update={"model": embed})
        return make_backend(model, config.backend, seed, world)
    from magellan.backends.local import LocalBackend
    from magellan.model.embedded import Embedded

    return LocalBackend(cast(Any, Embedded(embed, world.listed[0])), world)


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
