"""Collection: step vectorised environments, draw goals, add transitions to the replay."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from magellan.agent.replay import NStepWindow, Replay, Step, check_actions
from magellan.backends import Backend
from magellan.competence.base import NEITHER, Outcomes
from magellan.config.schema import RewardConfig
from magellan.core.codec import PackedState
from magellan.core.parsing import checked_numbers
from magellan.core.randomness import choose
from magellan.model.chat import WORLD, Chat
from magellan.model.settings import AgentConfig
from magellan.samplers import GoalSampler
from magellan.worlds import NOTHING, Environment, GoalSet

VERDICT, CLEAR = (re.compile(rf"\s*{words}\b", re.IGNORECASE) for words in ("yes", "(yes|no)"))
LARGEST = 1e9  # bound on state values in a checkpoint


def uniform(states: list[PackedState]) -> np.ndarray:
    """Return the uniform policy over each state's candidates, float64 (batch, candidates)."""
    candidates = np.array([state.segments[-1] for state in states])[:, None]
    return (np.arange(candidates.max()) < candidates) / candidates


JUDGE = """You see the last observation of an episode in a text world, after its goal. Was the \
goal reached? Answer yes or no, nothing else."""
SEEN = (
    {"role": "user", "content": "Goal: Lift cup\nYou see: lamp, box\nYou hold: cup"},
    {"role": "assistant", "content": "yes"},
    {"role": "user", "content": "Goal: Lift lamp\nYou see: lamp, box\nYou hold: cup"},
    {"role": "assistant", "content": "no"},
)


def seen(text: str) -> str:
    """Answer as a person would: what was to be grown is stood on, grown; anything else is held."""
    goal, *lines = [line for line in text.splitlines() if not line.startswith("Action:")]
    *_, verb, thing = goal.split()
    grown = verb == "Grow"
    things = lines[-1 - grown].partition(": ")[2].split(", ")
    return "yes" if thing in (things if grown else " ".join(things).split()) else "no"


