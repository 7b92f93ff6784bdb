"""Modules of ours, imported while the packages that they need are stand-ins."""

import importlib
import sys
import types
from contextlib import contextmanager

import pytest


@contextmanager
def loaded(name, stand_ins):
    """A module of `magellan.integrations`; members of the stand-ins by their full names."""
    module = f"magellan.integrations.{name}"
    with pytest.MonkeyPatch.context() as patch:
        for path, members in stand_ins.items():
            parts = path.split(".")
            for end in range(1, len(parts)):
                patch.setitem(sys.modules, ".".join(parts[:end]), types.ModuleType(parts[0]))
            patch.setitem(sys.modules, path, types.SimpleNamespace(**members))
        patch.delitem(sys.modules, module, raising=False)
        yield importlib.import_module(module)
        del sys.modules[module]
        delattr(sys.modules["magellan.integrations"], name)  # a real package is imported anew
