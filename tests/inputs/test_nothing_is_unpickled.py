"""Nothing is pickled or unpickled by any Python or workflow file, whatever the input.

Checkpoints, replay buffers and tables are safetensors, CSV and JSON. The scan walks the syntax tree
of every tracked `.py` file and of what Snakemake makes of every `.smk` file and Snakefile.
"""

from __future__ import annotations

import ast
import io
from types import SimpleNamespace

import pytest
import snakemake.parser
from snakemake.sourcecache import LocalSourceFile

from tests.snippets import ROOT
from tests.test_packaging import tracked_files

MODULES = {
    "pickle", "_pickle", "cPickle", "pickle5", "pickletools", "cloudpickle", "dill", "joblib",
    "jsonpickle", "marshal", "shelve", "copyreg", "skops",
}  # fmt: skip
# Functions of a module; matched wherever the name before the dot was bound to that module.
FUNCTIONS = {
    "torch": {"load", "save", "hub"},
    "yaml": {"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all",
             "Loader", "FullLoader", "UnsafeLoader", "CLoader", "CFullLoader"},
    "numpy": {"load"},
    "pandas": {"read_pickle"},
}  # fmt: skip
METHODS = {"to_pickle", "read_pickle", "__reduce__", "__reduce_ex__"}
DYNAMIC = {"import_module", "__import__"}


def unpickling(source: str) -> list[str]:
    """Uses of pickle in Python source, actual or possible: name and line."""
    tree = ast.parse(source)
    bound = _bound_modules(tree)
    return [
        f"{name} in line {node.lineno}"
        for node in ast.walk(tree)
        for name in _offences(node, bound)
    ]


def _bound_modules(tree: ast.AST) -> dict[str, str]:
    """Local names of modules: `import numpy as np` gives {"np": "numpy"}."""
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name.split(".")[0]] = alias.name.split(".")[0]
    return bound


def _offences(node: ast.AST, bound: dict[str, str]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        module, names = node.module.split(".")[0], {alias.name for alias in node.names}
        banned = names & (FUNCTIONS.get(module, set()) | MODULES)
        return [node.module] if module in MODULES else sorted(banned)
    if isinstance(node, ast.Attribute):
        return _attribute(node, bound)
    if isinstance(node, ast.Call):
        return _call(node)
    if isinstance(node, ast.FunctionDef) and node.name in METHODS:
        return [node.name]
    return []


def _attribute(node: ast.Attribute, bound: dict[str, str]) -> list[str]:
    if node.attr in METHODS | MODULES - {"shelve", "marshal"}:
        return [node.attr]
    if not isinstance(node.value, ast.Name):
        return []
    module = bound.get(node.value.id)
    return [f"{module}.{node.attr}"] if node.attr in FUNCTIONS.get(module or "", ()) else []


def _call(node: ast.Call) -> list[str]:
    """Pickle enabled by an argument, or a module imported by name."""
    offences = [
        f"{keyword.arg}={ast.unparse(keyword.value)}"
        for keyword in node.keywords
        if (keyword.arg in ("allow_pickle", "trust_remote_code", "weights_only"))
        and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
    ]
    called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    if called in DYNAMIC:
        names = [value.value for value in node.args if isinstance(value, ast.Constant)]
        offences += [str(name) for name in names if str(name).split(".")[0] in MODULES]
    return offences


def python_of_workflow(text: str) -> str:
    """Python code that Snakemake generates from a workflow file, with all directives' values."""
    cache = SimpleNamespace(open=lambda _: io.StringIO(text))
    workflow = SimpleNamespace(sourcecache=cache)
    compilation, _ = snakemake.parser.parse(LocalSourceFile("any.smk"), workflow, {})
    return compilation


def sources(*patterns: str) -> dict[str, str]:
    """Text of the project's files by path."""
    paths = [path for path in tracked_files() if any(path.match(pattern) for pattern in patterns)]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def offending(files: dict[str, str]) -> dict[str, list[str]]:
    """Uses of pickle by path, where there are some."""
    uses = {path: unpickling(source) for path, source in files.items()}
    return {path: lines for path, lines in uses.items() if lines}


def test_no_python_file_unpickles():
    files = sources("*.py")
    assert {"magellan/jobs/checkpoint.py", "analysis/tables/store.py"} <= files.keys()
    assert {str(path.relative_to(ROOT)) for path in ROOT.glob("magellan/**/*.py")} <= files.keys()
    assert offending(files) == {}


def test_no_workflow_file_unpickles():
    files = sources("*.smk", "Snakefile")
    assert {"Snakefile", "workflow/Snakefile", "workflow/rules/common.smk"} <= files.keys()
    assert offending({path: python_of_workflow(text) for path, text in files.items()}) == {}


OFFENDING = [
    "import pickle",
    "import numpy, pickle as p",
    "from pickle import loads",
    "from torch import nn, save as put",
    "from numpy import load",
    "from yaml import unsafe_load",
    "import torch\ntorch.load(path)",
    "import torch\ntorch.hub.load('a', 'b')",
    "np.save(path, array, allow_pickle=True)",
    "frame.to_pickle(path)",
    "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)",
    "import importlib\nimportlib.import_module('pickle')",
    "class A:\n    def __reduce__(self): ...",
    "AutoModel.from_pretrained(x, trust_remote_code=True)",
    "import pandas as pd\npd.compat.pickle_compat.load(x)\npd.io.pickle.read_pickle(x)",
]


@pytest.mark.parametrize("source", OFFENDING)
def test_the_scan_sees(source):
    assert unpickling(source)


RULE = "rule a:\n    output:\n        'x',\n"
SHELL = "    shell:\n        'y'\n"
OFFENDING_WORKFLOWS = {
    "before the rules": f"import pickle\n\n{RULE}{SHELL}",
    "in a run block": f"{RULE}    run:\n        import pickle\n        pickle.loads(x)\n",
    "in a directive": f"{RULE}    params:\n        x=lambda w: pd.read_pickle('x'),\n{SHELL}",
}


@pytest.mark.parametrize("case", OFFENDING_WORKFLOWS)
def test_the_scan_sees_it_in_a_workflow_file(case):
    assert unpickling(python_of_workflow(OFFENDING_WORKFLOWS[case]))


@pytest.mark.parametrize(
    "source",
    [
        "from safetensors.torch import load, save",
        "import safetensors.torch\nsafetensors.torch.load(x)",
        "import yaml\nyaml.safe_load(text)",
        "AutoModel.from_pretrained(x, trust_remote_code=False, use_safetensors=True)",
        "'import pickle'",
        "np.save(path, array, allow_pickle=False)",
    ],
)
def test_the_scan_lets_pass(source):
    assert unpickling(source) == []
