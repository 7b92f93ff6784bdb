"""The command line: train, replay, export, watch, play, goals, schema, backbone, bench."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from magellan.config import (
    PRESETS,
    BackendConfig,
    RunConfig,
    check_backbone,
    check_named,
    experiment_schema,
    grid,
    identity,
    load_experiment,
    parse_assignment,
    read_yaml,
    resolve_run,
    sampler_names,
)
from magellan.config.modules import load_modules, refuse_modules
from magellan.core.arguments import ArgumentParser, file_path, whole_number
from magellan.core.errors import InputError, JobError, is_out_of_memory, out_of_memory
from magellan.worlds import DEFAULT_WORLD, WORLDS

NAMED = ("sampler", "world", "goal_space", "seed", "threads")
WATCH_SEED_HELP = "of the drawn goal, the start and the actions, 0 or more (default: %(default)s)"
OF_MODELS = (
    "huggingface_hub",
    "peft",
    "safetensors",
    "tokenizers",
    "torch",
    "tqdm",
    "transformers",
)
WITH_MODELS = "pip install 'magellan-bench[model]'"
SEED_HELP = "root seed, 0 or more (default: %(default)s)"

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[ArgumentParser]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives 0, or the status of `magellan.core.errors` after one line of why."""
    try:
        options = _parser().parse_args(arguments)
        options.command(options)
    except (InputError, JobError) as error:
        return _told(error)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except ModuleNotFoundError as error:
        if error.name not in OF_MODELS:
            raise
        return _told(InputError(f"the package {error.name} is absent: {WITH_MODELS} brings it"))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return _told(out_of_memory(error))
    return 0


def _told(error: InputError | JobError) -> int:
    """Print the line; gives the exit status."""
    with contextlib.suppress(OSError):
        print(f"{error.label}: {error}", file=sys.stderr, flush=True)
    return error.exit_status


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m magellan", description="MAGELLAN bench: goal samplers for LLM agents."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_train(commands)
    _add_replay(commands)
    _add_export(commands)
    _add_embed(commands)
    _add_critic(commands)
    _add_watch(commands)
    _add_play(commands)
    _add_goals(commands)
    _add_backbone(commands)
    _add_bench(commands)
    schema = commands.add_parser("schema", help="print the JSON schema of an experiment file")
    schema.set_defaults(command=_schema)
    check = commands.add_parser("check", help="check an experiment file and list its runs")
    check.add_argument("config", type=file_path, help="YAML file, such as config/config.yaml")
    check.add_argument(
        "--run-modules",
        action="store_true",
        help="run the files under its key modules, without which it is not checked (default: no)",
    )
    check.set_defaults(command=_check)
    return parser


def _add_train(commands: Commands) -> None:
    train = commands.add_parser("train", help="one training run")
    defaults = RunConfig()
    for name, values in (
        ("sampler", ", ".join(sampler_names())),
        ("world", ", ".join(WORLDS)),
        ("goal_space", "25k, 1M, all, or a mix 20-4-2-2-1"),
        ("seed", "root seed, 0 or more"),
        ("threads", "threads of the numerical libraries"),
    ):
        default = getattr(defaults, name)
        train.add_argument(
            f"--{name.replace('_', '-')}",
            type=whole_number if isinstance(default, int) else str,
            help=f"{values} (default: {default}, unless --config or --set says)",
        )
    _add_job(train)
    _add_backend(train, "unless --config or --set says")
    _add_modules(train)
    train.add_argument(
        "--config",
        type=file_path,
        help="YAML file with keys of the run configuration (default: none)",
    )
    train.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="section.key=value",
        help="override one key, such as agent.learning_rate=1e-3; may be repeated (default: none)",
    )
    train.set_defaults(command=_train)


