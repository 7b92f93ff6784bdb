"""Named updates: what the model learns by, the same code in this process and in a server's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from magellan.agent.backbone import Backbone
from magellan.agent.competence_head import CompetenceHead
from magellan.agent.sac import SAC


class Learner(Protocol):
    """Heads, adapters and optimizers that one update moves."""

    def update(self, data: Any, /) -> dict[str, float]:
        """Move them once; gives losses and other figures by name."""

    def state_dict(self) -> dict[str, Any]:
        """All that `update` changes: tensors and JSON-able values."""

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Put back what `state_dict` gave."""


UPDATES: dict[str, Callable[[Backbone, Any, int], Learner]] = {
    "sac": SAC,
    "competence": CompetenceHead,
}
"""Name -> (backbone, settings, seed) to what it moves, in its initial state."""
