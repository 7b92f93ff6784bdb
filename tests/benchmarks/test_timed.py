"""What is measured in the time that there is, and what is said of the rest."""

import itertools
from types import SimpleNamespace

import pytest

from benchmarks.timed import MOST_REPETITIONS, Deadline, Timed, timed


@pytest.fixture
def clock():
    return SimpleNamespace(now=0.0, sizes=[])


def slow(clock, seconds_per_unit: float, start: float = 0.0, once: float = 0.0):
    """An operation that takes so long for each unit of its size, and makes the clock go on.

    `once` is what the first call of all takes besides.
    """

    def make(size: int):
        def run() -> None:
            clock.now += start + seconds_per_unit * size + (0.0 if clock.sizes else once)
            clock.sizes.append(size)

        return run

    return make


def measure(clock, make, total: int, seconds: float) -> Timed:
    deadline = Deadline(1000.0, clock=lambda: clock.now)
    return timed(make, total, 4, seconds, deadline)


def test_a_fast_operation_is_measured_whole_and_often(clock):
    timing = measure(clock, slow(clock, 0.001), 256, seconds=60)
    assert timing == Timed(pytest.approx(0.256), MOST_REPETITIONS, 256, 256)
    assert timing.note("goals") == ""
    assert clock.sizes.count(256) == MOST_REPETITIONS + 1


def test_a_slow_operation_is_measured_in_part_with_a_note(clock):
    timing = measure(clock, slow(clock, 1.0), 256, seconds=60)
    assert 8 <= timing.measured < 60
    assert timing.total == 256
    assert timing.seconds == pytest.approx(256.0)
    assert f"measured on {timing.measured} of 256 goals" in timing.note("goals")
    assert clock.now < 70


def test_an_operation_that_is_too_slow_is_measured_once(clock):
    timing = measure(clock, slow(clock, 100.0), 256, seconds=60)
    assert clock.sizes == [4]
    assert (timing.repetitions, timing.first) == (1, True)
    assert timing.note("goals") == "measured on 4 of 256 goals; first call, nothing was warm"


def test_growth_goes_by_steps_as_small_ones_say_little(clock):
    """A start of a second hides that each unit takes none: sizes still grow 16-fold at most."""
    measure(clock, slow(clock, 0.0, start=1.0), 100_000, seconds=1000)
    sizes = list(dict.fromkeys(clock.sizes))
    assert all(larger <= 16 * smaller for smaller, larger in itertools.pairwise(sizes))
    assert sizes[-1] == 100_000


def test_a_cold_first_call_does_not_keep_sizes_small(clock):
    """As on a GPU, where batches of all sizes take as long, and the first call ten times that."""
    timing = measure(clock, slow(clock, 0.0, start=0.4, once=5.0), 256, seconds=20)
    assert (timing.measured, timing.seconds) == (256, pytest.approx(0.4))


def test_time_that_is_left():
    now = SimpleNamespace(at=0.0)
    deadline = Deadline(10.0, clock=lambda: now.at)
    now.at = 4.0
    assert deadline.left == 6.0
    now.at = 40.0
    assert deadline.left == 0.0
