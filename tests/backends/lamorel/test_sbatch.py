"""The job files, with stand-ins for Python and Slurm that write down how they were called."""

import os
import shutil
import subprocess

import pytest

from tests.snippets import ROOT, script

SAMPLERS = ("random", "online", "ek_online", "magellan")
RECORDING = 'echo "$(basename "$0") $LAMOREL_PORT $*" >> {calls}\n{more}'


@pytest.fixture
def project(tmp_path):
    for folder in ("slurm", "config"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "bin").mkdir()
    return tmp_path


def called(project, file, *words, ends="", **environment):
    """Lines that the stand-ins wrote; `ends` is what the run does."""
    for name, more in (("python", ends), ("scontrol", "")):
        script(project / "bin" / name, RECORDING.format(calls=project / "calls", more=more))
    where = {"PATH": f"{project}/bin:{os.environ['PATH']}", "LAMOREL_PYTHON": "python"}
    command = ["bash", f"slurm/{file}", *words, "rl_script_args.lr=1e-3"]
    subprocess.run(command, cwd=project, env={**where, **environment}, check=True)
    return (project / "calls").read_text().splitlines()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_each_sampler_has_a_job_for_each_seed(project, sampler):
    text = (ROOT / "slurm" / f"lamorel_{sampler}.sbatch").read_text()
    assert "#SBATCH --array=0-7\n" in text
    [line] = called(project, f"lamorel_{sampler}.sbatch", SLURM_ARRAY_TASK_ID="3")
    assert f"--config-name local_gpu_config_{sampler} " in line
    assert f"rl_script_args.output_dir=outputs/{sampler}/seed3 " in line
    assert line.endswith("loading_path=null rl_script_args.seed=3 rl_script_args.lr=1e-3")


@pytest.mark.parametrize(
    ("file", "words", "job_name"),
    [
        ("lamorel_magellan.sbatch", ("online",), "lamorel_magellan.sbatch"),
        ("lamorel_magellan.sbatch", (), "online.sl"),  # as the paper calls it: Slurm runs a copy
    ],
)
def test_the_sampler_is_the_first_word_or_in_the_name_of_the_job(project, file, words, job_name):
    [line] = called(project, file, *words, SLURM_JOB_NAME=job_name)
    assert "--config-name local_gpu_config_online " in line


def test_a_job_that_stopped_early_is_put_back_and_goes_on(project):
    lines = called(project, "lamorel_random.sbatch", ends=saves(1), SLURM_JOB_ID="20041")
    assert lines[0].startswith("python 20041 ")
    assert lines[1] == "scontrol 20041 requeue 20041"
    ends = "touch outputs/random/seed0/manifest.json"
    lines = called(project, "lamorel_random.sbatch", ends=ends, SLURM_JOB_ID="7")
    assert "rl_script_args.loading_path=outputs/random/seed0 " in lines[2]
    assert len(lines) == 3


def saves(updates):
    """A run that stops by itself after so many updates, and notes it as a run does."""
    folder = "outputs/random/seed0"
    reason = f"stopped: on SIGTERM: saved 1.safetensors, update {updates}, episode 9; --resume"
    return (
        f"mkdir -p {folder}/checkpoints; touch {folder}/checkpoints/{updates}.safetensors; "
        f'echo \'{{"reason": "{reason}"}}\' >> {folder}/attempts.jsonl'
    )


def test_a_job_that_comes_no_further_is_not_put_back_for_ever(project):
    called(project, "lamorel_random.sbatch", ends=saves(0), SLURM_JOB_ID="7")
    with pytest.raises(subprocess.CalledProcessError):
        called(project, "lamorel_random.sbatch", ends=saves(0), SLURM_JOB_ID="7")
    lines = (project / "calls").read_text().splitlines()
    assert len([line for line in lines if line.startswith("scontrol")]) == 1
    called(project, "lamorel_random.sbatch", ends=saves(3), SLURM_JOB_ID="7")
    assert (project / "calls").read_text().splitlines()[-1].startswith("scontrol")
