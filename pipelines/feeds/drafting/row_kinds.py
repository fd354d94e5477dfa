"""Columns that distinguish kinds of rows, and lines that are no records: proposals of rows to take or skip."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from pipelines.feeds.drafting.entries import FeedEntry, as_toml
from pipelines.feeds.drafting.seen_column import SeenColumn
from pipelines.feeds.drafting.sniffing import Export
from pipelines.feeds.files.rules import ASKED
from pipelines.feeds.terms.totals import total_word

LINES = 5
_TELLING = set("type typ kind art status state method transaction category class direction vorgang event".split())
_LONG = 4
_ROWS = set("type typ kind art status state transaction vorgang event".split())
_CARDS = {"debit"}
_MEANS = set("method mode tender".split())
_CODED = set("response result".split())
_FLAGS = [{"true", "false"}, {"yes", "no"}, {"y", "n"}, {"0", "1"}, {"t", "f"}]
_FLAGGED = set("paid captured settled approved void voided refunded deleted cancelled canceled reversed failed".split())
_OF_ANSWERS = set("status finished complete type progress".split())
_NO_PAYMENT = re.compile(
    r"charge|transfer|adjust|refund|void|invoice|withdraw|fail|fehl|pending|revers|write|debit(?! card)|lastschrift"
    r"|storno|declin|\binsur|\bins\b|cancel|estimate|chargeback|erstattung",
    re.IGNORECASE,
)
_COPAYMENT = re.compile(r"\bco-?pay|zuzahlung|selbstbehalt", re.IGNORECASE)


def telling(columns: Sequence[SeenColumn], kind: str) -> list[SeenColumn]:
    """Return the columns whose few texts distinguish kinds of rows."""
    words = {"payments": _TELLING, "answers": _OF_ANSWERS}.get(kind, set())
    return [
        seen
        for seen in columns
        if seen.codes
        and seen.look == "text"
        and set(seen.words) & words
        and len(seen.words) < _LONG
        and not _is_of_card(seen)
    ]


def _is_of_card(seen: SeenColumn) -> bool:
    """True if a column tells how a card was checked: named like a check, with texts of a letter or two."""
    words = set(seen.words)
    return all(len(code) <= _CHECKED for code in seen.codes) and bool(
        words & {"avs", "cvv", "cvc", "verification"} or words >= {"card", "code"}
    )


_CHECKED = 2


def _flags(columns: Sequence[SeenColumn]) -> list[SeenColumn]:
    """Return the yes/no columns that say if a row counts, such as `paid` or `voided`."""
    return [
        seen
        for seen in columns
        if {cell.lower() for cell in seen.cells} in _FLAGS and set(seen.words) & _FLAGGED and len(seen.words) < _LONG
    ]


def _numbered(columns: Sequence[SeenColumn]) -> list[SeenColumn]:
    """Return the columns of a few numbers that say if a payment was accepted, such as `Response Code`."""
    return [seen for seen in columns if seen.is_coded and seen.look == "number" and set(seen.words) & _CODED]


def _tells_other_rows(seen: SeenColumn) -> bool:
    """True if some of its few texts say that a row is no received payment, whatever the column's name."""
    if seen.look != "text" or len(seen.words) >= _LONG:
        return False
    found = {match[0].lower() for code in seen.codes if (match := _NO_PAYMENT.search(code))}
    return bool(found - _CARDS if "card" in seen.words else found)


def copayments(columns: Sequence[SeenColumn]) -> tuple[SeenColumn, list[str]] | None:
    """Return the column that marks copayments, and its texts that do; None if there is none."""
    for seen in columns:
        if found := [code for code in seen.codes if _COPAYMENT.search(code)]:
            return seen, found
    return None


def rows_to_take(columns: Sequence[SeenColumn], kind: str, *, in_doubt: bool) -> Iterator[FeedEntry]:
    """Yield the rows to take. in_doubt: True if several columns have amounts, as charges and payments do."""
    found = telling(columns, kind)
    charging = [seen for seen in columns if _tells_other_rows(seen)] if kind == "payments" else []
    must = charging or (found[:1] if in_doubt else [])
    flags = _flags(columns) if kind != "tasks" else []
    if kind == "payments":
        must, found = [*must, *flags], [*found, *_numbered(columns)]
    open_ = [seen for seen in found if kind != "payments" or _tells_rows(seen)]
    for seen in dict.fromkeys([*must, *open_, *flags]):
        asked = "which rows are payments received? It has " if kind == "payments" else "are all rows wanted? It has "
        yield FeedEntry(
            as_toml(seen.name), as_toml(ASKED), asked + _counted(seen), columns=(seen,), is_active=seen in must,
            section="take",
        )  # fmt: skip


