"""lamorel's three places for code of one's own: a model initializer, which puts adapters into the
model that lamorel has loaded; a module function, which reads; an updater, which changes.

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
    """lamorel's module function: what the model says, without a change to it."""

    def __init__(self, serving: Serving) -> None:
        super().__init__()
        self._serving = serving

    def initialize(self) -> None:
        """Nothing: heads are made when an update is started."""

    def forward(self, contexts: list[str], call: str, arguments: tuple[Any, ...]) -> Any:
        """An answer of `Serving`."""
        return self._serving.answer(contexts, call, arguments)


class Answering(nn.Module):
    """lamorel's model with our module function asked at once.

    lamorel's own `forward` runs the model on texts, every action with a copy of its prompt, and
    ignores which adapter is asked for; a module function sees only what came of that. Ours makes
    passes of its own from arrays, so that pass would be for nothing.
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
        """The answer, for each context; a server has one. lamorel 0.3 says more, of its pass."""
        return [{READING: self.reading(contexts, call, arguments)} for _ in contexts]

    def get_model_config(self) -> Any:
        """The model's, which lamorel 0.3 asks for."""
        return self.llm.get_model_config()  # type: ignore[operator]


class Adopting(BaseModelInitializer):
    """lamorel's model initializer: adapters, and the way past lamorel's own pass."""

    def __init__(self, serving: Serving, reading: Reading) -> None:
        super().__init__()
        self._serving, self._reading = serving, reading

    def initialize_model(self, model: nn.Module) -> nn.Module:
        """Adapters in the model, in place; gives what lamorel is to ask from now on."""
        # The trainer saves on a signal, and ends the servers then.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        device = getattr(model, "main_device", None) or model.device  # lamorel 0.3, 0.2
        self._serving.adopt(model._LLM_model, model._LLM_tokenizer, device)
        return Answering(model, self._reading)


class Changing(BaseUpdater):
    """lamorel's updater: everything that changes the model, its heads or what is kept of them."""

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
        """An answer of `Serving`."""
        return self._serving.answer(contexts, call, arguments)
