"""Lines of a draft: keys with their values, and what a person has to decide of them."""

import json
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from pipelines.feeds.drafting.seen import Seen

DECIDE = "DECIDE"


class Entry(NamedTuple):
    """A key of the feed file with its value as TOML.

    doubt: what a person has to decide, and what was seen; empty where nothing is. note: a remark. columns: those of the
    export that it is about. is_active: False for a proposal, which the draft has as a comment. section: the table that
    the key is in, "" for none. begins: the name of a proposal of
    several lines that this one asks for, goes_with: of the one that it is a part of, "" for none.
    """

    key: str
    value: str
    doubt: str = ""
    note: str = ""
    columns: tuple[Seen, ...] = ()
    is_active: bool = True
    section: str = ""
    begins: str = ""
    goes_with: str = ""

    @property
    def text(self) -> str:
        """The line of the draft."""
        said = f"{DECIDE}: {self.doubt}" if self.doubt else self.note
        line = f"{self.key} = {self.value}" + (f"  # {said}" if said else "")
        return line if self.is_active else f"# {line}"


Line = Entry | str


def as_toml(given: Any) -> str:
    """A text or list of texts as TOML writes it."""
    if isinstance(given, list | tuple):
        return f"[{', '.join(map(as_toml, given))}]"
    return json.dumps(given, ensure_ascii=False).replace("\x7f", "\\u007f")


def rendered(lines: Sequence[Line]) -> str:
    """The text of a draft. The heading of a table without a key is a comment, as its proposals are."""
    active = {"columns"} | {line.section for line in lines if isinstance(line, Entry) and line.is_active}
    return "".join(_rendered(line, active) + "\n" for line in lines)


def _rendered(line: Line, active: Collection[str]) -> str:
    if isinstance(line, Entry):
        return line.text
    return f"# {line}" if line.startswith("[") and line.strip("[]") not in active else line
