"""Makes a site of pages that are written for the repository.

Some pages lie outside docs/ (README, model cards, configuration). They are taken in under a name of
the site; links are turned to match. A link to code becomes the name of the file.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "DEVIATIONS.md": "deviations.md",
    "config/README.md": "configuration.md",
    "results/reference/bench/bench.md": "bench.md",
    "magellan/backbones/zoo-mini/README.md": "zoo-mini.md",
    "magellan/backbones/zoo-reader/README.md": "zoo-reader.md",
    "magellan/backbones/craft-reader/README.md": "craft-reader.md",
    "magellan/backbones/digits-mini/README.md": "digits-mini.md",
}
"""Pages outside docs/ -> their names in the site."""
PICTURES = (".png", ".svg")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"^(```|~~~)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages outside docs/, and the pictures that any page shows."""
    for source, name in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    for page in list(files.documentation_pages()):
        for picture in _pictures(source_of(page.src_uri)):
            if files.get_file_from_path(_name_of(picture)) is None:
                content = (ROOT / picture).read_bytes()
                files.append(File.generated(config, _name_of(picture), content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of a page."""
    return turned(markdown, source_of(page.file.src_uri))


def source_of(name: str) -> str:
    """Where a page of the site lies in the repository."""
    return next((path for path, own in PAGES.items() if own == name), f"docs/{name}")


def turned(markdown: str, source: str) -> str:
    """A page with its links as the site has them; code blocks stay as they are."""
    lines, inside = [], False
    for line in markdown.split("\n"):
        if FENCE.match(line):
            inside = not inside
        lines.append(line if inside else LINK.sub(lambda found: _link(found, source), line))
    return "\n".join(lines)


def _link(found: re.Match[str], source: str) -> str:
    picture, text, target, anchor = found.groups()
    if not target or "://" in target or target.startswith("mailto:"):
        return found.group(0)
    place = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if place in PAGES or place.startswith("docs/") or (picture and place.endswith(PICTURES)):
        name = posixpath.relpath(_name_of(place), posixpath.dirname(_name_of(source)) or ".")
        return f"{picture}[{text}]({name}{anchor or ''})"
    return text if text.strip("`") == place else f"{text} (`{place}`)"


def _name_of(place: str) -> str:
    """Name in the site of a file of the repository."""
    return PAGES.get(place, place.removeprefix("docs/"))


def _pictures(source: str) -> list[str]:
    """Pictures outside docs/ that a page shows."""
    folder = posixpath.dirname(source)
    found = LINK.findall((ROOT / source).read_text())
    places = [posixpath.normpath(posixpath.join(folder, link[2])) for link in found if link[0]]
    return [place for place in places if not place.startswith("docs/")]
