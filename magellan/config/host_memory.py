"""Memory that a run asks a cluster for, by its configuration (docs/slurm.md, "Memory of a run")."""

from __future__ import annotations

from magellan.config.schema import RunConfig

ON_CPU, ON_GPU = 2000, 4000
"""MB of anything but the model: libraries, goals, replay; libraries for GPUs are larger."""


def host_memory_mb(config: RunConfig, parameters: int) -> int:
    """MB of the machine's own memory, not of a GPU's.

    On a CPU measured with zoo-mini and with a model of 248 million parameters (docs/speed.md):
    weights with their adapters, and what a batch of transitions leaves behind for its gradients.
    With a GPU these are there; here the weights are read in float32, for `merged` with a copy. That
    part is arithmetic. `auto` may find no GPU, and asks for what a CPU needs.

    parameters: numbers in the model's weights.
    """
    merged, batch = config.backbone.lora_mode == "merged", config.agent.batch_size
    if config.backend.device.startswith("cuda"):
        return ON_GPU + round(parameters / 1e6 * (8 if merged else 4))
    each = 15 + 0.2 * batch if merged else 6 + 0.5 * batch
    return ON_CPU + round(parameters / 1e6 * each)
