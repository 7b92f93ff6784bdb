"""The configuration of a run as its own files hold it: checked, never trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from magellan.config.identity import identity
from magellan.config.modules import load_modules
from magellan.config.schema import RunConfig, run_model
from magellan.core.errors import InputError, shown
from magellan.core.settings import validated


def stored_config(
    values: dict[str, Any], stored_identity: Any, modules: tuple[str, ...], path: Path
) -> RunConfig:
    """A run's configuration from what its manifest or checkpoint says.

    Args:
        values: of the configuration.
        stored_identity: of the run, as the file says it.
        modules: Python files with samplers, estimators or worlds of the run that are no part of
            this package; they are run. What the file names is not.
        path: of the file, for errors.

    Raises:
        InputError: not a configuration of this code, or of another run, or one with files of its
            user that `modules` does not name.
    """
    named = values.get("modules")
    if named and not modules:
        raise InputError(
            f"{path}: the run used files of its user, {shown(named)}; name them with --module "
            "if you trust them: they are run"
        )
    load_modules(modules)
    config = validated(run_model(), values, f"{path}: config.")
    if stored_identity != identity(config):
        raise InputError(
            f"{path}: identity is {shown(stored_identity)}, that of its configuration "
            f"{identity(config)}; was it edited, or trained with another version of the code?"
        )
    return config
