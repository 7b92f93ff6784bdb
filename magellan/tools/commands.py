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
    Commands,
    add_flag,
    add_modules,
    add_number,
    add_output,
    add_run,
    add_seed,
    add_settings,
    file_path,
    new_file,
    whole_number,
)
from magellan.core.environment import prepare_threads
from magellan.core.errors import InputError
from magellan.core.files import write_atomically
from magellan.jobs.command import add_backend, backend_given
from magellan.worlds import DEFAULT_WORLD, WORLDS

if TYPE_CHECKING:
    from magellan.jobs.trained import TrainedAgent


def add_replay(commands: Commands) -> None:
    replay = commands.add_parser(
        "replay", help="feed recorded outcomes of a run to an estimator with other constants"
    )
    replay.add_argument("run", type=file_path, help="folder of a complete run with outcomes.csv")
    replay.add_argument("--estimator", required=True, help="name, such as learned (required)")
    add_settings(
        replay,
        "a constant of the estimator, such as competence.learning_rate=1e-3, or of the model that "
        "it reads with, such as backbone.model=smollm2-135m, instead of the run's",
    )
    replay.add_argument(
        "--every",
        type=partial(whole_number, least=1),
        metavar="N",
        help="also predict every N updates (default: only at the run's evaluations)",
    )
    add_backend(replay, "whatever the run used")
    add_modules(replay)
    add_output(replay, "folder of the tables")
    replay.set_defaults(command=_replay)


def _replay(options: argparse.Namespace) -> None:
    settings = [parse_assignment(text) for text in options.set]
    prepare_threads(1)
    from magellan.tools.replay import RecordedRun, replay

    run = RecordedRun.read(options.run, tuple(options.module))
    backend = backend_given(options)
    replay(run, options.estimator, settings, options.output, options.every, backend)
    print(f"predictions of {options.estimator} in {options.output}")


def add_export(commands: Commands) -> None:
    export = commands.add_parser("export", help="a run's agent as peft folders, with a model card")
    add_run(export)
    add_modules(export)
    add_output(export, "folder of the agent")
    export.set_defaults(command=_export)


def _export(options: argparse.Namespace) -> None:
    prepare_threads(1)
    from magellan.jobs.export import check_output, write_agent

    check_output(options.output)
    agent = _agent(options)
    write_agent(options.output, agent.files(options.output))
    print(f"agent of {agent.path} ({agent.where}) in {options.output}")


def _agent(options: argparse.Namespace) -> TrainedAgent:
    from magellan.jobs.trained import TrainedAgent

    agent = TrainedAgent.read(options.run, tuple(options.module))
    for path in agent.damaged:
        print(f"damaged, using an older one: {path}")
    return agent


def add_embed(commands: Commands) -> None:
    embed = commands.add_parser(
        "embed", help="how a run's estimator represents goals, for python -m analysis embeddings"
    )
    add_run(embed)
    of = "maximum goals per category and split"
    add_number(embed, "--per-category", of, default=100, most=100_000)
    add_seed(embed, "of the drawn goals")
    add_backend(embed, "whatever the run used")
    add_modules(embed)
    add_output(embed, "folder of the embeddings")
    embed.set_defaults(command=_embed)


def _embed(options: argparse.Namespace) -> None:
    prepare_threads(1)
    from magellan.tools.embed import embed

    agent = _agent(options)
    draw = options.per_category, options.seed
    embed(agent, options.output, *draw, backend_given(options), tuple(options.module))
    print(f"embeddings from before training to {agent.where} in {options.output}")


def add_watch(commands: Commands) -> None:
    watch = commands.add_parser("watch", help="a run's agent plays one episode in the terminal")
    add_run(watch)
    watch.add_argument("--goal", help="such as 'Grow lion'; needs --objects (default: draw one)")
    watch.add_argument(
        "--objects",
        nargs="+",
        metavar="OBJECT",
        help="of the scene, such as lion water cow carrot (default: those of the drawn goal)",
    )
    watch.add_argument("--category", help="of the drawn goal (default: any feasible one)")
    add_seed(watch, "of the drawn goal, the start and the actions, 0 or more")
    watch.add_argument(
        "--greedy",
        action="store_true",
        help="always take the most probable action (default: draw by probability)",
    )
    add_flag(watch, "--steps", "wait for the Enter key before each step")
    add_backend(watch, "whatever the run used")
    add_modules(watch)
    watch.set_defaults(command=_watch)


