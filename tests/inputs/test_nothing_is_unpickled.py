"""Nothing is pickled or unpickled by any Python or workflow file, whatever the input.

Checkpoints, replay buffers and tables are safetensors, CSV and JSON. The scan reads the names and
operators of every tracked Python and workflow file, without its texts and comments.
"""

from __future__ import annotations

import io
import re
import tokenize

import pytest

from tests.snippets import ROOT
from tests.test_packaging import tracked_files

NEVER = re.compile(
    r"""
    \b(_?pickle|pickle5|pickletools|cPickle|cloudpickle|dill|joblib|jsonpickle|skops)\b
    | \b(marshal|shelve|copyreg|to_pickle|read_pickle|__reduce__|__reduce_ex__)\b
    | \b(allow_pickle|trust_remote_code|weights_only)\ =\ (?!False\b)
    | (?<!\.\ )\btorch\ \.\ (load|save|hub)\b
    | \bfrom\ torch\ import\b.*\b(load|save|hub)\b
    | \b(np|numpy)\ \.\ load\b
    | \bfrom\ numpy\ import\b.*\bload\b
    | \byaml\ \.\ (unsafe_|full_)?load(_all)?\b
    | \byaml\ \.\ C?(Full|Unsafe)?Loader\b
    | \bfrom\ yaml\ import\b.*(\b|_)(load(_all)?|C?(Full|Unsafe)?Loader)\b
    | \bimport\b.*\b(torch|numpy|yaml)\ as\ (?!np\b)  # other names would hide what is above
    """,
    re.VERBOSE,
)
TEXTS = {tokenize.STRING, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.NL}
TEXTS.add(getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))  # from Python 3.12 on


def unpickling(source: str) -> list[str]:
    """Uses of pickle in a Python or workflow file, actual or possible."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = " ".join(token.string for token in tokens if token.type not in TEXTS)
    return [match[0] for match in NEVER.finditer(code)]


def offending(*patterns: str) -> tuple[set[str], dict[str, list[str]]]:
    """Paths of the project's files, and uses of pickle where there are some."""
    paths = [path for path in tracked_files() if any(path.match(pattern) for pattern in patterns)]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    uses = {path: unpickling(text) for path, text in texts.items()}
    return set(texts), {path: found for path, found in uses.items() if found}


def test_no_python_file_unpickles():
    files, uses = offending("*.py")
    assert {"magellan/jobs/checkpoint.py", "analysis/tables/store.py"} <= files
    assert {str(path.relative_to(ROOT)) for path in ROOT.glob("magellan/**/*.py")} <= files
    # What users do with a curriculum's state; by default PyTorch unpickles no code there.
    # prime-rl pickles a sampler's state itself.
    assert uses == {
        "tests/test_curriculum.py": ["torch . save", "torch . load"],
        "tests/integrations/test_prime_rl.py": ["pickle"] * 3,
    }


def test_no_workflow_file_unpickles():
    files, uses = offending("*.smk", "Snakefile")
    assert {"Snakefile", "workflow/Snakefile", "workflow/rules/common.smk"} <= files
    assert uses == {}


RULE = "rule a:\n    output:\n        'x',\n"


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from torch import (\n    nn,\n    save,\n)",
        "import torch\ntorch.load(path)",
        "import torch as t\nt.load(path)",
        "np.save(path, array, allow_pickle=True)",
        "frame.to_pickle(path)",
        "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)",
        "AutoModel.from_pretrained(x, trust_remote_code=True)",
        f"{RULE}    run:\n        import pickle\n        pickle.loads(x)\n",
    ],
)
def test_the_scan_sees(source):
    assert unpickling(source)


@pytest.mark.parametrize(
    "source",
    [
        "from safetensors.torch import load, save",
        "import safetensors.torch\nsafetensors.torch.load(x)",
        "import yaml\nyaml.safe_load(text)",
        "'import pickle'",
        "np.save(path, array, allow_pickle=False)",
    ],
)
def test_the_scan_lets_pass(source):
    assert unpickling(source) == []