class Evaluator:
    """Rewards training episodes: the world, or a chat model, then errors at given rates.

    settings: who judges, and the rates.
    rngs: the stream `evaluator`, of which errors alone draw.
    transcript: file for what a chat model is asked; None: kept in memory.
    """

    def __init__(
        self,
        settings: RewardConfig,
        rngs: Mapping[str, np.random.Generator],
        transcript: Path | None = None,
    ) -> None:
        self._settings = settings
        errs = settings.false_positive or settings.false_negative
        self._rng = rngs["evaluator"] if errs else None
        asked = settings.model != WORLD
        self.chat = Chat(settings, "rewards", seen, transcript) if asked else None
        self._failed = 0

    def judged(
        self, rewards: np.ndarray, ended: np.ndarray, texts: Callable[[], list[str]]
    ) -> np.ndarray:
        """Rewards of steps (n,): the world's where episodes go on, judged where they `ended`.

        rewards: the world's, 0 or 1.
        ended: bool (n,).
        texts: gives the last observations, after the goal, (n,).
        """
        if self.chat is not None and ended.any():
            read, rewards = texts(), rewards.copy()
            rewards[ended] = [self._says(read[row]) for row in np.flatnonzero(ended)]
        if self._rng is None:
            return rewards
        errors = self._settings
        rate = np.where(rewards > 0, errors.false_negative, errors.false_positive)
        wrong = ended & (self._rng.random(len(rewards)) < rate)
        return np.where(wrong, 1.0 - rewards, rewards)

    def _says(self, text: str) -> float:
        """1 if the chat model says yes. The same text is asked once, until an answer fails."""
        assert self.chat is not None
        question = {"role": "user", "content": text}
        messages = [{"role": "system", "content": JUDGE}, *SEEN, question]
        answer, entry = self.chat.ask(self._failed, messages)
        self.chat.record(entry)
        self._failed += answer is None
        return float(VERDICT.match(answer or "") is not None)

    def facts(self) -> dict[str, Any]:
        """Return what the chat model cost; `unread`: answers other than yes and no."""
        if self.chat is None:
            return {}
        unread = sum(not CLEAR.match(entry["answer"] or "") for entry in self.chat.entries)
        return {"evaluator": {**self.chat.summary(), "unread": unread}}

    def state_dict(self) -> dict[str, Any]:
        """Its stream, if it has one, and failures, if it asks."""
        rng = {} if self._rng is None else {"evaluator": self._rng.bit_generator.state}
        return rng | ({} if self.chat is None else {"evaluator_failed": self._failed})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`, among other keys."""
        if self._rng is not None:
            self._rng.bit_generator.state = state["evaluator"]
        if self.chat is not None:
            self._failed = int(state["evaluator_failed"])


def drawn(sampler: GoalSampler, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw goals from a sampler, int64 (n,), and `Outcomes.explored` for each, int8 (n,)."""
    goals, explored = sampler.sample(n), sampler.explored
    return goals, np.full(n, NEITHER, np.int8) if explored is None else explored.astype(np.int8)


class Collector:
    """Plays episodes with the current policy.

    goals, sampler: the training goal space, and what chooses the goals of new episodes.
    backend: policy and codec.
    replay: receives the transitions.
    config: number of environments, n-step and discount.
    rngs: the streams `world` and `policy`.
    evaluator: rewards episodes.
    """

    def __init__(
        self,
        goals: GoalSet,
        sampler: GoalSampler,
        backend: Backend,
        replay: Replay,
        config: AgentConfig,
        rngs: Mapping[str, np.random.Generator],
        evaluator: Evaluator,
    ) -> None:
        self._backend = backend
        self._replay, self._codec = replay, backend.codec
        self._policy_rng = rngs["policy"]
        self.evaluator = evaluator
        self.num_envs = config.num_envs
        self._env = goals.world.environment(config.num_envs)
        self._windows = [NStepWindow(config.n_step, config.gamma) for _ in range(config.num_envs)]
        self._serials: list[list[int]] = [[] for _ in range(config.num_envs)]
        self.restart(goals, sampler, int(rngs["world"].integers(2**31)))

    def restart(self, goals: GoalSet, sampler: GoalSampler, seed: int | None) -> None:
        """Start all episodes anew, with goals of this space and from this sampler from now on.

        Unfinished episodes are dropped without an outcome; their complete transitions stay in the
        replay.

        seed: of the world's stream; None: the stream continues.
        """
        self._goals = goals
        self.sampler = sampler
        for window, serials in zip(self._windows, self._serials, strict=True):
            window.steps.clear()
            serials.clear()
        self._positions, self._explored = drawn(self.sampler, self.num_envs)
        self._standing_on = np.full(self.num_envs, NOTHING, dtype=np.int8)
        self._reset(np.arange(self.num_envs), seed)
        self._states = self._pack_states()
        self._values = self._state_values(self._states)

    def use(self, sampler: GoalSampler) -> None:
        """Take goals from another sampler, over the same goals; running episodes go on.

        If only the new one wants advantages, those of running episodes are to the value of where
        they are now, not of their start.
        """
        former, self.sampler = self.sampler, sampler
        if not former.wants_advantage:
            self._values = self._state_values(self._states)

    def step(self, at_random: bool = False) -> Outcomes:
        """Step every environment; return the episodes that ended, in order of environment.

        at_random: whether actions are uniform over the candidates, instead of from the policy.
        """
        policy = uniform(self._states) if at_random else self._backend.probabilities(self._states)
        actions = choose(policy, self._policy_rng)
        _, rewards, terminated, truncated, _ = self._env.step(actions)
        next_states = self._pack_states()
        ended = terminated | truncated
        rewards = self.evaluator.judged(rewards, ended, self._env.prompts)
        for env, state in enumerate(self._states):
            step = Step(state, int(actions[env]), float(rewards[env]))
            for transition in self._windows[env].add(step, next_states[env], bool(ended[env])):
                self._serials[env].append(self._replay.add(transition))
            if ended[env]:
                if step.reward > 0:
                    self._replay.mark_success(self._serials[env])
                self._serials[env] = []
        rows = np.flatnonzero(ended)
        advantage = np.abs(rewards[rows] - self._values[rows])
        outcomes = Outcomes(
            self._positions[rows],
            rewards[rows],
            self._standing_on[rows],
            self._explored[rows],
            advantage if self.sampler.wants_advantage else None,
        )
        self._states = next_states
        if len(rows):
            self._start_episodes(rows, ended)
        return outcomes

    def evaluation_env(self, num_envs: int) -> Environment:
        """Return an environment for evaluation episodes, in the current state of the world."""
        return self._env.evaluation_env(num_envs)

    def _reset(self, rows: np.ndarray, seed: int | None = None, **options: Any) -> None:
        """Begin episodes with their goals; note what they start on, if the world reports it."""
        options["goals"] = [self._goals.goal(int(place)) for place in self._positions[rows]]
        infos = self._env.reset(seed=seed, options=options)[1]
        if "standing_on" in infos:
            self._standing_on[rows] = infos["standing_on"][rows]

    def _start_episodes(self, rows: np.ndarray, ended: np.ndarray) -> None:
        """Start new episodes where episodes ended, with goals from the sampler."""
        self._positions[rows], self._explored[rows] = drawn(self.sampler, len(rows))
        self._reset(rows, reset_mask=ended)
        prompts, possible = self._env.prompts(), self._env.possible_actions
        states = self._codec.pack([prompts[row] for row in rows], [possible[row] for row in rows])
        for row, state in zip(rows, states, strict=True):
            self._states[row] = state
        self._values[rows] = self._state_values(states)

    def _state_values(self, states: list[PackedState]) -> np.ndarray:
        """V = sum of policy times Q, float64 (n,); 0 if the sampler does not need it."""
        if not self.sampler.wants_advantage:
            return np.zeros(len(states))
        return (self._backend.probabilities(states) * self._backend.values(states)).sum(axis=1)

    def _pack_states(self) -> list[PackedState]:
        return self._codec.pack(self._env.prompts(), self._env.possible_actions)

    def state_dict(self) -> dict[str, Any]:
        """Return environments, goals, n-step windows and the policy stream, within episodes."""
        return {
            "env": self._env.state_dict(),
            "positions": self._positions,
            "standing_on": self._standing_on,
            "explored": self._explored,
            **({"values": self._values} if self.sampler.wants_advantage else {}),
            "serials": self._serials,
            "windows": {
                f"{env}.{i}": {
                    "tokens": step.state.tokens,
                    "segments": step.state.segments,
                    "action": step.action,
                    "reward": step.reward,
                }
                for env, window in enumerate(self._windows)
                for i, step in enumerate(window.steps)
            },
            "policy_rng": self._policy_rng.bit_generator.state,
            **self.evaluator.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; the replay must be restored first.

        Raises:
            InputError: invalid goals, transitions or states.
        """
        self._env.load_state_dict(state["env"])
        each = (self.num_envs,)
        positions = checked_numbers(state["positions"], "positions", each, 0, len(self._goals) - 1)
        self._positions = positions.astype(np.int64)
        self._standing_on = checked_numbers(state["standing_on"], "standing_on", each, NOTHING, 127)
        self._serials = [list(map(int, numbers)) for numbers in state["serials"]]
        checked_numbers(list(map(len, self._serials)), "serials", each)
        for numbers in self._serials:
            checked_numbers(numbers, "serials", (None,), 0, self._replay.added - 1)
        self._explored = checked_numbers(state["explored"], "explored", each, NEITHER, 1)
        if "values" in state:
            self._values = checked_numbers(state["values"], "values", each, -LARGEST, LARGEST)
        self._policy_rng.bit_generator.state = state["policy_rng"]
        self.evaluator.load_state_dict(state)
        for window in self._windows:
            window.steps.clear()
        # Keys are in order of environment and step.
        for key, saved in state["windows"].items():
            packed = PackedState(np.asarray(saved["tokens"]), np.asarray(saved["segments"]))
            step = Step(packed, int(saved["action"]), float(saved["reward"]))
            self._codec.check(packed.tokens[None], packed.segments[None])
            check_actions(np.array([step.action]), packed.segments[None])
            self._windows[int(key.split(".")[0])].steps.append(step)
        self._replay.check(self._codec)
        self._states = self._pack_states()