def _watch(options: argparse.Namespace) -> None:
    prepare_threads(1)
    from magellan.tools.watch import check_words, chosen_goal, watch

    goal = options.goal, options.objects, options.category
    check_words(*goal)
    agent = _agent(options)
    goals, position = chosen_goal(agent, *goal, options.seed)
    backend = agent.backend(backend_given(options))
    pause = sys.stdin if options.steps else None
    watch(agent, backend, goals, position, options.seed, options.greedy, sys.stdout, pause)


def add_play(commands: Commands) -> None:
    play = commands.add_parser("play", help="play a goal in the terminal")
    play.add_argument(
        "--goal-space", default="2500", help="goal space to draw from (default: %(default)s)"
    )
    play.add_argument(
        "--category",
        help="grasp, grow_plant, grow_herbivore, grow_carnivore (default: any of them)",
    )
    add_seed(play, "root seed, 0 or more")
    _add_world(play)
    play.set_defaults(command=_play)


def _play(options: argparse.Namespace) -> None:
    load_modules(options.module)
    world = WORLDS.find(options.world, "--world")
    world.play(options.goal_space, options.seed, options.category, sys.stdin, sys.stdout)


def add_goals(commands: Commands) -> None:
    goals = commands.add_parser("goals", help="counts and examples of a goal space")
    goals.add_argument(
        "--size",
        default="25k",
        help="25k, 100k, 1M, 2500, all, or a mix 20-4-2-2-1 (default: %(default)s)",
    )
    add_seed(goals, "root seed, 0 or more")
    goals.add_argument(
        "--split",
        choices=("train", "unseen"),
        default="train",
        help="training goals, or goals with held-out objects (default: %(default)s)",
    )
    _add_world(goals)
    goals.set_defaults(command=_goals)


def _goals(options: argparse.Namespace) -> None:
    from magellan.worlds.base import describe

    load_modules(options.module)
    world = WORLDS.find(options.world, "--world")
    print(describe(world, options.size, options.seed, options.split))


def _add_world(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--world", default=DEFAULT_WORLD, help=f"{', '.join(WORLDS)} (default: %(default)s)"
    )
    add_modules(command)


def add_axes(commands: Commands) -> None:
    axes = commands.add_parser(
        "axes",
        help="run samplers on a simulated learner, along axes of difficulty, in seconds each",
    )
    axes.add_argument(
        "--samplers",
        nargs="+",
        metavar="NAME",
        help="registered samplers, and oracle, which sees the learner (default: all)",
    )
    of = "runs of each sampler in each setting, seeds 1 to N"
    add_number(axes, "--seeds", of, default=10, most=1_000)
    does = "instead: who comes back to a group that cannot be solved at first"
    add_flag(axes, "--starvation", does)
    add_modules(axes)
    add_output(axes, "table (CSV); existing rows are not recomputed")
    axes.set_defaults(command=_axes)


def _axes(options: argparse.Namespace) -> None:
    prepare_threads(1)
    load_modules(options.module)
    from magellan.tools import axes

    run = axes.starvation if options.starvation else axes.table
    run(options.samplers, options.seeds, options.output, partial(print, flush=True))


