"""The table of runs: numbers from manifests."""

from analysis.tables import coverage

OLD = {
    "schema_version": 2,
    "status": "complete",
    "preset": "smoke",
    "config": {},
    "identity": "0123456789abcdef",
    "counted": {},
    "driver": None,
    "estimation_episodes": {},
    "sampler": "random",
    "variant": "default",
    "goal_space": "25k",
    "seed": 3,
    "wall_seconds": 120.0,
    "steps": 60_000,
    "updates": 1_875,
    "peak_memory_mb": 590,
    "restarts": 0,
    "device": "cpu",
    "threads": 1,
    "host": "x86_64, 2 cores, Linux",
}
NEW = OLD | {"attempts": 1, "stop_reasons": ["complete"], "saving_seconds": 0.6}
RESTARTED = NEW | {
    "wall_seconds": 240.0,
    "restarts": 2,
    "attempts": 3,
    "stop_reasons": ["killed", "stopped: SIGTERM", "complete"],
}


def row(manifest):
    table = coverage.run_table({"experiment": {"variants": {"default": {}}}, "runs": [manifest]})
    (cells,) = table.rows
    return dict(zip(table.columns, cells, strict=True))


def test_a_run_of_one_attempt():
    assert row(NEW) == {
        "Sampler": "random",
        "Variant": "default",
        "Goal space": "25k",
        "Seed": "3",
        "Minutes": "2.0",
        "Peak memory, MB": "590",
        "Updates": "1,875",
        "Steps/s": "500",
        "Restarts": "0",
        "Attempts": "1",
        "Earlier stops": "none",
        "Saving, % of time": "0.50",
        "Device": "cpu",
        "Threads": "1",
        "Machine": "x86_64, 2 cores, Linux",
    }


def test_a_restarted_run_says_why_and_counts_all_its_saving():
    cells = row(RESTARTED)
    assert cells["Restarts"] == "2"
    assert cells["Attempts"] == "3"
    assert cells["Earlier stops"] == "killed; stopped: SIGTERM"
    assert cells["Saving, % of time"] == "0.25"


def test_what_a_manifest_does_not_say_is_shown_as_such():
    cells = row(OLD)
    absent = {name for name, cell in cells.items() if cell == "n/a"}
    assert absent == {"Attempts", "Earlier stops", "Saving, % of time"}
    bare = {key: OLD[key] for key in ("sampler", "variant", "goal_space", "seed")}
    known = [cell for cell in row(bare).values() if cell != "n/a"]
    assert known == ["random", "default", "25k", "3"]
