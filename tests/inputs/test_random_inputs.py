"""Random input is either accepted, or refused in one line that names its key."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.tables import store
from analysis.tables.manifests import MANIFEST
from magellan.config import flat_keys, identity, load_experiment, read_yaml, resolve_run, run_model
from magellan.config.resolve import nested
from magellan.core.errors import InputError


def outcome(function, *arguments):
    """Return a function's result, or its one-line error."""
    try:
        return function(*arguments), None
    except InputError as error:
        return None, str(error)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.dates(),
    st.lists(st.one_of(st.integers(-2, 9), st.text(max_size=2), st.none()), max_size=3),
    st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), st.integers(), max_size=2),
)
DEFAULTS = run_model()().model_dump()
KEYS = dict.fromkeys([*DEFAULTS, *flat_keys(DEFAULTS)])


@pytest.mark.parametrize("key", KEYS)
def test_any_value_of_a_run_key_is_taken_or_refused_by_key(key):
    @settings(max_examples=25)
    @given(JUNK)
    def check(value):
        config, line = outcome(resolve_run, "smoke", [nested(key.split("."), value)])
        if config is None:
            # Of two incompatible keys either may be named first.
            assert line.startswith(("goal_space = ", key)) or f" {key} = " in line
        else:
            text = json.dumps(config.model_dump(mode="json"), allow_nan=False)
            assert type(config).model_validate(json.loads(text)) == config
            assert len(identity(config)) == 16

    check()


YAML_TEXT = st.one_of(
    st.text(max_size=40),
    st.text("ab:-[]{}#&*!|>\"'\n\t 01.,?%@~<=", max_size=40),
    st.binary(max_size=40),
)


@settings(max_examples=300)
@given(text=YAML_TEXT)
def test_any_file_is_a_mapping_or_refused_by_name(tmp_path, text):
    path = tmp_path / "any.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    values, line = outcome(read_yaml, path)
    if values is None:
        assert line.startswith(f"config file: {path}")
        return
    assert isinstance(values, dict)
    experiment, line = outcome(load_experiment, values)
    assert experiment is not None or line


CSV_NAMES = tuple(f"{name}.csv" for name in store.TABLES)


@pytest.fixture
def folder(places, spoiled):
    return spoiled(places["TABLES"], lambda copy: None)


@settings(max_examples=60)
@given(name=st.sampled_from((*CSV_NAMES, MANIFEST)), data=st.data())
def test_a_file_that_lost_its_end_is_refused(folder, name, data):
    good = (folder / name).read_bytes()
    kept = data.draw(st.integers(0, len(good.rstrip()) - 1))
    (folder / name).write_bytes(good[:kept])
    _, line = outcome(store.load, folder)
    (folder / name).write_bytes(good)
    assert line is not None
    assert name in line
