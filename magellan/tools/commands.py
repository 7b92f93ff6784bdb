"""Command lines of the tools for experiments, goals and trained runs. Imports no torch."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from magellan.config import grid, load_experiment, parse_assignment, read_yaml, resolve_run
from magellan.config.grid import check_models
from magellan.config.modules import load_modules, refuse_modules
from magellan.config.resolve import check_named, experiment_schema, merged
from magellan.core.arguments import (
    FOLDER,
    MODULES,
    RUN,
    SEED,
    SET,
    command,
    flag,
    number,
    option,
    output,
    path,
)
from magellan.core.environment import prepare_threads
from magellan.core.errors import InputError
from magellan.core.files import write_atomically
from magellan.jobs.command import backend, backend_given
from magellan.worlds import DEFAULT_WORLD, WORLDS

if TYPE_CHECKING:
    from magellan.jobs.trained import TrainedAgent

BACKEND = backend("whatever the run used")
WORLD = option("--world", default=DEFAULT_WORLD, help=", ".join(WORLDS))


@command(
    path("run", help="folder of a complete run with outcomes.csv"),
    option("--estimator", required=True, help="name, such as learned"),
    SET(
        help="a constant of the estimator, such as competence.learning_rate=1e-3, or of the model "
        "that it reads with, such as backbone.model=smollm2-135m, instead of the run's; may be "
        "repeated"
    ),
    number(
        "--every",
        metavar="N",
        help="also predict every N updates (default: only at the run's evaluations)",
    ),
    *BACKEND,
    MODULES,
    FOLDER(help="folder of the tables"),
)
def _replay(options: argparse.Namespace) -> None:
    """Feed recorded outcomes of a run to an estimator with other constants."""
    settings = [parse_assignment(text) for text in options.set]
    prepare_threads(1)
    from magellan.tools.replay import RecordedRun, replay

    run = RecordedRun.read(options.run, tuple(options.module))
    backend = backend_given(options)
    replay(run, options.estimator, settings, options.output, options.every, backend)
    print(f"predictions of {options.estimator} in {options.output}")


@command(RUN, MODULES, FOLDER(help="folder of the agent"))
def _export(options: argparse.Namespace) -> None:
    """A run's agent as peft folders, with a model card."""
    prepare_threads(1)
    from magellan.jobs.export import check_output, write_agent

    check_output(options.output)
    agent = _agent(options)
    write_agent(options.output, agent.files(options.output))
    print(f"agent of {agent.path} ({agent.where}) in {options.output}")


def _agent(options: argparse.Namespace) -> TrainedAgent:
    from magellan.jobs.trained import TrainedAgent

    agent = TrainedAgent.read(options.run, tuple(options.module))
    for damaged in agent.damaged:
        print(f"damaged, using an older one: {damaged}")
    return agent


@command(
    RUN,
    number(
        "--per-category",
        most=100_000,
        default=100,
        metavar="N",
        help="maximum goals per category and split",
    ),
    SEED(help="of the drawn goals"),
    *BACKEND,
    MODULES,
    FOLDER(help="folder of the embeddings"),
)
def _embed(options: argparse.Namespace) -> None:
    """How a run's estimator represents goals, for python -m analysis embeddings."""
    prepare_threads(1)
    from magellan.tools.embed import embed

    agent = _agent(options)
    draw = options.per_category, options.seed
    embed(agent, options.output, *draw, backend_given(options), tuple(options.module))
    print(f"embeddings from before training to {agent.where} in {options.output}")


@command(
    RUN,
    option("--goal", help="such as 'Grow lion'; needs --objects (default: draw one)"),
    option(
        "--objects",
        nargs="+",
        metavar="OBJECT",
        help="of the scene, such as lion water cow carrot (default: those of the drawn goal)",
    ),
    option("--category", help="of the drawn goal (default: any feasible one)"),
    SEED(help="of the drawn goal, the start and the actions, 0 or more"),
    flag("--greedy", help="always take the most probable action (default: draw by probability)"),
    flag("--steps", help="wait for the Enter key before each step"),
    *BACKEND,
    MODULES,
)
def _watch(options: argparse.Namespace) -> None:
    """A run's agent plays one episode in the terminal."""
    prepare_threads(1)
    from magellan.tools.watch import check_words, chosen_goal, watch

    goal = options.goal, options.objects, options.category
    check_words(*goal)
    agent = _agent(options)
    goals, position = chosen_goal(agent, *goal, options.seed)
    backend = agent.backend(backend_given(options))
    pause = sys.stdin if options.steps else None
    watch(agent, backend, goals, position, options.seed, options.greedy, sys.stdout, pause)


@command(
    option("--goal-space", default="2500", help="goal space to draw from"),
    option(
        "--category",
        help="grasp, grow_plant, grow_herbivore, grow_carnivore (default: any of them)",
    ),
    SEED(help="root seed, 0 or more"),
    WORLD,
    MODULES,
)
def _play(options: argparse.Namespace) -> None:
    """Play a goal in the terminal."""
    load_modules(options.module)
    world = WORLDS.find(options.world, "--world")
    world.play(options.goal_space, options.seed, options.category, sys.stdin, sys.stdout)


@command(
    option("--size", default="25k", help="25k, 100k, 1M, 2500, all, or a mix 20-4-2-2-1"),
    SEED(help="root seed, 0 or more"),
    option(
        "--split",
        choices=("train", "unseen"),
        default="train",
        help="training goals, or goals with held-out objects",
    ),
    WORLD,
    MODULES,
)
def _goals(options: argparse.Namespace) -> None:
    """Counts and examples of a goal space."""
    from magellan.worlds.base import describe

    load_modules(options.module)
    world = WORLDS.find(options.world, "--world")
    print(describe(world, options.size, options.seed, options.split))


