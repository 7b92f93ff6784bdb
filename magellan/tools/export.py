"""`python -m magellan export`: the agent of a run as files."""

from __future__ import annotations

from pathlib import Path

from magellan.core.errors import InputError
from magellan.jobs.export import agent_files, check_output, write_agent
from magellan.tools.trained import MALFORMED, TrainedAgent


def export(run: Path, output: Path, modules: tuple[str, ...] = ()) -> TrainedAgent:
    """Write adapters, heads and model card of a run's newest whole checkpoint.

    Args:
        run: folder of the run, which is not changed.
        output: folder to make.
        modules: see `TrainedAgent.read`.

    Raises:
        InputError: no agent is there, or `output` is not empty.
        StorageError: a file cannot be written.
    """
    check_output(output)
    agent = TrainedAgent.read(run, modules)
    try:
        files = agent_files(agent.config, agent.state, agent.exported_by, output)
    except InputError:
        raise
    except MALFORMED as error:
        agent.unfit(error)
    write_agent(output, files)
    return agent