def _tells_rows(seen: SeenColumn) -> bool:
    words = set(seen.words)
    return bool(words & (_ROWS | (_CODED if seen.look == "number" else set()))) and not words & _MEANS


def _counted(seen: SeenColumn) -> str:
    """Return the texts of a column of codes, each with its number among the rows seen."""
    numbers = Counter(seen.cells)
    empty = seen.rows - len(seen.cells)
    told = [f"{as_toml(code)} ({numbers[code]})" for code in seen.codes or sorted(set(seen.cells))] + (
        [f"nothing ({empty})"] if empty else []
    )
    return ", ".join(told)


def rows_to_leave_out(export: Export) -> Iterator[FeedEntry]:
    """Yield the rows to leave out: totals among the rows, and lines below the table."""
    words: dict[int, list[str]] = {}
    lines: dict[int, list[int]] = {}
    for line, texts in export.extras:
        place = min(next(at for at, text in enumerate(texts) if text), len(export.names) - 1)
        words.setdefault(place, []).append(total_word(texts[place]))
        lines.setdefault(place, []).append(line)
    for place, found in words.items():
        said = (
            f"{_lines(lines[place])} begin{'s' * (len(lines[place]) == 1)} with this word, like a total or the end"
            " of a table"
        )
        yield FeedEntry(
            as_toml(export.name_of(place)),
            f"{{ starts = {as_toml(list(dict.fromkeys(found)))} }}",
            said,
            section="skip",
        )


def titles(export: Export) -> Iterator[FeedEntry]:
    """Yield a proposal for titles above a repeated header: only a person knows what the rows below them are."""
    if export.titles:
        doubt = (
            f"{_lines(export.titles)}: a title above a repeated header; does it begin other rows? The rows"
            " below it are rejected, unless"
        )
        yield FeedEntry(
            as_toml(export.name_of(0)),
            as_toml(ASKED),
            f"{doubt} this line names the title",
            is_active=False,
            section="skip",
        )


def _lines(lines: Sequence[int]) -> str:
    more = f" and {len(lines) - LINES} more" if len(lines) > LINES else ""
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:LINES]))}{more}"


def other_tables(export: Export) -> Iterator[str]:
    """Yield a remark on lines where another table seems to begin."""
    if export.again:
        yield (
            f"# DECIDE: {_lines(export.again)}: the names of the columns come again in another order; does a"
            " second table begin there?"
        )


def titles_between(export: Export, kind: str) -> Iterator[FeedEntry]:
    """Yield a proposal for titles between rows of payments: the payments below such a title are rejected."""
    if export.between and kind == "payments":
        doubt = (
            f"{_lines(export.between)}: titles between rows; do they begin rows of another kind? Payments"
            " below them are rejected, unless"
        )
        yield FeedEntry("one_table", "true", f"{doubt} this line is kept", is_active=False)


def trailer(export: Export, key: SeenColumn | None) -> Iterator[FeedEntry]:
    """Yield the proposal for a last row that is unlike the others."""
    if export.trailer is None:
        return
    place = next((at for at, text in enumerate(export.trailer) if text), 0)
    word = total_word(export.trailer[place]) if export.trailer else ""
    column = key.name if key and not word else export.name_of(min(place, len(export.names) - 1))
    when = f"{{ {as_toml(column)} = {f'{{ starts = {as_toml(word)} }}' if word else as_toml(ASKED)} }}"
    said = "the last row is unlike the others; if it is a total, say by which text it is recognised, and what it counts"
    yield FeedEntry("when", when, said, is_active=False, section="trailer")
    counts = 'the column with the number of rows; amount = "..." where it has the sum'
    yield FeedEntry("rows", as_toml(ASKED), note=counts, is_active=False, section="trailer")
