"""How processes that lamorel's launcher has started leave each other."""

import pytest

from tests.backends.lamorel.launching import needs_lamorel
from tests.snippets import run_program

pytestmark = needs_lamorel
PROGRAM = """
import sys
from torch import distributed
from magellan.backends.lamorel.connection import leave_groups
backend, place = sys.argv[1:]
leave_groups()
distributed.init_process_group("gloo", init_method=f"file://{place}", rank=0, world_size=1)
distributed.new_group([0], backend="gloo")
own, everyone = distributed.get_backend, (None, distributed.group.WORLD)
distributed.get_backend = lambda group=None: backend if group in everyone else own(group)
leave_groups()
print(distributed.is_initialized(), len(distributed.distributed_c10d._world.pg_map))
"""


@pytest.mark.parametrize(("backend", "expected"), [("gloo", "False 0"), ("nccl", "True 1")])
def test_groups_of_gloo_are_left_and_no_others(backend, expected, tmp_path):
    assert run_program(PROGRAM, backend, str(tmp_path / "store")) == expected
