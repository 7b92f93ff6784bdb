"""Started by lamorel's launcher in place of magellan/main.py: a model here and the same in servers.

Writes what differs to `rl_script_args.output_dir`/gaps.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def compare(values: Mapping[str, Any]) -> None:
    """In a server this serves until the end."""
    from magellan.backends.lamorel.connection import connect
    from magellan.backends.lamorel.section import read_servers
    from tests.backends.lamorel.models import as_local, local, served

    section = values["lamorel_args"]
    servers = read_servers(section)
    backend = connect(section, servers, served(servers.model))
    expected, exact = (local(servers.model) for _ in range(2))
    gaps = differences(as_local(backend, expected), expected, exact)
    backend.close()
    folder = Path(values["rl_script_args"]["output_dir"])
    (folder / "gaps.json").write_text(json.dumps(gaps, indent=1))


def differences(backend: Any, expected: Any, exact: Any) -> dict[str, Any]:
    """Errors of what is read and of one update of each kind, in multiples of those of the same
    model here, against `exact` in float64; losses; what moved."""
    import numpy as np

    from magellan.backends import CURRENT, DELAYED
    from tests.agent.tiny import in_float64, times
    from tests.backends.lamorel.models import largest_difference, updated
    from tests.backends.models import prompts, some_states

    states, packed = some_states(expected), prompts(expected)
    before = backend.state_dict()

    def read(model: Any) -> dict[str, Any]:
        policy = model.probabilities(states)
        return {
            "probabilities": policy,
            "scores": np.log(np.maximum(policy, 1e-6)),
            "values": model.values(states),
            "competence": model.competence(packed, (CURRENT, DELAYED, 0)),
        }

    def everything(model: Any) -> tuple[dict[str, Any], Any]:
        values, losses = read(model), []
        for learner in ("sac", "competence"):
            loss, values[learner] = updated(model, learner)
            losses.append(loss)
        return values, losses

    (found, losses), (library, _) = map(everything, (backend, expected))
    with in_float64(exact):
        truth, expected_losses = everything(exact)
    after = backend.state_dict()
    moments = after["sac"]["optimizers"]["critic"]
    return {
        "device": backend.device,
        "errors": {name: times(found[name], library[name], truth[name]) for name in found},
        "losses": [losses, expected_losses],
        "current_from_delayed": largest_difference(*truth["competence"][:2]),
        "policy_moved": largest_difference(after["sac"]["adapters"], before["sac"]["adapters"]),
        "critic_reached_adapter": float(np.abs(moments["1"]["exp_avg"]).max()),
    }


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[3])
    import hydra
    from omegaconf import OmegaConf

    @hydra.main(config_path=None, config_name=None, version_base="1.3")
    def main(config: Any) -> None:
        compare(OmegaConf.to_container(config, resolve=True))

    main()
