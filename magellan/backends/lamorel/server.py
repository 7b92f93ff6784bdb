"""lamorel's three extension points: a model initializer, which adds adapters to the model that
lamorel has loaded; a module function, which reads; an updater, which changes.

Only processes that lamorel started import this.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from lamorel import BaseModelInitializer, BaseModuleFunction, BaseUpdater
from torch import nn

from magellan.backends.lamorel.remote import READING
from magellan.backends.lamorel.serving import Serving


class Reading(BaseModuleFunction):
    """lamorel's module function: calls that only read the model."""

    def __init__(self, serving: Serving) -> None:
        super().__init__()
        self._serving = serving

    def initialize(self) -> None:
        """Do nothing: `start_policy` and `start_competence` make the heads."""

    def forward(self, contexts: list[str], call: str, arguments: tuple[Any, ...]) -> Any:
        """The answer of `Serving`."""
        return self._serving.answer(contexts, call, arguments)


class Answering(nn.Module):
    """lamorel's model, with a `forward` that only calls our module function.

    lamorel's own `forward` runs the model on texts, every action with a copy of its prompt, ignores
    the requested adapter, and passes the result to the module function. Ours runs its own passes on
    arrays, so lamorel's would be wasted.
    """

    def __init__(self, llm: nn.Module, reading: Reading) -> None:
        super().__init__()
        self.llm, self.reading = llm, reading

    def forward(
        self,
        module_function_keys: list[str],
        contexts: list[str],
        call: str,
        arguments: tuple[Any, ...],
        **_: Any,
    ) -> list[Mapping[str, Any]]:
        """The answer for the one context of this server; lamorel 0.3 passes more arguments."""
        return [{READING: self.reading(contexts, call, arguments)} for _ in contexts]

    def get_model_config(self) -> Any:
        """Configuration of the model, for lamorel 0.3."""
        return self.llm.get_model_config()  # type: ignore[operator]


class Adopting(BaseModelInitializer):
    """lamorel's model initializer: adds adapters and bypasses lamorel's own pass."""

    def __init__(self, serving: Serving, reading: Reading) -> None:
        super().__init__()
        self._serving, self._reading = serving, reading

    def initialize_model(self, model: nn.Module) -> nn.Module:
        """Add adapters in place; returns the model for lamorel to call."""
        # On a signal the trainer saves, then stops the servers.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        device = getattr(model, "main_device", None) or model.device  # lamorel 0.3, 0.2
        self._serving.adopt(model._LLM_model, model._LLM_tokenizer, device)
        return Answering(model, self._reading)


class Changing(BaseUpdater):
    """lamorel's updater: calls that change the model, its heads or their snapshots."""

    def __init__(self, serving: Serving) -> None:
        super().__init__()
        self._serving = serving

    def perform_update(
        self,
        contexts: list[str],
        candidates: list[list[str]],
        _current_batch_ids: list[int],
        call: str,
        arguments: tuple[Any, ...],
    ) -> Any:
        """The answer of `Serving`."""
        return self._serving.answer(contexts, call, arguments)
