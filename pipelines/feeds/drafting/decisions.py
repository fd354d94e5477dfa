"""Ask about the lines of a draft that say DECIDE, one by one, with the values of the columns concerned.

Values are shown to the person who decides, and go nowhere else.
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from pipelines.feeds.drafting.entries import FeedEntry, Line, as_toml
from pipelines.feeds.drafting.seen_column import SeenColumn
from pipelines.feeds.files.rules import ASKED
from pipelines.home.counted import counted

SHOWN = 6
LONGEST = 60
LEAVE, TAKE = "-", "+"
Ask = Callable[[Sequence[str]], str | None]
"""Show lines and return the answer; None if no more answers come."""


def lines_with_answers(lines: Sequence[Line], ask: Ask) -> list[Line]:
    """Return the lines with the answers. Lines after the last answer stay undecided."""
    found: list[Line] = []
    taken: dict[str, bool] = {}
    number = sum(isinstance(line, FeedEntry) and bool(line.doubt) and not line.goes_with for line in lines)
    done = 0
    is_over = False
    for line in (_as_its_proposal(line, taken) for line in lines):
        own = _taken_from(lines, taken)
        if isinstance(line, FeedEntry) and (
            any(_is_settled(line, other) for other in found) or _is_replaced(line, own)
        ):
            number -= bool(line.doubt) and not line.goes_with
            continue
        if isinstance(line, FeedEntry) and line.doubt and not is_over and (line.is_active or not line.goes_with):
            done += 1
            answer = ask([f"{done} of {number}", *_question(line)])
            is_over = answer is None
            found.append(line if answer is None else _answered(line, answer.strip()))
            if line.begins and isinstance(found[-1], FeedEntry) and answer is not None:
                taken[line.begins] = found[-1].is_active
                number += found[-1].is_active and sum(
                    isinstance(other, FeedEntry) and other.goes_with == line.begins and bool(other.doubt)
                    for other in lines
                )
            continue
        found.append(line)
    own = _taken_from(lines, taken)
    return [line for line in found if not _is_replaced(line, own)]


def _as_its_proposal(line: Line, taken: Mapping[str, bool]) -> Line:
    """Return a line of a proposal as the proposal was decided. taken: the decided proposals, True if accepted."""
    if not isinstance(line, FeedEntry) or line.goes_with not in taken:
        return line
    return line._replace(is_active=True) if taken[line.goes_with] else line._replace(doubt="")


def _is_replaced(line: Line, own: Collection[tuple[str, str]]) -> bool:
    """True if an accepted proposal has the key of a line. own: the keys of accepted proposals."""
    return isinstance(line, FeedEntry) and not line.goes_with and (line.section, line.key) in own


def _taken_from(lines: Sequence[Line], taken: Mapping[str, bool]) -> set[tuple[str, str]]:
    """Return the places and keys of accepted proposals. They replace the first table's lines with these keys."""
    own = {(line.section, line.key) for line in lines if isinstance(line, FeedEntry) and taken.get(line.goes_with)}
    if ("columns", "comment") in own:  # the comment's author and time come from the joined table too
        own |= {("columns", "comment_author_id"), ("columns", "comment_time")}
    return own


def _is_settled(entry: FeedEntry, other: Line) -> bool:
    """True if a decided line already has the key of this proposal, so that the proposal is settled."""
    if not isinstance(other, FeedEntry) or (other.section, other.key) != (entry.section, entry.key):
        return False
    return not entry.is_active and other.is_active and entry.key != as_toml(ASKED)


def _question(entry: FeedEntry) -> Iterator[str]:
    yield f"  {entry.key} = {entry.value}" + ("" if entry.is_active else "  (proposed)")
    yield f"  {entry.doubt}"
    for seen in dict.fromkeys(entry.columns):
        yield f"  {as_toml(seen.name)}: {_values(seen)}"
    if entry.begins:
        yield f"{TAKE} takes it, Enter or any other answer leaves it out"
        return
    keep = "takes it as it is" if entry.is_active else "leaves it out"
    other = f"{LEAVE} leaves it out" if entry.is_active else f"{TAKE} takes it"
    what = "the question's linkId or code takes it" if entry.section == "questions" else "a value replaces it"
    yield f"Enter {keep}, {what}" + ("" if entry.section == "questions" else f", {other}")


def _values(seen: SeenColumn) -> str:
    """Return the most frequent values of a column, and the number of others."""
    counts = Counter(seen.cells)
    told = [f"{_short(text)} ({number})" if number > 1 else _short(text) for text, number in counts.most_common(SHOWN)]
    more = len(counts) - len(told)
    return ", ".join(told) + (f" and {counted(more, 'other')}" if more else "") if told else "nothing"


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return as_toml(plain if len(plain) <= LONGEST else plain[: LONGEST - 3] + "...")


def _answered(entry: FeedEntry, answer: str) -> FeedEntry:
    """Return the line as it was decided."""
    settled = entry._replace(doubt="")
    if entry.section == "questions":
        return settled._replace(key=as_toml(answer), is_active=True) if answer else settled
    if not answer:
        return settled
    if entry.begins:
        return settled._replace(is_active=answer == TAKE)
    if answer in (LEAVE, TAKE):
        return settled._replace(is_active=answer == TAKE)
    return settled._replace(value=_value(entry, answer), is_active=True)


def _value(entry: FeedEntry, answer: str) -> str:
    """Return the answer as TOML: unchanged if it is a value of the line's kind, else as a text."""
    try:
        given = tomllib.loads(f"value = {answer}")
    except tomllib.TOMLDecodeError:
        return as_toml(answer)
    is_text = entry.value.startswith('"') and entry.section != "columns"
    wrong = list(given) != ["value"] or (is_text and not isinstance(given["value"], str | list | dict))
    return as_toml(answer) if wrong else answer
