"""The curriculum: a run's sampler, estimators and random streams, in a loop of your own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from magellan.competence import ESTIMATORS, CompetenceEstimator, EstimatorParts
from magellan.competence.arms import EachCategory
from magellan.competence.groups import grouped
from magellan.competence.prompt_tokens import GoalFeatures
from magellan.config import estimators_of
from magellan.config.identity import flat_keys
from magellan.config.phases import driver_of
from magellan.core.errors import InputError, JobError, NotFiniteError, not_allowed, shown
from magellan.core.parsing import is_whole, plain
from magellan.core.randomness import Streams, initial_seeds
from magellan.curriculum.answers import (
    Gate,
    admitted_by,
    check_length,
    checked_gate,
    checked_threshold,
    group_advantages,
    in_format_of,
    numbers,
)
from magellan.curriculum.build import (
    Settings,
    backend_for,
    ordered_groups,
    run_config,
)
from magellan.curriculum.goals import SINGLE_GROUP, Goals, check_names
from magellan.curriculum.heard import Heard
from magellan.curriculum.state import check_same, decoded, digest, encoded
from magellan.samplers import SAMPLERS
from magellan.training.estimators import ESTIMATOR_LOST, Estimators
from magellan.worlds import Categories, Category

if TYPE_CHECKING:
    from magellan.model.embedded import Embed

NUMBERS_STAY = ("backbone.model", "backbone.passes", "backbone.lora_mode")
"""Keys of the model that a state may differ in: how it is computed, and its name, as it is read."""


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
        impossible: names of groups with unreachable goals, which samplers over groups only explore.
        settings: constants to override, such as
            `{"samplers": {"epsilon_decay": 50}, "competence": {"refresh": 8}}`.
        play: plays goals (n,) once for evaluation and returns success (n,); for samplers whose
            estimator requests it, such as ek_eval.
        order: all groups from easy to hard; adarft, e2h and scripted need it, for others it is by
            name.
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
        self._config = run_config(sampler, seed, settings or {})
        named = {"groups": groups, "order": order, "impossible": impossible}
        for argument, listed in named.items():
            if listed is not None or argument == "impossible":
                check_names(argument, listed, ordered=argument != "impossible")
        for name, value, may_be in (("embed", embed, "a name or "), ("play", play, "")):
            if not (value is None or callable(value) or (may_be and isinstance(value, str))):
                raise not_allowed(name, value, f"{may_be}a function")
        self.solved = checked_threshold(solved)
        names = ordered_groups(set([SINGLE_GROUP] if groups is None else groups), order, sampler)
        if set(impossible) - set(names):
            raise not_allowed("impossible", impossible, f"a list of groups, of {', '.join(names)}")
        categories = Categories(Category(name, name not in impossible) for name in names)
        self._goals = Goals(categories)
        self._added: list[list[Any]] = []
        self._play, self._episodes = play, 0
        self._goals.extend(goals, groups, keys)
        self._first = {
            "goals": digest(self._goals.texts),
            "groups": digest([self._goals.numbers, names, sorted(impossible)]),
        }
        self._n_first, self._embed = len(self._goals), embed
        self._given: dict[str, Any] = {
            "groups": None if groups is None else list(groups),
            "impossible": list(impossible),
            "order": None if order is None else list(order),
            "keys": None if keys is None else list(keys),
            "settings": copy.deepcopy(settings),
            "sampler": sampler,
            "embed": embed,
            "seed": seed,
            "play": play,
        }
        self._start()
        self._check_arguments(groups is not None)

    def _start(self) -> None:
        """Make model, estimators and sampler for the first goals."""
        self._goals.truncate(self._n_first)
        self._added.clear()
        self._heard = Heard(np.array(self._goals.numbers), len(self._goals.categories))
        sampler, seed = self._config.sampler, self._config.seed
        streams, (model_seed, _, head_seed) = Streams(seed), initial_seeds(seed)
        self._rng, self._space = streams("sampler"), self._goals.world().goals()
        self._backend = backend_for(self._config, self._embed, self._goals.world(), model_seed)
        parts = EstimatorParts(self._space, streams, head_seed, self._backend)
        self._estimators = Estimators(self._config, parts)
        self.sampler = self._estimators.start_sampler(sampler, self._space, self._rng)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle, as for a process of Ray, as the arguments and the state."""
        first = {"goals": self._goals.texts[: self._n_first], "solved": self.solved}
        return _again, (type(self), self._given | first, self.state_dict())

    def __len__(self) -> int:
        return len(self._goals)

    @property
    def goals(self) -> list[str]:
        """The goals, in order."""
        return list(self._goals.texts)

    def sample(self, n: int, replace: bool = True) -> np.ndarray:
        """Draw `n` goals; return their rows, int64 (n,).

        replace: whether a goal may be drawn twice. If not, and fewer than `n` have a probability
            above 0, the others are drawn uniformly.
        """
        if not is_whole(n, 0):
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
        possible, others = np.flatnonzero(chances), np.flatnonzero(chances == 0.0)
        k = n if replace else min(n, len(possible))
        drawn = self._rng.choice(possible, k, replace, chances[possible])
        rest = self._rng.choice(others, n - k, replace=False) if n > k else others[:0]
        return np.concatenate([drawn, rest])

    def _played(self, goals: np.ndarray) -> np.ndarray:
        assert self._play is not None
        success = np.asarray(plain(self._play(goals)))
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
                `group_advantages`, where each goal has several answers.

        Raises:
            InputError: shapes differ, or an index or a reward is invalid.
            NotFiniteError: the head's loss or a weight is NaN or infinite.
        """
        goals, rewards, came = self._answers(indices, success)
        advantages = None if advantage is None else numbers("advantage", advantage)
        check_length(goals, advantage=advantages)
        if advantages is None and self.sampler.wants_advantage:
            answers = np.bincount(goals, minlength=len(self))  # with those that were lost
            if (answers[goals[came]] > 1).all():
                advantages = group_advantages(goals, rewards)
        if advantages is not None:
            advantages = advantages[came]
            if not (np.isfinite(advantages) & (advantages >= 0)).all():
                raise InputError(
                    f"outcomes: advantage {shown(advantages.tolist())}; must be {came.sum()} "
                    "finite numbers >= 0"
                )
        solved = in_format_of(success, self.solved)
        outcomes = grouped(goals[came], rewards[came], solved, advantages)
        self.sampler.update(outcomes)
        self._episodes += int(came.sum())
        self._estimators.update(outcomes)
        self._estimators.check(self.sampler.step)
        self._heard.update(outcomes, goals[~came])
        self._heard.warn_if_out_of_reach(rewards[came], self.solved)

    def admitted(
        self, indices: Any, success: Any, gate: str | Gate = "spread", draws: Any = None
    ) -> np.ndarray:
        """Return which answers to train on, bool (m,), lost ones never; `update` takes them all.

        Admission is apart from the choice of goals: any gate goes with any sampler.

        Args:
            indices: as for `update`.
            success: as for `update`.
            gate: a name in `GATES`, or a function of `Outcomes`, one row a group, to bool (rows,).
            draws: number or name of the draw of each answer (m,), where a goal drawn twice has two
                groups of answers; by default all answers to a goal are one group.

        Raises:
            InputError: as for `update`, the gate is unknown, or its answer no bool for each group.
        """
        passes = checked_gate(gate)
        goals, rewards, came = self._answers(indices, success)
        named = np.zeros(len(goals)) if draws is None else np.asarray(plain(draws)).reshape(-1)
        names = np.array(named.tolist())  # of objects, such as texts, by their own kind
        check_length(goals, draws=names)
        if names.dtype.kind == "O" or (names.dtype.kind == "f" and np.isnan(names).any()):
            raise not_allowed("draws", draws, "a number or a name for each answer")
        apart = np.unique(names, return_inverse=True)[1]
        pairs, group = np.unique(np.stack([goals, apart]), axis=1, return_inverse=True)
        group = group.reshape(-1)  # NumPy 2.0.0 has it as a row
        found = grouped(group[came], rewards[came], in_format_of(success, self.solved))
        passed = admitted_by(passes, replace(found, goals=pairs[0, found.goals].astype(np.int64)))
        return came & np.isin(group, found.goals[passed])

    def _answers(self, indices: Any, success: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Goals and rewards of answers, and whether a reward came: (m,) each."""
        goals, rewards = self._goals.rows(indices), numbers("success", success)
        check_length(goals, success=rewards)
        return goals, rewards, np.isfinite(rewards)

    def lost(self, indices: Any) -> None:
        """Say that goals were drawn, but that no reward comes: rows, texts or keys (m,).

        They are counted, and nothing is learned. A goal whose last two draws were lost, or that was
        drawn before the last eight updates without any reward, is silent: until it reports again it
        is drawn by exploration only, or, where a sampler has none, with 1 % of a uniform chance. So
        is a whole group whose last draws, before two updates or eight, gave no reward of any goal.
        """
        self._heard.lose(self._goals.rows(indices))

    def probabilities(self) -> np.ndarray:
        """Return the probability of each goal at the next draw, float64 (n,), sums to one."""
        return self._heard.limited(self.sampler.probabilities(), self.sampler.exploration())

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
        chances, names = self.probabilities(), self._goals.categories.names
        shares = np.bincount(self._goals.numbers, chances, len(names))
        values = self._heard.metrics() | {
            "effective_goals": float(1.0 / (chances**2).sum()),
            "epsilon": float(self.sampler.epsilon),
            **{f"share/{name}": float(share) for name, share in zip(names, shares, strict=True)},
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
        self._goals.extend(goals, groups, keys)
        added = self._goals.texts[-len(goals) :]
        names = (None if given is None else list(map(str, given)) for given in (groups, keys))
        self._added.append([added, *names])
        self._heard.extend(np.array(self._goals.numbers[-len(added) :]))
        self._space = self._goals.world().goals()
        old = self.sampler
        try:
            self._check_read()
            self._estimators.set_goal_space(self._space)
            self.sampler = self._estimators.start_sampler(
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
        check_same(self._made(), state)
        before = self.state_dict()
        try:
            self._restore(decoded(state))
            self.probabilities()
        except Exception as error:
            self._start()
            self._restore(decoded(before))
            if isinstance(error, InputError | JobError) and not isinstance(error, NotFiniteError):
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
        if isinstance(self._embed, str) and self._backend is not None:
            sections.add("backbone")
        values = {k: v for k, v in config.model_dump(mode="json").items() if k in sections}
        values = {key: value for key, value in flat_keys(values).items() if key not in NUMBERS_STAY}
        return {
            "sampler": config.sampler,
            "estimator": driver_of(config, config.sampler),
            "seed": config.seed,
            "solved": self.solved,
            **values,
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

    def _check_read(self) -> None:
        """Check that a named model reads all goals, each in its own way, as at the beginning."""
        backbone = getattr(self._backend, "backbone", None)
        if isinstance(self._embed, str) and backbone is not None:
            from magellan.model import tokenizers

            problem = tokenizers.problem(backbone.tokenizer, self._goals.world())
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


def _again(
    kind: type[Curriculum], given: Mapping[str, Any], state: Mapping[str, Any]
) -> Curriculum:
    """Return the curriculum of these arguments, in this state."""
    curriculum = kind.__new__(kind)
    Curriculum.__init__(curriculum, **given)
    curriculum.load_state_dict(state)
    return curriculum
