"""Pins and versions; what files import and do not; none names the machine it came from."""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from magellan import __version__
from magellan.jobs.provenance import code_version
from tests.snippets import ROOT, imported

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def pins(lines: list[str]) -> dict[str, str]:
    """`name==version` lines to {name: version}; any other line fails the test."""
    matches = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines]
    assert all(matches), [line for line, match in zip(lines, matches, strict=True) if not match]
    return {canonicalize_name(match[1]): match[2] for match in matches}


def requirements(file: str = "requirements.txt") -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    return pins([line for line in lines if not line.startswith("#")])


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in requirements}


OPTIONAL = {group: names(lines) for group, lines in PROJECT["optional-dependencies"].items()}
BASE = names(PROJECT["dependencies"])
# What requirements.txt has; other extras are for those who want them.
DIRECT = BASE.union(*(OPTIONAL[group] for group in ("model", "workflow", "dev")))

# What the trainers for verl and prime-rl and their tests import.
TRAINERS = {"verl", "ray", "tensordict", "torchdata", "transfer-queue", "prime-rl"}


def tracked_files() -> list[Path]:
    """Tracked files, and untracked ones that git would not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for line in listing.stdout.splitlines() if (path := ROOT / line).is_file()]


def test_conda_environment_has_the_pins_of_requirements() -> None:
    *conda, with_pip = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert conda == ["python=3.11", "pip"]
    assert pins(with_pip["pip"]) == requirements()


def test_every_direct_dependency_is_pinned() -> None:
    assert requirements().keys() >= DIRECT


@pytest.mark.slow
def test_every_imported_package_is_a_direct_dependency() -> None:
    """The files about lamorel, and the site, have environments of their own."""
    with_pip = yaml.safe_load((ROOT / "envs/lamorel.yml").read_text())["dependencies"][-1]["pip"]
    assert {"lamorel", "hydra-core"} <= names(with_pip)
    about = ("magellan/backends/lamorel/", "magellan/launcher/", "tests/backends/lamorel/")
    site, packages = ROOT / "docs" / "hooks.py", packages_distributions()
    for of_lamorel, allowed in (
        (False, {*TRAINERS}.union(*map(OPTIONAL.get, ("sentencepiece", "tensorboard", "trl")))),
        (True, {"hydra", "lamorel", "omegaconf"}),
    ):
        paths = [path for path in tracked_files() if path.suffix == ".py" and path != site]
        chosen = [p for p in paths if str(p.relative_to(ROOT)).startswith(about) == of_lamorel]
        needed = {canonicalize_name(packages.get(n, [n])[0]) for n in third_party(chosen)}
        assert needed <= DIRECT | allowed
    assert third_party([site]) <= requirements("docs/requirements.txt").keys()


def test_a_wheel_brings_one_package_and_needs_little() -> None:
    packages = PYPROJECT["tool"]["setuptools"]["packages"]["find"]
    assert packages == {"include": ["magellan*"]}  # none is called analysis
    assert sorted(BASE) == ["gymnasium", "numpy", "pydantic", "pyyaml"]  # test_curriculum.py
    assert PROJECT["scripts"] == {"magellan": "magellan.__main__:run"}
    assert PROJECT["optional-dependencies"]["all"] == ["magellan-bench[model,workflow]"]


def test_lower_bounds_are_the_same_everywhere() -> None:
    listed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["workflow"]]
    bounds = dict(line.split(">=") for line in listed if ">=" in line)
    assert names(PROJECT["dependencies"]) == names(
        [line for line in PROJECT["dependencies"] if ">=" in line]
    )
    assert bounds["snakemake"] == "9.13.5"
    workflow = (ROOT / "workflow" / "Snakefile").read_text()
    assert f'min_version("{bounds["snakemake"]}")' in workflow
    page = (ROOT / "config" / "README.md").read_text()
    assert f"Snakemake {bounds['snakemake']} or newer" in page
    pinned = requirements()
    for name, oldest in bounds.items():
        assert Version(oldest) <= Version(pinned[canonicalize_name(name)]), name


def third_party(paths: list[Path]) -> set[str]:
    """Top-level modules that files import and that are neither the suite's nor Python's."""
    own = {"magellan", "analysis", "benchmarks", "workflow", "tests"}
    names = {name.split(".")[0] for path in paths for name in imported(path)}
    return names - own - sys.stdlib_module_names


def test_fast_passes_have_one_door() -> None:
    door = "from magellan.fastpath import fast_forward"
    files = [path for path in (ROOT / "magellan").rglob("*.py") if path.parent.name != "fastpath"]
    files += (ROOT / "benchmarks").rglob("*.py")
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert [line for line in lines if "import" in line and "fastpath" in line] == [door]


def test_version_is_the_same_everywhere() -> None:
    version = PROJECT["version"]
    package = re.search(r'__version__ = "(.+)"', (ROOT / "magellan/__init__.py").read_text())[1]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    assert version == package == citation
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_no_file_carries_a_path_of_the_machine_it_was_written_on() -> None:
    roots = [f"/{name}/".encode() for name in ("root", "work")]
    carriers = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if any(root in path.read_bytes() for root in roots)
    ]
    assert carriers == []


NEVER = re.compile(
    r"(?:import|from) (?:_?pickle|cloudpickle|dill|joblib|marshal|shelve)\b|\b(?:to|read)_pickle\("
    r"|(?:allow_pickle|trust_remote_code|weights_only)=(?!False)|\b(?:np|numpy)\.load\b"
    r"|(?<!\.)\btorch\.(?:load|save|hub)\b|from torch import .*\b(?:load|save|hub)\b"
    r"|\byaml\.(?:(?:unsafe_|full_)?load(?:_all)?|C?(?:Full|Unsafe)?Loader)\b"
)


def test_no_file_unpickles() -> None:
    found = {}
    for path in tracked_files():
        code = path.suffix in (".py", ".smk") or path.name == "Snakefile"
        if code and path != Path(__file__):
            found[str(path.relative_to(ROOT))] = NEVER.findall(path.read_text(encoding="utf-8"))
    assert {"magellan/jobs/checkpoint.py", "workflow/rules/common.smk"} <= found.keys()
    # What users do with a curriculum's state; by default PyTorch unpickles no code there.
    # prime-rl pickles a sampler's state itself, Ray a curriculum.
    assert {name: uses for name, uses in found.items() if uses} == {
        "magellan/curriculum/curriculum.py": ["torch.load"],
        "tests/integrations/test_prime_rl.py": ["import pickle"],
        "tests/test_curriculum.py": ["import pickle", "torch.load", "torch.save", "torch.load"],
    }


OWN = ("magellan/worlds/little_zoo/", "magellan/pretraining/", "magellan/worlds/__init__.py")


def test_no_module_and_no_rule_names_little_zoo():
    for folder in ("magellan", "analysis", "workflow"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(OWN):
                assert not [used for used in imported(path) if "little_zoo" in used], name
    for path in (ROOT / "workflow").rglob("*.smk"):
        assert "little_zoo" not in path.read_text(encoding="utf-8"), path


GIT = "git -c user.name=a -c user.email=a@b -c commit.gpgsign=false"
REPOSITORY = f"""mkdir magellan && echo 1 > magellan/data.json && echo 1 > README.md
{GIT} init -q && {GIT} add . && {GIT} commit -qm first && {GIT} rev-parse --short=12 HEAD"""


@pytest.fixture
def commit(tmp_path):
    """That of a repository with a package `magellan` and a file outside it, in `tmp_path`."""
    return subprocess.check_output(["sh", "-ec", REPOSITORY], cwd=tmp_path, text=True).strip()


CHANGES = {"magellan/data.json": ".dirty", "magellan/new.py": ".dirty", "magellan/new.txt": ""}


@pytest.mark.parametrize("changed", CHANGES)
def test_a_tree_that_differs_from_its_commit_is_marked(changed, commit, tmp_path, monkeypatch):
    (tmp_path / changed).write_text("2\n")
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as in a hook
    version = f"{__version__}+{commit}{CHANGES[changed]}"
    assert code_version(tmp_path / "magellan") == version


def test_a_repository_around_an_installed_package_is_ignored(commit, tmp_path, monkeypatch):
    installed = tmp_path / ".venv/lib/python3/site-packages/magellan"
    shutil.copytree(tmp_path / "magellan", installed)
    assert code_version(installed) == __version__
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))  # no git
    assert code_version(tmp_path / "magellan") == __version__
