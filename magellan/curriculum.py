"""Goal samplers for your own training loop.

Samplers, estimators and random streams are those of a run: with the same outcomes, a `Curriculum`
draws the same goals. But all answers to a goal in one update are one outcome, and goals come in the
order of their rows: the order of answers has no meaning. Needs only numpy, except for `magellan`
and other samplers whose estimator reads goals with a model.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import warnings
from collections import Counter
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
from magellan.competence.groups import TOLERANCE, advantages_of, grouped
from magellan.config import RunConfig, checked_run, estimators_of
from magellan.config.identity import flat_keys
from magellan.config.phases import driver_of
from magellan.core.errors import InputError, JobError, not_allowed, shown
from magellan.core.parsing import checked_numbers
from magellan.core.randomness import Streams, initial_seeds
from magellan.core.registry import is_built_in
from magellan.samplers import SAMPLERS, SamplerSpec
from magellan.training.estimators import ESTIMATOR_LOST, Estimators
from magellan.worlds import Categories, Category
from magellan.worlds.texts import Texts

if TYPE_CHECKING:
    from magellan.model.embedded import Embed

Settings = Mapping[str, Mapping[str, Any]]
"""Constants to override, by section, as under `overrides` of an experiment."""
Gate = Callable[[Outcomes], np.ndarray]
"""Groups of answers, one row a goal, to whether they are trained on, bool (rows,)."""
GATES: Mapping[str, Gate] = {
    "all": lambda groups: np.ones(len(groups), bool),
    "spread": lambda groups: groups.spread > 0,
    "mixed": lambda groups: (groups.success > 0) & (groups.success < 1),
}
"""`spread`: rewards differ, as in the dynamic sampling of DAPO (Yu et al. 2025, arXiv 2503.14476);
`mixed`: some answers succeed and some do not."""
SINGLE_GROUP = "all"
"""Name of the group of all goals if none are given."""
SILENT, LOSS = 8, 4
"""A goal is silent when it was drawn before so many updates without a reward; a loss counts 4."""
SILENT_SHARE = 0.01
"""Most of what uniform draws would give silent goals, for samplers that do not explore."""
ENOUGH = 32
"""Answers after which a threshold that none has reached is worth a warning."""


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
        solved: smallest reward that is a success.
        keys: a name of each goal, by which `update` and `lost` may refer to it.

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
        solved: float = 1.0,
        keys: Sequence[str] | None = None,
    ) -> None:
        self._config = _run_config(sampler, seed, settings or {})
        named = {"groups": groups, "order": order, "keys": keys, "impossible": impossible}
        for argument, listed in named.items():
            if listed is not None or argument == "impossible":
                _check_names(argument, listed)
        for name, value, may_be in (("embed", embed, "a name or "), ("play", play, "")):
            if not (value is None or callable(value) or (may_be and isinstance(value, str))):
                raise not_allowed(name, value, f"{may_be}a function")
        number = isinstance(solved, int | float) and not isinstance(solved, bool)
        if not number or not math.isfinite(solved):
            raise not_allowed("solved", solved, "a finite number")
        self.solved = float(solved)
        names = _ordered(set([SINGLE_GROUP] if groups is None else groups), order, sampler)
        if set(impossible) - set(names):
            raise InputError(
                f"impossible: {shown(impossible)} is not allowed; allowed: a list of groups, of "
                f"{', '.join(names)}"
            )
        self._categories = Categories(Category(name, name not in impossible) for name in names)
        self._goals: list[str] = []
        self._numbers: list[int] = []
        self._keys: list[str | None] = []
        self._added: list[list[Any]] = []
        self._play, self._episodes = play, 0
        self._extend(goals, groups, keys)
        self._first = {
            "goals": _digest(self._goals),
            "groups": _digest([self._numbers, names, sorted(impossible)]),
        }
        self._n_first, self._embed = len(self._goals), embed
        self._start()
        self._check_arguments(groups is not None)

    def _start(self) -> None:
        """Make model, estimators and sampler for the first goals."""
        for values in (self._goals, self._numbers, self._keys):
            del values[self._n_first :]
        self._added.clear()
        self._heard = Heard(self._n_first)
        sampler, seed = self._config.sampler, self._config.seed
        streams, (model_seed, _, head_seed) = Streams(seed), initial_seeds(seed)
        self._rng, self._space = streams("sampler"), self._world().goals()
        self._backend = backend_for(self._config, self._embed, self._world(), model_seed)
        parts = EstimatorParts(self._space, streams, head_seed, self._backend)
        self._estimators = Estimators(self._config, parts)
        self.sampler = self._estimators.make_sampler(sampler, self._space, self._rng)

    def __len__(self) -> int:
        return len(self._goals)

    @property
    def goals(self) -> list[str]:
        """The goals, in order."""
        return self._goals

    def sample(self, n: int, replace: bool = True) -> np.ndarray:
        """Draw `n` goals; return their rows, int64 (n,).

        replace: whether a goal may be drawn twice. If not, and fewer than `n` have a probability
            above 0, the others are drawn uniformly.
        """
        if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 0:
            raise not_allowed("n", n, "a whole number >= 0")
        if not replace and n > len(self):
            raise not_allowed("n", n, f"0 to {len(self)}, the goals, without replacement")
        if self._play is not None:
            self._estimators.play_wanted(self._episodes, lambda goals, _: self._played(goals))
        if replace and not self._heard.silent().any():
            drawn = self.sampler.sample(n)
        else:
            drawn = self._draw(int(n), replace)
        self._heard.draw(drawn)
        return drawn

    def _draw(self, n: int, replace: bool) -> np.ndarray:
        chances, self.sampler.explored = self.probabilities(), None
        possible = np.flatnonzero(chances)
        others = np.flatnonzero(chances == 0.0)
        k = n if replace else min(n, len(possible))
        drawn = self._rng.choice(possible, k, replace, chances[possible])
        rest = self._rng.choice(others, n - k, replace=False) if n > k else others[:0]
        return np.concatenate([drawn, rest])

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
        """Learn from answers, in any order; call once per policy update, even without answers.

        All answers to a goal are one outcome: k successes of n, and a mean reward.

        Args:
            indices: goal of each answer (m,): its row, or its text or key.
            success: reward of each, 0 or 1 or any number; at least `solved` is a success. None or
                not finite: lost, see `lost`.
            advantage: |return - value| of each, for samplers that need it, such as plr; by default
                `group_advantages`, where goals have several answers.

        Raises:
            InputError: shapes differ, or an index or a reward is invalid.
            NotFiniteError: the head's loss or a weight is NaN or infinite.
        """
        goals, rewards = self._rows(indices), _numbers("success", success)
        advantages = None if advantage is None else _numbers("advantage", advantage)
        _check_length(goals, success=rewards, advantage=advantages)
        came = np.isfinite(rewards)
        if advantages is None and self.sampler.wants_advantage and len({*goals}) < len(goals):
            advantages = group_advantages(goals, rewards)
        if advantages is not None:
            advantages = advantages[came]
            if not (np.isfinite(advantages) & (advantages >= 0)).all():
                raise InputError(
                    f"outcomes: advantage {shown(advantages.tolist())}; must be {came.sum()} "
                    "finite numbers >= 0"
                )
        near = max(TOLERANCE, _rounding(success))
        outcomes = self._grouped(goals[came], rewards[came], advantages, near)
        self.sampler.update(outcomes)
        self._episodes += int(came.sum())
        self._estimators.update(outcomes)
        self._estimators.check(self.sampler.step)
        self._heard.update(outcomes, goals[~came])
        self._warn_if_out_of_reach(rewards[came])

    def admitted(self, indices: Any, success: Any, gate: str | Gate = "spread") -> np.ndarray:
        """Return which answers to train on, bool (m,), lost ones never; `update` takes them all.

        Admission is apart from the choice of goals: any gate goes with any sampler.

        Args:
            indices, success: as for `update`.
            gate: a name in `GATES`, or a function of `Outcomes`, one row a goal, to bool (rows,).

        Raises:
            InputError: as for `update`, or the gate is unknown.
        """
        if not callable(gate) and gate not in GATES:
            raise not_allowed("gate", gate, f"{', '.join(GATES)}, or a function")
        goals, rewards = self._rows(indices), _numbers("success", success)
        _check_length(goals, success=rewards)
        came = np.isfinite(rewards)
        near = max(TOLERANCE, _rounding(success))
        groups = self._grouped(goals[came], rewards[came], None, near)
        passed = groups.goals[(GATES[gate] if isinstance(gate, str) else gate)(groups)]
        return came & np.isin(goals, passed)

    def _grouped(
        self, goals: np.ndarray, rewards: np.ndarray, advantage: np.ndarray | None, near: float
    ) -> Outcomes:
        return grouped(goals, rewards, advantage, self.solved, near)

    def _warn_if_out_of_reach(self, rewards: np.ndarray) -> None:
        """Warn once if enough graded rewards have come, and none was a success."""
        heard = self._heard
        if len(rewards):
            heard.least = min(heard.least, rewards.min())
            heard.largest = max(heard.largest, rewards.max())
        out_of_reach = heard.won.sum() == 0 and heard.least < heard.largest
        if out_of_reach and heard.answers.sum() >= ENOUGH and not heard.warned:
            heard.warned = True
            warnings.warn(
                f"solved: {self.solved:g} was reached by none of {heard.answers.sum()} answers; "
                f"their largest reward is {heard.largest:g}",
                stacklevel=3,
            )

    def lost(self, indices: Any) -> None:
        """Say that goals were drawn, but that no reward comes: rows, texts or keys (m,).

        They are counted, and nothing is learned. A goal whose last two draws were lost, or that was
        drawn before the last eight updates without any reward, is silent: until it reports again it
        is drawn by exploration only, or, where a sampler has none, with 1 % of a uniform chance.
        """
        self._heard.lose(self._rows(indices))

    def probabilities(self) -> np.ndarray:
        """Return the probability of each goal at the next draw, float64 (n,), sums to one."""
        chances, silent = self.sampler.probabilities(), self._heard.silent()
        if not silent.any() or silent.all():
            return chances
        most = np.maximum(self.sampler.exploration(), SILENT_SHARE / len(self))
        limited = np.where(silent, np.minimum(chances, most), 0.0)
        others = np.where(silent, 0.0, chances)
        if others.sum() == 0.0:
            others = (~silent).astype(np.float64)
        return limited + (1.0 - limited.sum()) * (others / others.sum())

    def metrics(self, prefix: str = "") -> dict[str, float]:
        """Return numbers to log, by name: shares, from 0 to 1, unless said otherwise.

        coverage: goals that have reported; of these
        mastered: those whose last answers all succeeded,
        dead: those that never succeeded,
        informative: those whose last answers differed in reward.
        silent: goals from which no rewards come.
        effective_goals: 1 / the sum of squared probabilities, a number of goals.
        lost: answers without a reward so far, a number.
        epsilon: exploration.
        share/GROUP: probability of each group at the next draw.
        """
        chances, heard = self.probabilities(), self._heard
        tried = heard.answers > 0

        def share(which: np.ndarray) -> float:
            return float(which[tried].mean()) if tried.any() else 0.0

        values = {
            "coverage": float(tried.mean()),
            "mastered": share(heard.last == 1.0),
            "dead": share(heard.won == 0),
            "informative": share(heard.spread > 0.0),
            "silent": float(heard.silent().mean()),
            "effective_goals": float(1.0 / (chances**2).sum()),
            "lost": float(heard.n_lost),
            "epsilon": float(self.sampler.epsilon),
        }
        shares = np.bincount(self._numbers, chances, len(self._categories.names))
        values |= {
            f"share/{group}": float(each)
            for group, each in zip(self._categories.names, shares, strict=True)
        }
        return {prefix + name: value for name, value in values.items()}

    def competence(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the predicted success of each goal, now and delayed: two float64 (n,).

        Raises:
            InputError: this sampler has no estimator.
        """
        if self.sampler.estimator is None:
            raise InputError(f"sampler: {self._config.sampler} has no estimator to predict success")
        return self.sampler.estimator.predict(self._space, np.arange(len(self)))

    def add(
        self,
        goals: Sequence[str],
        groups: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
    ) -> None:
        """Append goals; estimates of existing goals are kept.

        groups: group of each, among the initial groups.
        keys: a name of each.

        Raises:
            InputError: an estimator does not support a change of goals, or not so many of them; or
                the model does not know a word of a goal, or reads two goals alike.
        """
        for name, estimator in self._estimators.by_name.items():
            if name not in estimators_of(self._config):
                raise InputError(f"goals: cannot add any, as {ESTIMATOR_LOST.format(name)}")
            if type(estimator).set_goal_space is CompetenceEstimator.set_goal_space:
                raise InputError(
                    f"goals: cannot add any, as the estimator {name!r} has no `set_goal_space`"
                )
        before = self.state_dict()
        self._extend(goals, groups, keys)
        added = self._goals[-len(goals) :]
        names = (None if given is None else list(map(str, given)) for given in (groups, keys))
        self._added.append([added, *names])
        self._heard.extend(len(added))
        self._space = self._world().goals()
        old = self.sampler
        try:
            self._check_read()
            self._estimators.set_goal_space(self._space)
            self.sampler = self._estimators.make_sampler(
                self._config.sampler, self._space, self._rng
            )
            self.sampler.inherit_state(old)
        except Exception:
            self._start()
            self._restore(decoded(before))
            raise

    def state_dict(self) -> dict[str, Any]:
        """Return the state: values of JSON, so that `torch.load` reads it with its defaults.

        It includes added goals, and says what it was made with.
        """
        return encoded(
            {
                "made": self._made(),
                "added": self._added,
                "episodes": self._episodes,
                "heard": self._heard.state_dict(),
                "state": self.sampler.state_dict(),
                "estimators": self._estimators.state_dict(),
                "backend": {} if self._backend is None else self._backend.state_dict(),
            }
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`, with the goals added then; if it is refused, nothing changes.

        Raises:
            InputError: it was made with something else, is damaged, or goals were added here.
        """
        if self._added:
            raise InputError(
                "curriculum: a state is not allowed after `add`; allowed: in a new Curriculum of "
                "the first goals"
            )
        self._check_made(state)
        before = self.state_dict()
        try:
            self._restore(decoded(state))
            self.probabilities()
        except Exception as error:
            self._start()
            self._restore(decoded(before))
            if isinstance(error, InputError | JobError):
                raise
            kind = type(error).__name__
            raise InputError(f"curriculum: the state is damaged ({kind}: {error})") from None

    def _restore(self, state: Mapping[str, Any]) -> None:
        for added in state["added"]:
            self.add(*added)
        self._episodes = int(state["episodes"])
        self._heard.load_state_dict(state["heard"])
        if self._backend is not None:
            self._backend.load_state_dict(state["backend"])
        self.sampler.load_state_dict(state["state"])
        self._estimators.load_state_dict(state["estimators"])

    def _made(self) -> dict[str, Any]:
        """What a state depends on besides outcomes: names, constants and digests."""
        config, names = self._config, estimators_of(self._config)
        sections = {"samplers", SAMPLERS[config.sampler].section}
        sections |= {ESTIMATORS[name].section for name in names}
        values = {k: v for k, v in config.model_dump(mode="json").items() if k in sections}
        return {
            "sampler": config.sampler,
            "estimator": driver_of(config, config.sampler),
            "seed": config.seed,
            "solved": self.solved,
            **flat_keys(values),
            **self._first,
            "embed": self._fingerprint(),
        }

    def _fingerprint(self) -> list[float] | str | None:
        """A number for the vector of each of up to 16 goals; None: not used."""
        if self._backend is None or self._backend.nonstationary:
            return None if self._backend is None else "nonstationary"
        some = np.linspace(0, self._n_first - 1, min(self._n_first, 16)).astype(np.int64)
        vectors = GoalFeatures(self._backend)(self._space, some).astype(np.float64)
        return (vectors @ np.cos(np.arange(vectors.shape[1]))).tolist()

    def _check_made(self, state: Mapping[str, Any]) -> None:
        """Check that a state was made with what this curriculum is made with."""
        there = state.get("made") if isinstance(state, Mapping) else None
        if not isinstance(there, Mapping):
            raise InputError("curriculum: this is no state; allowed: one of `state_dict`")
        here = self._made()
        others = [key for key in here if not _alike(here[key], there.get(key))]
        if others:
            listed = ", ".join(
                f"{key} is {shown(here[key])} here and {shown(there.get(key))} there"
                for key in others[:3]
            )
            raise InputError(
                f"curriculum: a state of {there.get('sampler')} is not allowed: {listed}; allowed: "
                "one made with the same"
            )

    def _world(self) -> Texts:
        return Texts(self._goals, np.array(self._numbers), self._categories)

    def _rows(self, indices: Any) -> np.ndarray:
        """Rows (m,) int64 of goals given by row, text or key."""
        allowed = f"0 to {len(self) - 1}, or the texts or keys of goals"
        listed = [indices] if isinstance(indices, str) else indices
        if any(isinstance(name, str) for name in listed):
            named = Counter([*self._goals, *(key for key in self._keys if key is not None)])
            rows = {
                name: row for names in (self._goals, self._keys) for row, name in enumerate(names)
            }
            for name in listed:
                if named[name] != 1:
                    which = f"a name of {named[name]} goals" if named[name] else "not a goal"
                    raise InputError(f"indices: {shown(name)} is {which}; allowed: {allowed}")
            return np.array([rows[name] for name in listed], dtype=np.int64)
        goals = _numbers("indices", listed)
        wrong = ~((goals >= 0) & (goals < len(self)) & (goals == np.trunc(goals)))
        if wrong.any() or np.asarray(_plain(listed)).dtype == bool:
            raise not_allowed("indices", _plain(listed)[int(wrong.argmax())], allowed)
        return goals.astype(np.int64)

    def _extend(
        self, goals: Sequence[str], groups: Sequence[str] | None, keys: Sequence[str] | None
    ) -> None:
        """Validate and append goals, their groups and their keys."""
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
        if keys is not None and not (len(keys) == len(goals) == len(set(keys) - {*self._keys})):
            raise not_allowed("keys", list(keys), f"another name for each of {len(goals)} goals")
        self._keys += [None] * len(goals) if keys is None else map(str, keys)
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


class Heard:
    """What came back from each goal: arrays (n,).

    answers, won: answers and successes so far.
    last, spread: share of successes and spread of rewards of the last answers.
    silence: signs of silence since the last reward.
    drawn: whether it was drawn since the last update.
    """

    ARRAYS = ("answers", "won", "last", "spread", "silence", "drawn")

    def __init__(self, n: int) -> None:
        self.answers, self.won, self.silence = np.zeros((3, n), np.int64)
        self.last, self.spread = np.zeros((2, n))
        self.drawn = np.zeros(n, bool)
        self.n_lost, self.warned = 0, False
        self.least, self.largest = math.inf, -math.inf

    def extend(self, n: int) -> None:
        """Add `n` goals."""
        for name in self.ARRAYS:
            setattr(self, name, np.pad(getattr(self, name), (0, n)))

    def draw(self, goals: np.ndarray) -> None:
        """Note that goals were drawn."""
        self.drawn[goals] = True

    def update(self, outcomes: Outcomes, lost: np.ndarray) -> None:
        """Note the outcomes of an update, and the goal of each of its lost answers."""
        rows = outcomes.goals
        self.answers[rows] += outcomes.answers
        self.won[rows] += np.rint(outcomes.success * outcomes.answers).astype(np.int64)
        self.last[rows], self.spread[rows] = outcomes.success, outcomes.spread
        self.drawn[rows] = False
        self.lose(lost[~np.isin(lost, rows)])
        self.n_lost += int(np.isin(lost, rows).sum())
        self.silence += self.drawn
        self.silence[rows], self.drawn[:] = 0, False

    def lose(self, goals: np.ndarray) -> None:
        """Note draws whose rewards will not come."""
        self.n_lost += len(goals)
        self.silence[np.unique(goals)] += LOSS
        self.drawn[goals] = False

    def silent(self) -> np.ndarray:
        """Whether no rewards come from a goal, bool (n,)."""
        return self.silence >= SILENT

    def state_dict(self) -> dict[str, Any]:
        """Arrays and the number of lost answers."""
        return {"n_lost": self.n_lost} | {name: getattr(self, name) for name in self.ARRAYS}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`."""
        self.n_lost = int(state["n_lost"])
        for name in self.ARRAYS:
            own = getattr(self, name)
            saved = checked_numbers(np.asarray(state[name]) + 0.0, name, own.shape)
            setattr(self, name, saved.astype(own.dtype))


def encoded(value: Any) -> Any:
    """A tree of arrays and plain values as values of JSON; arrays keep every bit."""
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array": data, "dtype": value.dtype.str, "shape": list(value.shape)}
    if isinstance(value, Mapping):
        return {key: encoded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(inner) for inner in value]
    return value.item() if isinstance(value, np.generic) else value


def decoded(value: Any) -> Any:
    """The tree that was `encoded`."""
    if isinstance(value, Mapping):
        if value.keys() == {"array", "dtype", "shape"}:
            array = np.frombuffer(base64.b64decode(value["array"]), np.dtype(value["dtype"]))
            return array.reshape(value["shape"]).copy()
        return {key: decoded(inner) for key, inner in value.items()}
    return [decoded(inner) for inner in value] if isinstance(value, list) else value


def _alike(here: Any, there: Any) -> bool:
    """Whether two parts of what made a state are equal; vectors, as far as machines agree."""
    if here == there or not (isinstance(here, list) and isinstance(there, list)):
        return bool(here == there)
    return len(here) == len(there) and np.allclose(here, there, 0, 1e-3 * np.abs(here).max())


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


def _plain(values: Any) -> Any:
    """Numbers without autograd, device or half precision; None as NaN; lists as lists."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        return (values.double() if values.is_floating_point() else values).numpy()
    if isinstance(values, list | tuple):
        return [_plain(value) for value in values]
    return math.nan if values is None else values


def _rounding(values: Any) -> float:
    """Relative error of numbers in their format, if it is coarser than float32; otherwise 0."""
    listed = values if isinstance(values, list | tuple) else [values]
    formats = {str(getattr(value, "dtype", "")).removeprefix("torch.") for value in listed}
    return max({"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(name, 0.0) for name in [*formats, ""])


def _numbers(name: str, values: Any) -> np.ndarray:
    """An argument as an array of float64 (m,), NaN for None."""
    try:
        numbers = np.asarray(_plain(values)).reshape(-1)
    except ValueError:  # ragged
        raise not_allowed(name, values, "one number for each episode") from None
    if numbers.dtype == object:
        numbers = np.array([math.nan if value is None else value for value in numbers])
    if numbers.dtype.kind not in "biuf" and len(numbers):
        raise not_allowed(name, numbers.tolist()[0], "numbers")
    return numbers.astype(np.float64)


def _check_length(goals: np.ndarray, **columns: np.ndarray | None) -> None:
    for name, values in columns.items():
        if values is not None and len(values) != len(goals):
            raise InputError(
                f"outcomes: shapes of goals, {name} {goals.shape, values.shape}; must be equal"
            )


def group_advantages(indices: Any, rewards: Any) -> np.ndarray:
    """|reward - mean reward of the same goal| of each episode (m,), as GRPO's, not normalised.

    Exactly 0 where rewards of a goal are equal; NaN for lost ones, which no mean includes.

    Args:
        indices: goals (m,), several episodes each.
        rewards: of these episodes, (m,).

    Raises:
        InputError: these are no numbers, or not as many.
    """
    given, values = _numbers("indices", indices), _numbers("rewards", rewards)
    if len(given) != len(values):
        raise not_allowed("rewards", len(values), f"one for each of {len(given)} indices")
    return advantages_of(given, values)


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
    readers = [spec for spec in specs if spec.needs_features or not is_built_in(spec)]
    if embed is None and any(spec.needs_features for spec in readers):
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
    if SAMPLERS[config.sampler].needs_features:
        GoalFeatures(backend)(world.goals(), np.zeros(1, np.int64))  # may be refused
    return backend
