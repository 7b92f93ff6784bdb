"""Entry point for Hydra."""

from __future__ import annotations

import sys
from typing import Any

import hydra
from omegaconf import OmegaConf

from magellan.launcher.run import run


@hydra.main(config_path=None, config_name=None, version_base="1.3")
def main(config: Any) -> None:
    """Run one of the launcher's processes with Hydra's configuration as plain values."""
    sys.exit(run(OmegaConf.to_container(config, resolve=True)))