def _add_job(train: ArgumentParser) -> None:
    """What the run starts from, where it goes, and what is seen of it."""
    presets = ", ".join(PRESETS)
    train.add_argument("--preset", default="laptop", help=f"{presets} (default: %(default)s)")
    train.add_argument(
        "--output", type=file_path, required=True, help="folder of the run (required)"
    )
    train.add_argument(
        "--resume", action="store_true", help="continue from the last checkpoint (default: no)"
    )
    train.add_argument(
        "--stop-after",
        type=float,
        metavar="MINUTES",
        help="time limit: save and stop by itself shortly before, exit status 75 (default: none)",
    )
    train.add_argument(
        "--start",
        type=file_path,
        metavar="FOLDER",
        help="folder of a run with all phases of this one but the last: go on where it ended; or "
        "what a longer run has kept there, RUN/10000 (default: from the first phase)",
    )
    train.add_argument(
        "--identity",
        help="refuse to train unless the run is this one; the workflow says so (default: any run)",
    )
    train.add_argument(
        "--attempt",
        type=int,
        default=1,
        metavar="N",
        help="which attempt of one call this is; the second and later ones end at once, with the "
        "same error, if the run cannot succeed; the workflow says so (default: %(default)s)",
    )
    train.add_argument(
        "--progress",
        choices=("bar", "lines", "none"),
        default="bar",
        help="what is shown while it trains; without a terminal a bar is lines (default: "
        "%(default)s)",
    )
    train.add_argument(
        "--log",
        choices=("none", "tensorboard"),
        default="none",
        help="also write curves to the run's folder tensorboard (default: %(default)s)",
    )


def _add_replay(commands: Commands) -> None:
    replay = commands.add_parser(
        "replay", help="recorded outcomes of a run, to an estimator with other constants"
    )
    replay.add_argument("run", type=file_path, help="folder of a complete run with outcomes.csv")
    replay.add_argument("--estimator", required=True, help="its name, such as learned (required)")
    replay.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="section.key=value",
        help="a constant of it, such as competence.learning_rate=1e-3, instead of the run's; may "
        "be repeated (default: none)",
    )
    replay.add_argument(
        "--every",
        type=whole_number,
        metavar="N",
        help="ask it every N updates too (default: only where the run was evaluated)",
    )
    _add_backend(replay, "whatever the run used")
    _add_modules(replay)
    replay.add_argument(
        "--output", type=file_path, required=True, help="folder of the tables (required)"
    )
    replay.set_defaults(command=_replay)


def _add_export(commands: Commands) -> None:
    export = commands.add_parser("export", help="a run's agent as peft folders, with a model card")
    export.add_argument("run", type=file_path, help="folder of a run with its checkpoints")
    _add_modules(export)
    export.add_argument(
        "--output", type=file_path, required=True, help="folder of the agent (required)"
    )
    export.set_defaults(command=_export)


def _add_watch(commands: Commands) -> None:
    watch = commands.add_parser("watch", help="a run's agent plays one episode in the terminal")
    watch.add_argument("run", type=file_path, help="folder of a run with its checkpoints")
    watch.add_argument(
        "--goal", help="such as 'Grow lion'; needs --objects (default: one is drawn)"
    )
    watch.add_argument(
        "--objects",
        nargs="+",
        metavar="OBJECT",
        help="of the scene, such as lion water cow carrot (default: those of the drawn goal)",
    )
    watch.add_argument(
        "--category", help="of the goal that is drawn (default: any that can be reached)"
    )
    watch.add_argument("--seed", type=whole_number, default=0, help=WATCH_SEED_HELP)
    watch.add_argument(
        "--greedy",
        action="store_true",
        help="always take the most probable action (default: draw by probability)",
    )
    watch.add_argument(
        "--steps", action="store_true", help="wait for the Enter key before each step (default: no)"
    )
    _add_backend(watch, "whatever the run used")
    _add_modules(watch)
    watch.set_defaults(command=_watch)


def _add_embed(commands: Commands) -> None:
    embed = commands.add_parser(
        "embed", help="how a run's estimator reads goals, for python -m analysis embeddings"
    )
    _add_goals_of_run(embed)
    embed.add_argument(
        "--output", type=file_path, required=True, help="folder of what is read (required)"
    )
    embed.set_defaults(command=_embed)


def _add_critic(commands: Commands) -> None:
    critic = commands.add_parser(
        "critic", help="how alive a run's critic is: dormant units, spread of what it reads"
    )
    _add_goals_of_run(critic)
    critic.set_defaults(command=_critic)


