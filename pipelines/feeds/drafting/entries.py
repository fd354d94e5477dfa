"""Lines of a draft: keys with their values, and what a person must decide about them."""

import json
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from pipelines.feeds.drafting.seen_column import SeenColumn

DECIDE = "DECIDE"


class FeedEntry(NamedTuple):
    """A key of the feed file with its value as TOML.

    * doubt: what a person must decide, and what was seen; "" if there is nothing to decide.
    * note: a remark.
    * columns: the columns of the export that the line is about.
    * is_active: False for a proposal, which is a comment in the draft.
    * section: the table of the key; "" for none.
    * begins: the name of a proposal of several lines that this line asks for; "" for none.
    * goes_with: the name of the proposal that this line is part of; "" for none.
    """

    key: str
    value: str
    doubt: str = ""
    note: str = ""
    columns: tuple[SeenColumn, ...] = ()
    is_active: bool = True
    section: str = ""
    begins: str = ""
    goes_with: str = ""

    @property
    def text(self) -> str:
        """Return the line of the draft."""
        said = f"{DECIDE}: {self.doubt}" if self.doubt else self.note
        line = f"{self.key} = {self.value}" + (f"  # {said}" if said else "")
        return line if self.is_active else f"# {line}"


Line = FeedEntry | str


def as_toml(given: Any) -> str:
    """Return a text or list of texts as TOML."""
    if isinstance(given, list | tuple):
        return f"[{', '.join(map(as_toml, given))}]"
    return json.dumps(given, ensure_ascii=False).replace("\x7f", "\\u007f")


def rendered(lines: Sequence[Line]) -> str:
    """Return the text of a draft. A table heading without an active key is commented out, like its proposals."""
    active = {"columns"} | {line.section for line in lines if isinstance(line, FeedEntry) and line.is_active}
    return "".join(_rendered(line, active) + "\n" for line in lines)


def _rendered(line: Line, active: Collection[str]) -> str:
    if isinstance(line, FeedEntry):
        return line.text
    return f"# {line}" if line.startswith("[") and line.strip("[]") not in active else line
