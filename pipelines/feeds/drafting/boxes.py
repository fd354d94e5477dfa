"""Columns that hold a box each, of one question with several answers: `symptoms___1`, `Symptoms (choice=Cough)`."""

import re
from collections.abc import Iterator, Sequence

from pipelines.feeds.drafting.entries import FeedEntry, as_toml
from pipelines.feeds.drafting.seen_column import SeenColumn
from pipelines.feeds.files.rules import ASKED

_NAMED = re.compile(r"(.+?)(?:___(\w+)| \(choice=(.+)\))")
_TICKED = {"0": "1", "1": "1", "Unchecked": "Checked", "Checked": "Checked"}
"""The text of a box that is ticked, by any text of a box."""


def is_box(seen: SeenColumn) -> bool:
    """True if a column is named as a box, and its cells are texts of boxes."""
    return bool(_NAMED.fullmatch(seen.label)) and bool(seen.cells) and set(seen.cells) <= set(_TICKED)


def box_lines(boxes: Sequence[SeenColumn]) -> Iterator[FeedEntry]:
    """Yield a line for each question with boxes."""
    of: dict[str, list[tuple[SeenColumn, str]]] = {}
    for seen in boxes:
        if found := _NAMED.fullmatch(seen.label):
            of.setdefault(found[1], []).append((seen, found[2] or found[3]))
    for options in of.values():
        shows = " (choice=" in options[0][0].label
        parts = ", ".join(
            f"{{ constant = {as_toml(option)}, when = {{ {as_toml(seen.name)} = {as_toml(_TICKED[seen.cells[0]])} }} }}"
            for seen, option in options
        )
        which = "boxes of one question: which? Write its linkId or code, or leave the line out"
        doubt = which if shows else f"{which}. Write for each constant the code of its option"
        value = f"{{ list = [{parts}]" + (', by = "display" }' if shows else " }")
        columns = tuple(seen for seen, _ in options)
        yield FeedEntry(as_toml(ASKED), value, doubt, columns=columns, is_active=False, section="questions")
