"""No Python or workflow file pickles or unpickles anything, whatever the input.

Checkpoints, replay buffers and tables are safetensors, CSV and JSON.
"""

import re
from pathlib import Path

from tests.snippets import ROOT
from tests.test_packaging import tracked_files

NEVER = re.compile(
    r"(?:import|from) (?:_?pickle|cloudpickle|dill|joblib|marshal|shelve)\b|\b(?:to|read)_pickle\("
    r"|(?:allow_pickle|trust_remote_code|weights_only)=(?!False)|\b(?:np|numpy)\.load\b"
    r"|(?<!\.)\btorch\.(?:load|save|hub)\b|from torch import .*\b(?:load|save|hub)\b"
    r"|\byaml\.(?:(?:unsafe_|full_)?load(?:_all)?|C?(?:Full|Unsafe)?Loader)\b"
)


def test_no_file_unpickles():
    found = {}
    for path in tracked_files():
        code = path.suffix in (".py", ".smk") or path.name == "Snakefile"
        if code and path != ROOT / "tests/inputs" / Path(__file__).name:
            found[str(path.relative_to(ROOT))] = NEVER.findall(path.read_text(encoding="utf-8"))
    assert {"magellan/jobs/checkpoint.py", "workflow/rules/common.smk"} <= found.keys()
    # What users do with a curriculum's state; by default PyTorch unpickles no code there.
    # prime-rl pickles a sampler's state itself.
    assert {name: uses for name, uses in found.items() if uses} == {
        "magellan/curriculum/curriculum.py": ["torch.load"],
        "tests/integrations/test_prime_rl.py": ["import pickle"],
        "tests/test_curriculum.py": ["torch.save", "torch.load", "torch.load"],
    }
