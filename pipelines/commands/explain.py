"""The description of a feed that `chartferry feeds check` prints."""

from collections.abc import Iterable

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.files.describe import describe, describe_skipped, describe_taken, trailer
from pipelines.feeds.terms.schema import Query
from pipelines.validation.scoring import KNOWN

COPAYMENT = "a payment with a claim_id is a copayment, which may take the patient's balance below zero"
HEADERS = {0: "none", 1: ""}
COPAYMENTS = {
    "ask": "the first file in which all payments are copayments waits for a confirmation (copayments)",
    "all": "a file of which all payments are copayments needs no confirmation (copayments)",
}


def feed_lines(feed: Feed) -> Iterable[str]:
    """Yield the description of a feed: name, files, form, rows, and the origin and target element of each column."""
    file = feed.file
    form = file.format or "csv or ndjson, by the file's name"
    yield f"{feed.name}: {file.kind} to {feed.resource}, source {feed.source}{' (built in)' if feed.builtin else ''}"
    if file.query:
        yield f"  {_query(file.query)}; takes {describe_taken(feed)}"
    else:
        yield f"  files {', '.join(file.files)}; {form}; {file.encoding}; takes {describe_taken(feed)}"
    if left_out := describe_skipped(feed):
        yield f"  leaves out rows with {left_out}"
    for name, join in file.join.items():
        on = " and ".join(f"{one} is {name}.{other}" for one, other in join.on.items())
        each = f", a row for each of {name}" if join.one_row_per else ""
        yield f"  joins {', '.join(join.files)} of the same archive as {name}, where {on}{each}"
    if end := trailer(feed):
        yield f"  ends with {end}"
    if written := _written(feed):
        yield f"  written with {written}"
    if feed.kind.resource == "QuestionnaireResponse":
        scored = list(KNOWN.values()) if file.scored is None else file.scored
        yield f"  warns of responses without all answers to: {', '.join(scored) or 'nothing'}"
    if "claim_id" in file.columns:
        yield f"  {COPAYMENT}"
        yield f"  {COPAYMENTS[file.copayments]}"
    if file.notes == "patient-day":
        yield f"  notes: one per patient and day in {file.timezone}, of responses that name no encounter and no note"
    yield f"  times in {file.timezone}; changed content under a known key: {file.changed}"
    rows = [(f"  {name}", f"from {origin}", f"becomes {element}") for name, element, origin in describe(feed)]
    widths = [max((len(row[at]) for row in rows), default=0) for at in range(2)]
    for first, second, third in rows:
        yield f"{first.ljust(widths[0])}  {second.ljust(widths[1])}  {third}"


def _query(query: Query) -> str:
    """Return the words for a query, as the origin of rows."""
    if not query.watermark:
        return f"a query on {query.database}, all rows each time"
    back = "a day" if query.overlap is None else f"{query.overlap} (days, or the numbers of the watermark)"
    return f"a query on {query.database}, what is new by {query.watermark}, from {back} before the newest known"


def _written(feed: Feed) -> str:
    """Return the feed's settings for the form of rows and numbers that differ from the defaults."""
    file = feed.file
    said = {
        "delimiter": file.delimiter if file.delimiter != "," else "",
        "quote": file.quote if file.quote != '"' else "",
        "escape": file.escape,
        "decimal": file.decimal if file.decimal != "." else "",
        "thousands": file.thousands,
        "currency": " ".join(file.currency),
        "dates": ", ".join(file.dates),
        "sheet": str(file.sheet or ""),
        "header": f"with the cell {file.header_has}"
        if file.header_has
        else HEADERS.get(file.header, f"on line {file.header}"),
    }
    return "; ".join(f"{name} {text!r}" if len(text) == 1 else f"{name} {text}" for name, text in said.items() if text)
