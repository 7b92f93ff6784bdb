"""Pages of tables: every string is text, whatever it holds."""

from html.parser import HTMLParser

import pytest

from analysis.tables.printing import Table, page

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
    return page(text, [table], note=text)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_string_is_ever_markup(hostile):
    plain, read = Reader(page_of("plain")), Reader(page_of(hostile))
    assert read.tags == plain.tags
    assert read.attributes == plain.attributes
    # Title, note, caption, column and three cells.
    assert read.text.count(hostile) == plain.text.count("plain") == 7