def _add_goals_of_run(command: ArgumentParser) -> None:
    command.add_argument("run", type=file_path, help="folder of a run with its checkpoints")
    command.add_argument(
        "--per-category",
        type=whole_number,
        default=100,
        metavar="N",
        help="goals of each category and split, at most (default: %(default)s)",
    )
    command.add_argument(
        "--seed", type=whole_number, default=0, help="of the goals' draw (default: %(default)s)"
    )
    _add_backend(command, "whatever the run used")
    _add_modules(command)


def _add_play(commands: Commands) -> None:
    play = commands.add_parser("play", help="play a goal in the terminal")
    play.add_argument(
        "--goal-space", default="2500", help="where the goal is drawn from (default: %(default)s)"
    )
    play.add_argument(
        "--category",
        help="grasp, grow_plant, grow_herbivore, grow_carnivore (default: any of them)",
    )
    play.add_argument("--seed", type=whole_number, default=0, help=SEED_HELP)
    _add_world(play)
    play.set_defaults(command=_play)


def _add_goals(commands: Commands) -> None:
    goals = commands.add_parser("goals", help="counts and examples of a goal space")
    goals.add_argument(
        "--size",
        default="25k",
        help="25k, 100k, 1M, 2500, all, or a mix 20-4-2-2-1 (default: %(default)s)",
    )
    goals.add_argument("--seed", type=whole_number, default=0, help=SEED_HELP)
    goals.add_argument(
        "--split",
        choices=("train", "unseen"),
        default="train",
        help="goals of training, or about held-out objects (default: %(default)s)",
    )
    _add_world(goals)
    goals.set_defaults(command=_goals)


def _add_world(command: ArgumentParser) -> None:
    command.add_argument(
        "--world", default=DEFAULT_WORLD, help=f"{', '.join(WORLDS)} (default: %(default)s)"
    )
    _add_modules(command)


def _add_backend(command: ArgumentParser, otherwise: str) -> None:
    defaults = BackendConfig()
    for name, values in (
        ("device", "cpu, cuda, cuda:1 and so on, or auto: cuda where there is a GPU"),
        ("dtype", "numbers of the frozen model, float32 or bfloat16"),
    ):
        default = getattr(defaults, name)
        command.add_argument(f"--{name}", help=f"{values} (default: {default}, {otherwise})")


def _backend(options: argparse.Namespace) -> dict[str, str]:
    """Keys of the section `backend` that the command line gives."""
    given = {name: getattr(options, name) for name in ("device", "dtype")}
    return {name: value for name, value in given.items() if value is not None}


def _add_modules(command: ArgumentParser) -> None:
    command.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="FILE",
        help="Python file with samplers, estimators, worlds, backends of your own; may be repeated "
        "(default: none)",
    )


def _add_backbone(commands: Commands) -> None:
    backbone = commands.add_parser("backbone", help="make a language model that needs no hub")
    backbone.add_argument(
        "--wheel",
        type=file_path,
        help="wheel with SmolLM2-135M, which all models of --name need (default: none)",
    )
    backbone.add_argument(
        "--output", type=file_path, required=True, help="folder of the model (required)"
    )
    backbone.add_argument(
        "--name", help="with --wheel: zoo-reader, zoo-mini or smollm2-135m (default: zoo-reader)"
    )
    backbone.add_argument(
        "--world",
        help="without --wheel: a small model with random weights that reads the words of this "
        "world (default: none)",
    )
    _add_modules(backbone)
    backbone.set_defaults(command=_backbone)


