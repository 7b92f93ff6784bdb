"""Identity of a run: which values count, and which do not."""

import json
from pathlib import Path

import pytest

from analysis.tables.manifests import read_combined_manifest
from magellan.config import (
    counted,
    flat_keys,
    grid,
    hash_of,
    identity,
    load_experiment,
    resolve_run,
    run_model,
    stored_config,
)
from magellan.config.identity import GENERATION, MATTERS_IF
from magellan.config.resolve import RETIRED
from magellan.worlds.little_zoo.goals import canonical_name, parse_goal_space
from tests.runs import refuses

DEFAULTS = Path(__file__).parent / "data" / "defaults.json"
COMMITTED = Path(__file__).parents[1] / "results" / "reference"


def run(sampler="magellan", **layer):
    return resolve_run("reference", [{"sampler": sampler, "goal_space": "2500"}, layer])


def same(config, other):
    return identity(config) == identity(other)


HOW_A_JOB_RUNS = {
    "threads": {"threads": 4},
    "device": {"backend": {"device": "auto"}},
    "micro-batches": {"backend": {"micro_batch": 8}},
    "operations of a GPU": {"backend": {"deterministic": False}},
    "checkpoint interval": {"budget": {"checkpoint_seconds": 7}},
    "export of the agent": {"budget": {"export": True}},
    "checkpoints that are kept": {"budget": {"keep_every": 50}},
    "a value that is the default": {"agent": {"gamma": 0.99}, "competence": {"buffer": 5000}},
    "the same number in another form": {"agent": {"gamma": "0.99"}, "backbone": {"lora_alpha": 32}},
    "the same goal space": {"goal_space": "2.5k"},
    "step size of a fixed temperature": {"agent": {"temperature_learning_rate": 0.5}},
    "groups that nobody draws": {"competence": {"regions": 7, "regroup": 3}},
    "pool of a space that is scored whole": {"competence": {"pool": 5_000}},
    "an end in steps that is not used": {"budget": {"steps": 0, "updates": 0}},
    "constants of an estimator that is not there": {"per_goal": {"window": 7}},
}
WHAT_A_RUN_IS = {
    "seed": {"seed": 9},
    "goal space": {"goal_space": "2501"},
    "goals": {"goals": {"seed": 3}},
    "learning rate": {"agent": {"learning_rate": 5e-4}},
    "target entropy": {"agent": {"temperature": "target_entropy", "target_entropy": 0.5}},
    "backbone": {"backbone": {"lora_rank": 8}},
    "number format": {"backend": {"dtype": "bfloat16"}},
    "weights in 4 bits": {"backbone": {"quantization": "nf4", "lora_mode": "per_token"}},
    "budget": {"budget": {"episodes": 500}},
    "budget in steps": {"budget": {"steps": 500}},
    "its own threshold": {"magellan": {"lp_threshold": 0.02}},
    "its estimator": {"competence": {"delay": 3_200}},
    "pool of a space that is sampled": {"competence": {"pool": 500}},
    "step size of a temperature that learns": {"agent": {"temperature": "released"}},
    "watchers": {"observers": ["per_goal"]},
    "phases": {"phases": [{"until": 60}, {}]},
}


@pytest.mark.parametrize("case", HOW_A_JOB_RUNS)
def test_how_a_job_runs_does_not_count(case):
    assert same(run(), run(**HOW_A_JOB_RUNS[case]))


@pytest.mark.parametrize("case", WHAT_A_RUN_IS)
def test_what_a_run_is_counts(case):
    assert not same(run(), run(**WHAT_A_RUN_IS[case]))


@pytest.mark.parametrize(
    ("sampler", "layer", "counts"),
    [
        ("random", {"competence": {"pool": 500, "delay": 3_200}}, False),
        ("online", {"per_goal": {"window": 10}}, True),
        ("online", {"magellan": {"lp_threshold": 0.5}}, False),
        ("online", {"competence": {"delay": 3_200}, "observers": ["learned"]}, True),
        ("regions", {"competence": {"regions": 7}}, True),
        # The estimator that a sampler follows anyway, and another one.
        ("magellan", {"samplers": {"estimator": "learned"}}, False),
        ("learnability", {"samplers": {"estimator": "learned"}}, True),
    ],
)
def test_a_section_counts_only_for_runs_that_use_it(sampler, layer, counts):
    plain = {"observers": layer["observers"]} if "observers" in layer else {}
    assert same(run(sampler, **plain), run(sampler, **layer)) == (not counts)


def test_episodes_count_only_where_they_end_the_run():
    more, fewer = (run(budget={"steps": 700, "episodes": n}) for n in (12_000, 500))
    assert same(more, fewer)
    assert not same(more, run(budget={"steps": 701}))


