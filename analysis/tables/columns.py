"""Meaning of each column of each table: source of docs/tables.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from analysis.tables.grid import RUN_COLUMNS
from magellan.core.columns import COLUMNS

OF_RUNS: Mapping[str, str] = {
    "evaluation": "Success on fixed goals at each evaluation, of every run.",
    "competence": "Each estimator's predictions for the same goals, at each evaluation.",
    "practice": "Practised goals and their success, in each window of training episodes.",
    "training": "Losses and entropy of the policy updates, means since the row before.",
    "goals": "With `budget.record_goals`, in a run's own folder: every evaluated goal.",
    "outcomes": "With `budget.record_outcomes`, in a run's own folder: every training episode.",
}
"""Tables of runs, by name."""

MEANINGS: Mapping[str, str] = {
    "actor_loss": "loss of the policy; empty before the actor is trained",
    "area": "mean success over training: area under the curve of success divided by its length",
    "baseline": "sampler that the reference is compared with",
    "baseline_runs": "its number of runs",
    "baseline_variant": "its variant",
    "begins": "training length at which the phase begins",
    "bias": "mean of predicted minus observed success; positive is overconfident",
    "category": "category of the goals",
    "competence": "predicted chance of success, mean over the goals of the row",
    "competence_loss": "loss of the competence head; empty without one",
    "confidence": "level of the interval",
    "critic_loss": "loss of the critic",
    "delayed_competence": "the same by the estimator as it was some updates ago",
    "device": "device of the run: cpu, or cuda",
    "difference": "reference minus baseline: difference of the means of their runs",
    "dormant": "share of the critic's hidden units that are dormant",
    "entropy": "mean entropy of the policy, in nats",
    "episode": "training episodes ended so far",
    "episodes": "training episodes",
    "epsilon": "share of goals drawn by exploration",
    "estimation_episodes": "episodes played only for the sampler's estimator",
    "estimator": "name of the estimator",
    "explored": "1: exploration drew the goal; 0: the sampler did; -1: unknown",
    "final": "success at the last evaluation",
    "fraction": "share of runs x categories whose score is above the threshold",
    "goal": "code of the goal",
    "goal_space": "goal space of the runs",
    "high": "upper end of the interval",
    "highest_seed": "success of the best run",
    "iqm": "interquartile mean of success over runs x categories",
    "learning_progress": "absolute difference of the two, mean over the goals of the row",
    "limit": "training length at the last evaluation",
    "log_rank": "log-rank statistic of the reference against this sampler; empty for the reference",
    "low": "lower end of the interval",
    "lowest_seed": "success of the worst run",
    "mastered": "runs that master the category: above 0.9 at two evaluations in a row",
    "mean": "mean success over runs",
    "mean_absolute_error": "mean absolute error of the prediction over training",
    "median": "when half of the runs have mastered; empty if they never do",
    "method": "method of the interval (docs/statistics.md)",
    "n": "evaluation episodes behind the row",
    "p": "p value of the difference by `test`, uncorrected",
    "p_holm": "the same after Holm's correction: the one to read",
    "p_paired": "p value of a sign-flip test with runs of equal seed as pairs; empty without pairs",
    "peak_memory_mb": "largest resident memory of the process, in MB",
    "phase": "number of the phase, from 1; only where runs have several",
    "points": "evaluations behind the row",
    "practised": "split of the goals practised in the phase",
    "primary": "whether this is the pre-registered comparison",
    "probability": "probability that a run of the reference scores higher than one of the baseline",
    "repetitions": "bootstrap resamples",
    "restarts": "number of times the run resumed from a checkpoint",
    "restricted_mean": "mean time to mastery; a run without mastery counts as `limit`",
    "root_mean_square_error": "root of the mean squared error of the prediction over training",
    "runs": "number of runs, n",
    "sampler": "who chose the goals",
    "score": "`area`: mean success over training; `final`: at the end; `first`: at the beginning",
    "seed": "seed of the run",
    "share": "share of the run's training episodes",
    "split": "`train`: goals of the goal space; `unseen`: goals about held-out objects",
    "spread": "distance between the critic's features of different states, 0 to 1",
    "standard_error": "standard error of the observed success, mean over training",
    "standing_on": "object of the scene on which the episode started; -1: bare ground",
    "statistic": "`iqm` or `mean`, over runs x categories",
    "step": "environment steps so far, all environments together",
    "steps": "environment steps, all environments together",
    "success": "share of the episodes that reached their goal",
    "successes": "number of episodes that reached their goal",
    "tasks": "number of categories behind each run's number",
    "temperature": "temperature of the policy's entropy bonus",
    "test": "the permutation test, and its number of permutations",
    "threads": "CPU threads of the run",
    "threshold": "threshold of the score, 0 to 1",
    "update": "policy updates so far",
    "updates": "policy updates",
    "value": "the statistic or score, mean over runs",
    "variant": "name of the variant; `default` if the experiment has none",
    "wall_seconds": "training time of all attempts together, in seconds",
}
"""Meaning of a column, by name."""

ELSEWHERE: Mapping[tuple[str, str], str] = {
    ("evaluation", "value"): "mean Q value of the critic on the evaluated states",
    ("competence", "n"): "predicted goals behind the row",
    ("goals", "success"): "share of the goal's evaluation episodes that reached it",
    ("goals", "competence"): "predicted chance of success of the goal",
    ("goals", "delayed_competence"): "the same by the estimator as it was some updates ago",
    ("mastery", "p"): "p value of the log-rank test, uncorrected",
    ("outcomes", "update"): "policy update after which the estimators received the outcome",
    ("outcomes", "success"): "1 if the episode reached its goal, else 0",
    ("phases", "category"): "category of the goals; `mean`: mean of the evaluated categories",
    ("practice", "n"): "episodes of the category in the window",
    ("practice", "success"): "share of the practised episodes that reached their goal",
}
"""Meaning by table and name, where it differs from `MEANINGS`."""


def meaning(table: str, column: str) -> str:
    """Meaning of a column of a table; KeyError if it has none."""
    return ELSEWHERE.get((table, column)) or MEANINGS[column]


def columns_of_runs() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Tables of runs with their columns; combined ones begin with `RUN_COLUMNS`."""
    for name in OF_RUNS:
        in_folder = name in ("goals", "outcomes")
        yield name, (() if in_folder else RUN_COLUMNS) + COLUMNS[name]