def _add_bench(commands: Commands) -> None:
    bench = commands.add_parser("bench", help="speed of this code on this machine")
    bench.add_argument(
        "--quick", action="store_true", help="less than a minute, fewer rows (default: no)"
    )
    bench.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="one group of rows: environment, goals, samplers, zoo-mini, t5, or all (the loop on "
        "all 19.5 million goals); may be repeated (default: all groups)",
    )
    bench.add_argument(
        "--output", type=file_path, default="results/bench", help="folder (default: %(default)s)"
    )
    bench.add_argument(
        "--model",
        help="time this model instead, on one device, in at most 8 minutes: a name, a folder, or "
        "flan-t5-base-shape, which is random (default: the groups; zoo-mini with --device)",
    )
    for name, values in (
        ("device", "cpu, cuda, cuda:1 and so on, or auto (default: the groups; cpu with --model)"),
        ("dtype", "float32 or bfloat16 (default: bfloat16 on a GPU, float32 on a CPU)"),
    ):
        bench.add_argument(f"--{name}", help=f"for one model: {values}")
    bench.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="section.key=value",
        help="for one model: another key, such as backend.deterministic=false; may be repeated "
        "(default: none)",
    )
    bench.set_defaults(command=_bench)


def _train(options: argparse.Namespace) -> None:
    given = {name: getattr(options, name) for name in NAMED}
    named = {name: value for name, value in given.items() if value is not None}
    layers = [read_yaml(options.config)] if options.config else []
    layers += [parse_assignment(text) for text in options.set]
    if options.module:
        layers.append({"modules": options.module})
    config = resolve_run(options.preset, [*layers, named, {"backend": _backend(options)}])
    if options.identity not in (None, identity(config)):
        raise InputError(
            f"--identity: {options.identity!r} is not this run, which is {identity(config)}; did "
            "the code or a file under modules change since the workflow was started?"
        )
    check_backbone(config.backbone.model)  # before the libraries are loaded, which takes seconds
    if options.attempt > 1:
        from magellan.jobs.attempts import check_worth_trying

        check_worth_trying(options.output, identity(config))
    _prepare_libraries(config.threads)
    from magellan.jobs.run import train

    train(
        config,
        options.output,
        options.resume,
        options.progress,
        options.stop_after,
        options.log,
        options.start,
    )
    if options.progress != "none" and options.identity is None:  # the workflow goes on by itself
        _show_next(options.output, config.modules)


def _show_next(run: Path, modules: Sequence[str]) -> None:
    """What can be done with a run that is complete."""
    from magellan.jobs.log import show

    own = [word for path in modules for word in ("--module", path)]
    agent = Path("agents") / run.name
    for words in (["watch", str(run), *own], ["export", str(run), *own, "--output", str(agent)]):
        show(f"next: python -m magellan {shlex.join(words)}")


def _replay(options: argparse.Namespace) -> None:
    if options.every is not None and options.every < 1:
        raise InputError(f"--every: {options.every} is not allowed; allowed: 1 or more updates")
    settings = [parse_assignment(text) for text in options.set]
    from magellan.tools.recorded import FinishedRun

    run = FinishedRun.read(options.run, tuple(options.module))
    _prepare_libraries(run.config.threads)
    from magellan.tools.replay import replay

    replay(
        run,
        options.estimator,
        settings,
        options.output,
        options.every,
        _backend(options),
    )
    print(f"predictions of {options.estimator} in {options.output}")


def _export(options: argparse.Namespace) -> None:
    _prepare_libraries(threads=1)
    from magellan.tools.export import export

    agent = export(options.run, options.output, tuple(options.module))
    for path in agent.damaged:
        print(f"damaged, so an older one is taken: {path}")
    print(f"agent of {agent.path} ({agent.where}) in {options.output}")


def _embed(options: argparse.Namespace) -> None:
    _prepare_libraries(threads=1)
    from magellan.tools.embed import embed

    agent = embed(
        options.run,
        options.output,
        options.per_category,
        options.seed,
        _backend(options),
        tuple(options.module),
    )
    for path in agent.damaged:
        print(f"damaged, so an older one is taken: {path}")
    print(f"goals as read from before training to {agent.where} in {options.output}")


