"""The summary page: every string is text, whatever it holds."""

from html.parser import HTMLParser

import pytest

from analysis.report.summary_page import TEMPLATE
from analysis.tables.printing import Table

HOSTILE = (
    "</script ><script>alert(1)</script>",
    "<!-- <script>",
    "</td></table>",
    "\"'><img src=x onerror=alert(1)>",
    "&lt;b&gt; &amp; &#60;",
    "</title><style>*{display:none}</style>",
    "{title} {body} %s",
)


class Reader(HTMLParser):
    """What a browser makes of a page: the tags, and all its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data):
        self.text += data + "\n"

    def handle_comment(self, data):
        self.tags.append("comment")


def page_of(text: str) -> str:
    table = Table(text, (text, "b"), ((text, text), ("1", text)))
    figure = {"label": text, "goal_space": text, "data": "", "caption": [text]}
    texts = {name: [text] for name in ("found", "notes", "claims", "limits")}
    pages = {name: [table] for name in ("tables", "numbers", "provenance")}
    return TEMPLATE.render(title=text, **texts, **pages, figures=[figure])


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_string_is_ever_markup(hostile):
    plain, read = Reader(page_of("plain")), Reader(page_of(hostile))
    assert read.tags == plain.tags
    assert read.attributes == plain.attributes
    # Twice the title, four lists, a figure, and of three tables caption, column and three cells.
    assert read.text.count(hostile) == plain.text.count("plain") == 2 + 4 + 3 + 3 * 5
