"""Named updates: what the model learns by, the same code in this process and in a server's.

The trainer asks for `sac`, the estimator `learned` for `competence`. A user's own file adds others
with `register_update`, which an estimator of its own then asks for. No torch here: the workflow
reads such files, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from magellan.core.registry import Registry, source_of

if TYPE_CHECKING:
    from magellan.model.backbone import Backbone


class Learner(Protocol):
    """Heads, adapters and optimizers that one update moves."""

    def update(self, data: Any, /) -> dict[str, float]:
        """Move them once; gives losses and other figures by name."""

    def state_dict(self) -> dict[str, Any]:
        """All that `update` changes: tensors and JSON-able values."""

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Put back what `state_dict` gave."""


Builder = Callable[["Backbone", Any, int], Learner]
"""(language model, settings, seed) to what an update moves, in its initial state."""
BuilderT = TypeVar("BuilderT", bound=Builder)


@dataclass(frozen=True)
class UpdateSpec:
    """An update that can be asked for.

    Attributes:
        name: in `Backend.start` and `Backend.update`.
        build: its builder.
        source: file that it comes from.
    """

    name: str
    build: Builder
    source: str = ""


UPDATES: Registry[UpdateSpec] = Registry("update")


def register_update(name: str) -> Callable[[BuilderT], BuilderT]:
    """Decorator of a builder, a function or a class: the update can then be asked for."""

    def add(build: BuilderT) -> BuilderT:
        UPDATES.add(UpdateSpec(name, build, source_of(build)))
        return build

    return add


@register_update("sac")
def _sac(backbone: Backbone, settings: Any, seed: int) -> Learner:
    from magellan.agent.sac import SAC

    return SAC(backbone, settings, seed)


@register_update("competence")
def _competence(backbone: Backbone, settings: Any, seed: int) -> Learner:
    from magellan.agent.competence_head import CompetenceHead

    return CompetenceHead(backbone, settings, seed)