def add_order(commands: Commands) -> None:
    order = commands.add_parser(
        "order", help="order or draw rows by a sampler, from one pass rate each"
    )
    order.add_argument("rows", type=file_path, help="lines of JSON, each with a `rate` from 0 to 1")
    order.add_argument("--sampler", required=True, metavar="NAME", help="registered (required)")
    add_number(order, "--answers", "that a rate stands for", default=8, most=10_000)
    order.add_argument(
        "--draws",
        type=partial(whole_number, least=1),
        metavar="N",
        help="draw N rows by probability (default: all rows, the most probable first)",
    )
    order.add_argument(
        "--distinct", action="store_true", help="draw no row twice (default: with replacement)"
    )
    order.add_argument(
        "--groups", nargs="+", metavar="GROUP", help="all groups, easy to hard (default: by name)"
    )
    order.add_argument("--embed", metavar="MODEL", help="for samplers that read (default: none)")
    add_settings(order, "a constant, such as mopps.candidates=4")
    add_seed(order, "of the draws")
    add_modules(order)
    order.add_argument("--output", type=new_file, help="file (default: standard output)")
    order.set_defaults(command=_order)


def _order(options: argparse.Namespace) -> None:
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


def add_submit(commands: Commands) -> None:
    submit = commands.add_parser(
        "submit", help="check a sampler of your own, run it, and write a card for a pull request"
    )
    submit.add_argument("file", type=file_path, help="Python file that registers one sampler")
    of = "runs of the study of all samplers, a seed each; minutes each"
    add_number(submit, "--runs", of, default=0, least=0)
    submit.add_argument(
        "--check",
        type=file_path,
        metavar="CARD",
        help="check this card of the file instead, as CI does, without training (default: no)",
    )
    submit.add_argument(
        "--output",
        type=file_path,
        default="submission",
        help="folder of card and runs (default: %(default)s)",
    )
    submit.set_defaults(command=_submit)


def _submit(options: argparse.Namespace) -> None:
    if options.check is not None and options.runs:
        raise InputError("--runs: not allowed with --check; allowed: one of the two")
    prepare_threads(1)
    from magellan.tools import submit

    if options.check is not None:
        submit.check_card(options.check, options.file)
        print(f"{options.check}: a card of {options.file}")
        return
    print(f"card in {submit.submit(options.file, options.runs, options.output)}")


def add_bench(commands: Commands) -> None:
    bench = commands.add_parser("bench", help="speed of a model on this machine")
    add_flag(bench, "--quick", "a minute at most, instead of eight")
    bench.add_argument(
        "--output", type=file_path, default="results/bench", help="folder (default: %(default)s)"
    )
    bench.add_argument(
        "--model",
        default="zoo-mini",
        help="a name, a folder, or flan-t5-base-shape, smollm2-135m-shape or t5 (small), which are "
        "random (default: %(default)s)",
    )
    bench.add_argument(
        "--device",
        default="cpu",
        help="cpu, cuda, cuda:1 and so on, or auto (default: %(default)s)",
    )
    bench.add_argument(
        "--dtype", help="float32 or bfloat16 (default: bfloat16 on a GPU, float32 on a CPU)"
    )
    add_settings(bench, "another key, such as backend.deterministic=false")
    bench.set_defaults(command=_bench)


def _bench(options: argparse.Namespace) -> None:
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
    model = options.model, options.device, options.dtype
    print(run(options.output, *model, settings, options.quick), end="")


def add_check(commands: Commands) -> None:
    """Add the commands `check` and `schema`."""
    schema = commands.add_parser("schema", help="print the JSON schema of an experiment file")
    schema.set_defaults(command=_schema)
    check = commands.add_parser("check", help="check an experiment file and list its runs")
    check.add_argument("config", type=file_path, help="YAML file, such as config/config.yaml")
    does = "run the files under its key modules, as needed to check it"
    add_flag(check, "--run-modules", does)
    check.set_defaults(command=_check)


def _schema(_: argparse.Namespace) -> None:
    print(json.dumps(experiment_schema(), indent=2))


def _check(options: argparse.Namespace) -> None:
    values = read_yaml(options.config)
    if not options.run_modules:
        refuse_modules(values.get("modules"))
    experiment = load_experiment(values)
    check_models(experiment)
    check_named(values, f"config file: {options.config}")
    for run in grid(experiment):
        variant = f"/{run.variant}" if experiment.variants else ""
        print(f"{run.sampler}{variant}/{run.goal_space}/seed{run.seed}")