def test_the_driver_as_a_watcher_is_no_watcher_and_their_order_does_not_count():
    assert same(run(), run(observers=["learned"]))
    observers = ["per_goal", "expert_buckets"]
    assert same(run(observers=observers), run(observers=observers[::-1]))


def test_a_preset_counts_by_its_values_alone():
    values = run().model_dump(mode="json")
    layer = {key: value for key, value in values.items() if isinstance(value, dict)}
    named = {"sampler": "magellan", "goal_space": "2500"}
    assert same(run(), resolve_run("smoke", [layer, named]))
    assert not same(run(), resolve_run("smoke", [named]))


def test_a_key_that_is_added_remakes_no_run(tmp_path):
    before = identity(run()), identity(run("random"))
    module = tmp_path / "another_sampler.py"
    module.write_text(
        "from magellan.samplers import register_sampler\n"
        "from magellan.core.settings import Section\n"
        "class Settings(Section):\n"
        "    power: float = 2.0\n"
        "@register_sampler('another_sampler', settings=Settings)\n"
        "def build(parts, settings): ...\n"
    )
    added = run(modules=[str(module)])
    assert added.another_sampler.power == 2.0
    assert (identity(added), identity(run("random"))) == before
    other = run("another_sampler", another_sampler={"power": 3.0})
    assert not same(run("another_sampler"), other)
    assert same(run(), run(another_sampler={"power": 3.0}))


def test_the_identity_is_the_hash_of_what_is_counted():
    config = run()
    keys = counted(config)
    assert identity(config) == hash_of(json.loads(json.dumps(keys)))
    assert keys["generation"] == GENERATION
    assert keys["agent.learning_rate"] == 2e-4
    assert "agent.gamma" not in keys
    assert not {"threads", "preset", "modules"} & keys.keys()
    values = flat_keys(config.model_dump(mode="json"))
    assert all(values[key] == value for key, value in keys.items() if key != "generation")


def test_no_default_has_changed_without_a_new_generation():
    """Values equal to their default are not counted, so no default may change silently.

    Where this fails on purpose: raise GENERATION and write the file anew.
    """
    kept = json.loads(DEFAULTS.read_text())
    assert kept["generation"] == GENERATION
    now = flat_keys(run_model()().model_dump(mode="json"))
    assert not kept["defaults"].keys() - now.keys()
    for key, value in kept["defaults"].items():
        assert now[key] == value, key
    assert MATTERS_IF.keys() <= now.keys()


def test_committed_runs_keep_configuration_and_identity():
    folders = [path.parent for path in COMMITTED.glob("*/evaluation.csv")]
    runs = [(folder, run) for folder in folders for run in read_combined_manifest(folder)["runs"]]
    for path, stored in runs:
        assert stored_config(stored["config"], stored["identity"], (), path).seed == stored["seed"]
    assert set().union(*(flat_keys(stored["config"]) for _, stored in runs)) >= RETIRED.keys()


@pytest.mark.parametrize("key", RETIRED)
def test_a_retired_key_with_a_value_that_is_gone_is_refused(key):
    values, (section, name) = run().model_dump(mode="json"), key.split(".")
    values[section][name] = "other"
    message = f"old: config.{key}: 'other' is not an option of .*; allowed: {RETIRED[key]!r}$"
    refuses(message, stored_config, values, identity(run()), (), Path("old"))


CANONICAL = {"25.0k": "25k", "20000-4000-800-160-32": "25k", "1000k": "1M", "393": "392"}
CANONICAL |= {"313-63-13-3-1": "391", "08-4-02-1-1": "8-4-2-1-1", "all": "all"}
CANONICAL |= {"312-62-12-2-0": "312-62-12-2-0"}


@pytest.mark.parametrize(("name", "canonical"), CANONICAL.items())
def test_a_goal_space_has_one_name(name, canonical):
    assert canonical_name(name) == canonical
    assert canonical_name(canonical) == canonical
    assert parse_goal_space(canonical) == parse_goal_space(name)


def test_a_variant_is_run_by_the_samplers_to_which_it_makes_a_difference():
    variants = {"plain": {}, "window": {"competence": {"delay": 3_200}}}
    variants["slow"] = {"agent": {"gamma": 0.5}}
    declared = {"preset": "smoke", "goal_spaces": ["2500"], "seeds": [3], "variants": variants}
    runs = grid(load_experiment({**declared, "samplers": ["random", "magellan"]}))
    own = [(run.sampler, run.variant) for run in runs]
    assert own[:2] == [("random", "plain"), ("random", "slow")]
    assert own[2:] == [("magellan", variant) for variant in ("plain", "window", "slow")]
    assert runs[3].config.competence.delay == 3_200
    assert runs[3].config.competence.batch_size == runs[2].config.competence.batch_size