def _critic(options: argparse.Namespace) -> None:
    _prepare_libraries(threads=1)
    from magellan.tools.embed import check_numbers, drawn_sets
    from magellan.tools.trained import TrainedAgent
    from magellan.training.evaluate import look_by_category

    check_numbers(options.per_category, options.seed)
    agent = TrainedAgent.read(options.run, tuple(options.module))
    sets = drawn_sets(agent, options.per_category, options.seed)
    backend = agent.backend(_backend(options))
    print(
        f"agent of {agent.path} ({agent.where})\nsplit    category          value  dormant spread"
    )
    for goals in sets:
        found = look_by_category(backend, goals, options.seed, goals.space.world.environment)
        for category, look in found.items():
            numbers = " ".join(f"{number:7.3f}" for number in look.values())
            print(f"{goals.space.split:8} {category:15} {numbers}")


def _watch(options: argparse.Namespace) -> None:
    _prepare_libraries(threads=1)
    from magellan.tools.trained import TrainedAgent
    from magellan.tools.watch import check_words, chosen_goal, watch

    wanted = options.goal, options.objects, options.category, options.seed
    check_words(*wanted)
    agent = TrainedAgent.read(options.run, tuple(options.module))
    goals, position = chosen_goal(agent, *wanted)
    backend = agent.backend(_backend(options))
    pause = sys.stdin if options.steps else None
    watch(agent, backend, goals, position, options.seed, options.greedy, sys.stdout, pause)


def _prepare_libraries(threads: int) -> None:
    """Set what libraries read once, when they are imported."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _play(options: argparse.Namespace) -> None:
    load_modules(options.module)
    world = WORLDS.find(options.world, "--world")
    world.play(options.goal_space, options.seed, options.category, sys.stdin, sys.stdout)


def _goals(options: argparse.Namespace) -> None:
    from magellan.worlds.base import describe

    if options.seed < 0:
        raise InputError(f"--seed: {options.seed} is not allowed; allowed: 0 or more")
    load_modules(options.module)
    world = WORLDS.find(options.world, "--world")
    print(describe(world, options.size, options.seed, options.split))


def _backbone(options: argparse.Namespace) -> None:
    _check_backbone_options(options)
    from magellan.jobs.folder import check_no_run

    check_no_run(options.output)
    load_modules(options.module)
    if options.world is not None:
        world = WORLDS.find(options.world, "--world")
        from magellan.pretraining.own_words import write

        print(json.dumps(write(world, options.output)))
        return
    from magellan.pretraining.build import make

    print(json.dumps(make(options.wheel, options.output, options.name or "zoo-reader")))


def _check_backbone_options(options: argparse.Namespace) -> None:
    """A model is made from a wheel or for a world."""
    if options.wheel is None and options.world is None:
        raise InputError("--wheel: is missing; allowed: a wheel with SmolLM2-135M, or --world NAME")
    for name in ("wheel", "name"):
        if options.world is not None and getattr(options, name) is not None:
            raise InputError(
                f"--{name}: not allowed with --world; allowed: a world, or a wheel with the name "
                "of a model"
            )


def _bench(options: argparse.Namespace) -> None:
    of_one = (options.device, options.model, options.dtype, *options.set)
    if options.only and any(each is not None for each in of_one):
        raise InputError("--only: not allowed with one model; allowed: groups, or --model")
    settings = [parse_assignment(text) for text in options.set]
    given = resolve_run("paper", settings).threads if settings else 1
    _prepare_libraries(given)
    try:
        from benchmarks.run import run
    except ModuleNotFoundError as error:
        if error.name not in ("benchmarks", "benchmarks.run"):
            raise
        raise InputError(
            "bench: the package `benchmarks` is absent; run this in a clone of the repository"
        ) from None
    if any(each is not None for each in of_one):
        from benchmarks.device import run_device

        named = options.model, options.device, options.dtype
        print(run_device(options.output, *named, settings, options.quick), end="")
        return
    print(run(options.output, options.only, options.quick), end="")


def _schema(_: argparse.Namespace) -> None:
    print(json.dumps(experiment_schema(), indent=2))


def _check(options: argparse.Namespace) -> None:
    values = read_yaml(options.config)
    if not options.run_modules:
        refuse_modules(values.get("modules"))
    experiment = load_experiment(values)
    check_named(values, f"config file: {options.config}")
    for run in grid(experiment):
        variant = f"/{run.variant}" if experiment.variants else ""
        print(f"{run.sampler}{variant}/{run.goal_space}/seed{run.seed}")
