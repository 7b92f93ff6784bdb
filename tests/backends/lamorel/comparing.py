"""Started by lamorel's launcher in place of magellan/main.py: a model here and the same in servers.

Writes what differs to `rl_script_args.output_dir`/gaps.json.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPETITIONS = 10


def compare(values: Mapping[str, Any]) -> None:
    """In a server this serves until the end."""
    from magellan.backends.lamorel.connection import connect
    from magellan.backends.lamorel.section import read_servers
    from tests.backends.lamorel.models import as_local, local, served

    section = values["lamorel_args"]
    servers = read_servers(section)
    backend = connect(section, servers, served(servers.model))
    expected = local(servers.model)
    gaps = differences(as_local(backend, expected), expected)
    backend.close()
    folder = Path(values["rl_script_args"]["output_dir"])
    (folder / "gaps.json").write_text(json.dumps(gaps, indent=1))


def differences(backend: Any, expected: Any) -> dict[str, Any]:
    """Largest differences before and after one update of each kind, and seconds of acting."""
    import numpy as np

    from magellan.backends import CURRENT, DELAYED
    from tests.backends.lamorel.models import largest_difference
    from tests.backends.models import episodes, prompts, some_states, transitions

    states, packed = some_states(expected), prompts(expected)
    policy, expected_policy = (model.probabilities(states) for model in (backend, expected))
    likely = expected_policy > 1e-6
    which = (CURRENT, DELAYED, 0)
    predicted = [model.competence(packed, which) for model in (backend, expected)]
    gaps: dict[str, Any] = {
        "device": backend.device,
        "probabilities": largest_difference(policy, expected_policy),
        "scores": largest_difference(np.log(policy[likely]), np.log(expected_policy[likely])),
        "values": largest_difference(backend.values(states), expected.values(states)),
        "competence": largest_difference(*predicted),
        "current_from_delayed": largest_difference(predicted[1][0], predicted[1][1]),
    }
    before = backend.state_dict()
    losses = []
    for call, data in (
        ("update_policy", transitions(expected)),
        ("update_competence", episodes(expected)),
    ):
        both = [getattr(model, call)(data) for model in (backend, expected)]
        losses.append(largest_difference(*both))
    after = backend.state_dict()
    moments = after["sac"]["optimizers"]["critic"]
    gaps |= {
        "losses": max(losses),
        "parameters": largest_difference(after, expected.state_dict()),
        "policy_moved": largest_difference(after["sac"]["adapters"], before["sac"]["adapters"]),
        "critic_reached_adapter": float(np.abs(moments["1"]["exp_avg"]).max()),
        "seconds": {"lamorel": _seconds(backend, states), "local": _seconds(expected, states)},
    }
    return gaps


def _seconds(backend: Any, states: Any) -> float:
    """Median seconds of one call for the policy."""
    took = []
    for _ in range(REPETITIONS):
        begun = time.perf_counter()
        backend.probabilities(states)
        took.append(time.perf_counter() - begun)
    return sorted(took)[len(took) // 2]


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[3])
    import hydra
    from omegaconf import OmegaConf

    @hydra.main(config_path=None, config_name=None, version_base="1.3")
    def main(config: Any) -> None:
        compare(OmegaConf.to_container(config, resolve=True))

    main()
