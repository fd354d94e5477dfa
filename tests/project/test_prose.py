"""Pages are read by strangers: sentences have at most thirty words, and table cells at most two sentences."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
MOST_WORDS, MOST_SENTENCES = 30, 2
CODE_BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LIST_ITEM = re.compile(r"(?:[*-]|\d+\.) +")
CODE, LINK = re.compile(r"`[^`]*`"), re.compile(r"\[([^\]]*)\]\([^)]*\)")
BETWEEN_CELLS = re.compile(r"(?<!\\)\|")
BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])[*)\"]*\s+(?=[*(\"]*[A-Z])")


def plain(text: str) -> str:
    """Return a text with one word for each piece of code, and links by their words."""
    return LINK.sub(r"\1", CODE.sub("Code", text))


def sentences(text: str) -> list[str]:
    return [each for each in BETWEEN_SENTENCES.split(text) if each.strip()]


def cells(page: str) -> Iterator[str]:
    """Yield the cells of all tables."""
    for line in CODE_BLOCK.sub("", page).splitlines():
        if line.startswith("|"):
            yield from BETWEEN_CELLS.split(plain(line).strip().strip("|"))


def paragraphs(page: str) -> Iterator[str]:
    """Yield paragraphs and list items, each on one line; neither code blocks, headings nor tables."""
    lines: list[str] = []
    for line in [*COMMENT.sub("", CODE_BLOCK.sub("\n", page)).splitlines(), ""]:
        text = line.strip()
        begins = LIST_ITEM.match(text)
        if not text or begins or text.startswith(("#", "|")):
            yield plain(" ".join(lines))
            lines.clear()
        if text and not text.startswith(("#", "|")):
            lines.append(text[begins.end() :] if begins else text)


def faults(page: str) -> list[str]:
    """Return the sentences of a page that are too long, and the cells that have too many."""
    texts = [*paragraphs(page), *cells(page)]
    long = [each for text in texts for each in sentences(text) if len(re.findall(r"\S*\w\S*", each)) > MOST_WORDS]
    return long + [cell for cell in cells(page) if len(sentences(cell)) > MOST_SENTENCES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_are_short_and_cells_have_few(page: Path) -> None:
    assert faults(page.read_text(encoding="utf-8")) == []


def test_long_sentences_and_full_cells_are_seen() -> None:
    long = f"It is {'very ' * 28}long."
    assert faults(f"# {long}\n\n```\n{long}\n```\n\n`{long}` is code.\n") == []
    assert faults(f"Short.\n{long}\nShort, too.") == [long]
    assert faults(f"* Short\n* **Bold.** {long} (Short.)\n") == [long]
    assert faults(f"| A | {long} |\n|---|---|\n") == [f" {long} "]
    assert faults(f"1. {'very ' * 20}\n2. {'very ' * 20}\n") == []
    assert faults("| One. Two. |\n| One. `Two`. Three. |\n| One \\| two. Three. |\n") == [" One. Code. Three. "]
