"""Goal samplers for your own training loop.

Samplers, estimators and random streams are those of a run: with the same outcomes, a `Curriculum`
draws the same goals. Needs only numpy, except for `magellan` and other samplers whose estimator
reads goals with a model.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from magellan.competence.features import GoalFeatures
from magellan.config import RunConfig, checked_run, estimators_of
from magellan.core.errors import InputError, not_allowed, shown
from magellan.core.randomness import Streams, initial_seeds
from magellan.core.registry import is_built_in
from magellan.samplers import SAMPLERS, SamplerSpec
from magellan.training.estimators import LOST, Estimators
from magellan.worlds import Categories, Category
from magellan.worlds.texts import Texts

if TYPE_CHECKING:
    from magellan.model.embedded import Embed

Settings = Mapping[str, Mapping[str, Any]]
"""Constants to override, by section, as under `overrides` of an experiment."""
SINGLE_GROUP = "all"
"""Name of the group of all goals if none are given."""


class Curriculum:
    """Draws goals, identified by their index in a list, and learns from their outcomes.

    Args:
        goals: prompts, or other texts that describe each goal; `add` extends them.
        sampler: any registered one, such as random, online, ek_online, learnability, magellan.
        embed: language model, for samplers that read goals. The name or folder of a Hugging Face
            model: MAGELLAN trains LoRA adapters on it with the head (only the head with
            `settings={"competence": {"adapter": "frozen"}}`). Or a function from n texts to an
            array (n, width): only the head is trained.
        seed: of all randomness.
        groups: group of each goal, for samplers that choose among groups.
        impossible: names of groups with unreachable goals, which are only explored.
        settings: constants to override, such as
            `{"samplers": {"epsilon_decay": 50}, "competence": {"refresh": 8}}`.
        play: plays goals (n,) once for evaluation and returns success (n,); for samplers whose
            estimator requests it, such as ek_eval.
        order: all groups from easy to hard, for adarft, e2h and scripted; by default they are in
            the order of their names.

    Raises:
        InputError: a value that is not allowed, or an argument that this sampler needs is missing.
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
        order: Sequence[str] | None = None,
    ) -> None:
        self._config = _run_config(sampler, seed, settings or {})
        for argument, listed in (("groups", groups), ("order", order), ("impossible", impossible)):
            if listed is not None or argument == "impossible":
                _check_names(argument, listed)
        for name, value, may_be in (("embed", embed, "a name or "), ("play", play, "")):
            if not (value is None or callable(value) or (may_be and isinstance(value, str))):
                raise not_allowed(name, value, f"{may_be}a function")
        names = _ordered(set([SINGLE_GROUP] if groups is None else groups), order, sampler)
        if set(impossible) - set(names):
            raise InputError(
                f"impossible: {shown(impossible)} is not allowed; allowed: a list of groups, of "
                f"{', '.join(names)}"
            )
        self._categories = Categories(Category(name, name not in impossible) for name in names)
        self._goals: list[str] = []
        self._numbers: list[int] = []
        self._added: list[list[Any]] = []
        self._play, self._episodes = play, 0
        self._extend(goals, groups)
        kinds = [names, sorted(impossible)] if impossible else [names]
        first = json.dumps([self._goals, self._numbers, *kinds])
        self._first = hashlib.sha256(first.encode()).hexdigest()
        self._n_first, self._embed = len(self._goals), embed
        self._start()
        self._check_arguments(groups is not None)

    def _start(self) -> None:
        """Make model, estimators and sampler for the first goals."""
        del self._goals[self._n_first :], self._numbers[self._n_first :], self._added[:]
        sampler, seed = self._config.sampler, self._config.seed
        streams, (model_seed, _, head_seed) = Streams(seed), initial_seeds(seed)
        self._rng, self._space = streams("sampler"), self._world().goals()
        self._backend = backend_for(self._config, self._embed, self._world(), model_seed)
        parts = EstimatorParts(self._space, streams, head_seed, self._backend)
        self._estimators = Estimators(self._config, parts)
        self.sampler = self._estimators.drive(sampler, self._space, self._rng)

    def __len__(self) -> int:
        return len(self._goals)

    def sample(self, n: int) -> np.ndarray:
        """Draw `n` goals with replacement; return their indices, int64 (n,)."""
        if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 0:
            raise not_allowed("n", n, "a whole number >= 0")
        if self._play is not None:
            self._estimators.play_wanted(self._episodes, lambda goals, _: self._played(goals))
        return self.sampler.sample(n)

    def _played(self, goals: np.ndarray) -> np.ndarray:
        assert self._play is not None
        success = np.asarray(self._play(goals))
        if success.shape != goals.shape or not np.isin(success, (0, 1)).all():
            raise InputError(
                f"play: success {shown(success.tolist())} is not allowed; allowed: 0 or 1 for each "
                f"of {len(goals)} goals"
            )
        return success

    def update(self, indices: Any, success: Any, advantage: Any = None) -> None:
        """Learn from finished episodes; call once per policy update, even without episodes.

        Args:
            indices: goals (m,), oldest first, one entry per episode.
            success: 0 or 1 for each.
            advantage: |return - value| of each, for samplers that need it, such as plr.

        Raises:
            InputError: shapes differ, or an index or a success is invalid.
            NotFiniteError: the head's loss or a weight is NaN or infinite.
        """
        goals = _numbers("indices", indices)
        wrong = (goals < 0) | (goals >= len(self)) | (goals != np.trunc(goals))
        invalid = goals[wrong | (goals.dtype == bool)]
        if len(invalid):
            raise InputError(
                f"indices: {shown(invalid[0].item())} is not allowed; allowed: 0 to {len(self) - 1}"
            )
        if advantage is not None:
            advantage = _numbers("advantage", advantage)
        outcomes = Outcomes(goals, _numbers("success", success), advantage=advantage)
        self.sampler.update(outcomes)
        self._episodes += len(outcomes)
        self._estimators.update(outcomes)
        self._estimators.check(self.sampler.step)

    def probabilities(self) -> np.ndarray:
        """Return the probability of each goal at the next draw, float64 (n,), sums to one."""
        return self.sampler.probabilities()

    def competence(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the predicted success of each goal, now and delayed: two float64 (n,).

        Raises:
            InputError: this sampler has no estimator.
        """
        if self.sampler.estimator is None:
            raise InputError(f"sampler: {self._config.sampler} has no estimator to predict success")
        return self.sampler.estimator.predict(self._space, np.arange(len(self)))

    def add(self, goals: Sequence[str], groups: Sequence[str] | None = None) -> None:
        """Append goals; estimates of existing goals are kept.

        groups: group of each, among the initial groups.

        Raises:
            InputError: an estimator does not support a change of goals, or not so many of them; or
                the model does not know a word of a goal, or reads two goals alike.
        """
        for name, estimator in self._estimators.by_name.items():
            if name not in estimators_of(self._config):
                raise InputError(f"goals: cannot add any, as {LOST.format(name)}")
            if type(estimator).set_goal_space is CompetenceEstimator.set_goal_space:
                raise InputError(
                    f"goals: cannot add any, as the estimator {name!r} has no `set_goal_space`"
                )
        before = self.state_dict()
        self._extend(goals, groups)
        added = self._goals[-len(goals) :]
        self._added.append([added, None if groups is None else list(map(str, groups))])
        self._space = self._world().goals()
        old = self.sampler
        try:
            self._check_read()
            self._estimators.set_goal_space(self._space)
            self.sampler = self._estimators.drive(self._config.sampler, self._space, self._rng)
            self.sampler.carry_on(old)
        except Exception:
            self._start()
            self.load_state_dict(before)
            raise

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state: numpy arrays and JSON values; includes added goals."""
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
        """Restore a `state_dict`, with the goals added then.

        Raises:
            InputError: it has another sampler or other goals, or goals were added here already.
        """
        sampler = self._config.sampler
        if self._added:
            raise InputError(
                "curriculum: a state is not allowed after `add`; allowed: in a new Curriculum of "
                "the first goals"
            )
        if (state["sampler"], state["first"]) != (sampler, self._first):
            raise InputError(
                f"curriculum: a state of {state['sampler']} is not allowed; allowed: one of "
                f"{sampler} that began with the same goals and groups"
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
        """Validate and append goals and their groups."""
        strings = hasattr(goals, "__len__") and all(isinstance(goal, str) for goal in goals)
        if isinstance(goals, str) or not strings or not len(goals):
            raise InputError("goals: empty, or not all strings; allowed: a list of strings")
        names = self._categories.names
        group_names = [SINGLE_GROUP] * len(goals) if groups is None else list(groups)
        unknown = [name for name in group_names if name not in names]
        if len(group_names) != len(goals) or unknown:
            raise InputError(
                f"groups: {shown(unknown or len(group_names))} is not allowed; allowed: one for "
                f"each of {len(goals)} goals, of {', '.join(names)}"
            )
        self._goals += map(str, goals)
        self._numbers += [names.index(name) for name in group_names]

    def _check_read(self) -> None:
        """Check that a named model reads all goals, each in its own way, as at the beginning."""
        backbone = getattr(self._backend, "backbone", None)
        if isinstance(self._embed, str) and backbone is not None:
            from magellan.model import tokenizers

            problem = tokenizers.problem(backbone.tokenizer, self._world())
            if problem is not None:
                raise InputError(f"goals: not allowed, as {self._embed!r} {problem}")

    def _check_arguments(self, grouped: bool) -> None:
        """Check that the arguments that the sampler needs were given."""
        sampler = self._config.sampler
        if isinstance(self.sampler.arms, EachCategory) and not grouped:
            raise InputError(f"groups: none given; the sampler {sampler} chooses among groups")
        for name, estimator in self._estimators.by_name.items():
            base = CompetenceEstimator.goals_to_evaluate
            plays = type(estimator).goals_to_evaluate is not base
            if plays and self._play is None:
                raise InputError(f"play: none given; the estimator {name} of {sampler} needs it")


def _ordered(groups: set[str], order: Sequence[str] | None, sampler: str) -> list[str]:
    """The groups in the given order, or by name."""
    names = sorted(groups)
    if order is None and SAMPLERS[sampler].ordered and len(names) > 1:
        raise InputError(
            f"order: none given; the sampler {sampler} needs one; allowed: all groups, easy to hard"
        )
    if order is not None and sorted(order) != names:
        raise InputError(
            f"order: {shown(list(order))} is not allowed; allowed: each of {', '.join(names)} once"
        )
    return names if order is None else list(order)


def _check_names(argument: str, names: Any) -> None:
    listed = isinstance(names, Iterable) and not isinstance(names, str)
    if not listed or not all(isinstance(name, str) for name in names):
        raise not_allowed(argument, names, "a list of names")


def _numbers(name: str, values: Any) -> np.ndarray:
    """An argument as an array of numbers or booleans (m,)."""
    try:
        numbers = np.asarray(values).reshape(-1)
    except ValueError:  # ragged
        raise not_allowed(name, values, "one number for each episode") from None
    if numbers.dtype.kind not in "biuf" and len(numbers):
        raise not_allowed(name, numbers.tolist()[0], "numbers")
    return numbers


def group_advantages(indices: Any, rewards: Any) -> np.ndarray:
    """|reward - mean reward of the same goal| of each episode (m,), as GRPO's, not normalised.

    Args:
        indices: goals (m,), several episodes each.
        rewards: of these episodes, (m,).

    Raises:
        InputError: these are no numbers, or not as many.
    """
    given, values = _numbers("indices", indices), _numbers("rewards", rewards).astype(float)
    if len(given) != len(values):
        raise not_allowed("rewards", len(values), f"one for each of {len(given)} indices")
    _, goals = np.unique(given, return_inverse=True)
    return np.abs(values - (np.bincount(goals, values) / np.bincount(goals))[goals])


def _run_config(sampler: str, seed: int, settings: Settings) -> RunConfig:
    """Configuration of a run with this sampler; only sections that affect goals are allowed."""
    if not isinstance(settings, Mapping):
        raise not_allowed("settings", settings, "sections of constants, by name")
    spec = SAMPLERS.find(sampler)
    allowed = {"samplers", "backbone", "backend", spec.section}
    for name, section in settings.items():
        if not isinstance(section, Mapping):
            raise not_allowed(f"settings: {name}", section, "a section of constants")
    if spec.estimator is not None:
        driver = settings.get("samplers", {}).get("estimator") or spec.estimator
        allowed.add(ESTIMATORS.find(driver, "samplers.estimator").section)
    for name in settings.keys() - allowed:
        raise not_allowed("settings", name, ", ".join(sorted(allowed)))
    return checked_run({"sampler": sampler, "seed": seed, **settings})


def backend_for(
    config: RunConfig, embed: str | Embed | None, world: Texts, seed: int
) -> Backend | None:
    """Return the model that reads goals; None if sampler and estimators do not, or none is given.

    Raises:
        InputError: a sampler that reads goals, without `embed`.
    """
    specs: list[SamplerSpec | EstimatorSpec] = [SAMPLERS[config.sampler]]
    specs += [ESTIMATORS[name] for name in estimators_of(config)]
    readers = [spec for spec in specs if spec.reads or not is_built_in(spec)]
    if embed is None and any(spec.reads for spec in readers):
        raise InputError(
            f"embed: none given; the sampler {config.sampler} reads goals; allowed: the name of a "
            "language model, or a function from texts to vectors"
        )
    if embed is None or not readers:
        return None
    if isinstance(embed, str):
        model = config.backbone.model_copy(update={"model": embed})
        return make_backend(model, config.backend, seed, world)
    from magellan.backends.local import LocalBackend
    from magellan.model.embedded import Embedded

    backend = LocalBackend(cast(Any, Embedded(embed, world.listed[0])), world)
    if SAMPLERS[config.sampler].reads:
        GoalFeatures(backend)(world.goals(), np.zeros(1, np.int64))  # may be refused
    return backend
