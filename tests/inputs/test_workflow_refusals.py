"""Snakemake ends with one error line, and makes nothing, for every bad experiment."""

import pytest

from tests.inputs import cases
from tests.workflow.conftest import Project


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("project"))


@pytest.mark.parametrize("case", cases.WORKFLOWS)
def test_bad_experiment(case, project):
    arguments, text, words = cases.WORKFLOWS[case]
    path = project / "mine.yaml"
    path.write_text(text)
    before = set(project.folder.iterdir())
    done = project.snakemake(*(str(path) if word == "FILE" else word for word in arguments))
    assert done.returncode == 1
    lines = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stdout
    assert "Traceback" not in done.stdout
    assert all(word.replace("FILE", str(path)) in lines[0] for word in words), lines[0]
    assert set(project.folder.iterdir()) - before <= {project / ".snakemake"}