@command(
    option(
        "--samplers",
        nargs="+",
        metavar="NAME",
        help="registered samplers, and oracle, which sees the learner (default: all)",
    ),
    number(
        "--seeds",
        most=1_000,
        default=10,
        metavar="N",
        help="runs of each sampler in each setting, seeds 1 to N",
    ),
    flag(
        "--starvation",
        help="instead: who comes back to a group that cannot be solved at first",
    ),
    MODULES,
    FOLDER(help="table (CSV); existing rows are not recomputed"),
)
def _axes(options: argparse.Namespace) -> None:
    """Run samplers on a simulated learner, along axes of difficulty, in seconds each."""
    prepare_threads(1)
    load_modules(options.module)
    from magellan.tools import axes

    run = axes.starvation if options.starvation else axes.table
    run(options.samplers, options.seeds, options.output, partial(print, flush=True))


@command(
    path("rows", help="lines of JSON, each with a `rate` from 0 to 1"),
    option("--sampler", required=True, metavar="NAME", help="registered"),
    number("--answers", most=10_000, default=8, metavar="N", help="that a rate stands for"),
    number(
        "--draws",
        metavar="N",
        help="draw N rows by probability (default: all rows, the most probable first)",
    ),
    flag("--distinct", help="draw no row twice (default: with replacement)"),
    option(
        "--groups", nargs="+", metavar="GROUP", help="all groups, easy to hard (default: by name)"
    ),
    option("--embed", metavar="MODEL", help="for samplers that read"),
    SET(help="a constant, such as mopps.candidates=4; may be repeated"),
    SEED(help="of the draws"),
    MODULES,
    output("--output", help="file (default: standard output)"),
)
def _order(options: argparse.Namespace) -> None:
    """Order or draw rows by a sampler, from one pass rate each."""
    if options.distinct and options.draws is None:
        raise InputError("--distinct: not allowed without --draws; allowed: both")
    settings: dict[str, Any] = reduce(merged, map(parse_assignment, options.set), {})
    prepare_threads(1)
    load_modules(options.module)
    from magellan.curriculum import order

    rows = order.ordered(
        order.read_rows(options.rows),
        options.sampler,
        *(options.answers, options.draws, options.distinct, options.seed, settings),
        embed=options.embed,
        order=options.groups,
    )
    if options.output is None:
        print(order.written(rows), end="")
    else:
        write_atomically(options.output, order.written(rows).encode())


@command(
    path("file", help="Python file that registers one sampler"),
    number(
        "--runs",
        least=0,
        default=0,
        metavar="N",
        help="runs of the study of all samplers, a seed each; minutes each",
    ),
    path(
        "--check",
        metavar="CARD",
        help="check this card of the file instead, as CI does, without training (default: no)",
    ),
    path("--output", default="submission", help="folder of card and runs"),
)
def _submit(options: argparse.Namespace) -> None:
    """Check a sampler of your own, run it, and write a card for a pull request."""
    if options.check is not None and options.runs:
        raise InputError("--runs: not allowed with --check; allowed: one of the two")
    prepare_threads(1)
    from magellan.tools import submit

    if options.check is not None:
        submit.check_card(options.check, options.file)
        print(f"{options.check}: a card of {options.file}")
        return
    print(f"card in {submit.submit(options.file, options.runs, options.output)}")


@command(
    flag("--quick", help="a minute at most, instead of eight"),
    path("--output", default="results/bench", help="folder"),
    option(
        "--model",
        default="zoo-mini",
        help="a name, a folder, or flan-t5-base-shape or t5 (small), which are random",
    ),
    option("--device", default="cpu", help="cpu, cuda, cuda:1 and so on, or auto"),
    option("--dtype", help="float32 or bfloat16 (default: bfloat16 on a GPU, float32 on a CPU)"),
    SET(help="another key, such as backend.deterministic=false; may be repeated"),
)
def _bench(options: argparse.Namespace) -> None:
    """Speed of a model on this machine."""
    settings = [parse_assignment(text) for text in options.set]
    prepare_threads(resolve_run("paper", settings).threads)
    try:
        from benchmarks.bench import run
    except ModuleNotFoundError as error:
        if error.name not in ("benchmarks", "benchmarks.bench"):
            raise
        raise InputError(
            "bench: the package `benchmarks` is absent; run this in a clone of the repository"
        ) from None
    if options.dtype:
        settings.insert(0, {"backend": {"dtype": options.dtype}})
    print(run(options.output, options.model, options.device, settings, options.quick), end="")


@command()
def _schema(_: argparse.Namespace) -> None:
    """Print the JSON schema of an experiment file."""
    print(json.dumps(experiment_schema(), indent=2))


@command(
    path("config", help="YAML file, such as config/config.yaml"),
    flag("--run-modules", help="run the files under its key modules, as needed to check it"),
)
def _check(options: argparse.Namespace) -> None:
    """Check an experiment file and list its runs."""
    values = read_yaml(options.config)
    if not options.run_modules:
        refuse_modules(values.get("modules"))
    experiment = load_experiment(values)
    check_models(experiment)
    check_named(values, f"config file: {options.config}")
    for run in grid(experiment):
        variant = f"/{run.variant}" if experiment.variants else ""
        print(f"{run.sampler}{variant}/{run.goal_space}/seed{run.seed}")
