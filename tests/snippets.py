"""Code blocks of the documentation, as files: what a page shows is what the tests run."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"<!-- file: (\S+) -->\n```(?:python|yaml)\n(.*?)```\n", re.DOTALL)


def write_files(page: str, folder: Path) -> dict[str, str]:
    """Write the named code blocks of a page into a folder; their paths by name."""
    blocks = dict(BLOCK.findall((ROOT / page).read_text()))
    assert blocks
    for name, text in blocks.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in blocks}
