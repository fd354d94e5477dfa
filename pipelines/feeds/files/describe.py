"""Feeds in words: what each column of a feed becomes and where it comes from, as `chartferry feeds check` prints it."""

from collections.abc import Iterator

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.terms.values import STEPS, Test, Value
from pipelines.home.counted import counted


def describe(feed: Feed) -> Iterator[tuple[str, str, str]]:
    """Yield for each column of the feed its name, the FHIRPath that it fills, and the origin of its value."""
    for column in feed.kind.columns:
        value = feed.file.columns.get(column.name)
        if value:
            yield column.name, column.element, origin(value)
    for name, value in feed.file.questions.items():
        yield f"question {name}", "QuestionnaireResponse.item", origin(value)
    for comment in feed.file.comments:
        parts = (f"{name} from {origin(value)}" for name, value in comment.parts.items())
        yield "comment", "Task.note", "; ".join(parts)


def describe_taken(feed: Feed) -> str:
    """Describe the rows that the feed takes."""
    return _conditions(feed.file.take) if feed.file.take else "every row"


def describe_skipped(feed: Feed) -> str:
    """Describe the rows that are no records, because one of the conditions is true; empty for none."""
    return _conditions(feed.file.skip, " or ")


def trailer(feed: Feed) -> str | None:
    """Describe the trailer row of the feed's files; None if there is none."""
    says = feed.file.trailer
    if says is None:
        return None
    totals = " and ".join(f"{name} from {origin(value)}" for name, value in says.totals.items())
    return f"a row where {_conditions(says.when)}" + (f", with {totals}" if totals else "")


def origin(value: Value) -> str:
    """Return the origin of a value, in words."""
    text = _source(value)
    for step in value.steps or STEPS:
        if step == "values" and value.values:
            text += f", {counted(len(value.values), 'value')} mapped"
            text += f", all others to {value.otherwise or 'nothing'}" if value.otherwise is not None else ""
        if step == "crosswalk" and value.crosswalk:
            walk = value.crosswalk
            by = f"identifier of {walk.system} at the target" if walk.reference else f"crosswalk {walk.name}"
            text += f", by {by}" + (f" ({walk.from_} to {walk.to})" if walk.from_ else "")
            text += f" where {_conditions(dict(walk.where))}" if walk.where else ""
    if value.scale is not None:
        text += f", times {value.scale}"
    if value.split:
        text += f", split at '{value.split}'"
    if value.by == "display":
        text += ", by the option's display text"
    if value.before:
        text += f", with '{value.before}' before it"
    return text + (f", only when {_conditions(value.when)}" if value.when else "")


def _source(value: Value) -> str:
    if value.column is not None:
        parts = f" ({', '.join(value.each)} of each)" if value.each else ""
        return value.column + parts
    if value.constant is not None:
        return f"always '{value.constant}'"
    combined = {"the first of": value.first, "joined": value.join, "a list of": value.list_}
    for word, values in combined.items():
        if values is not None:
            return f"{word} [{'; '.join(origin(part) for part in values)}]"
    return ""


def _conditions(tests: dict[str, Test], between: str = " and ") -> str:
    return between.join(f"{name} {_condition(test)}" for name, test in tests.items())


def _condition(test: Test) -> str:
    said = {"is": test.is_, "is not": test.not_, "starts with": test.starts, "does not start with": test.not_starts}
    words = [f"{word} {' or '.join(values)}" for word, values in said.items() if values]
    if test.present is not None:
        words.append("is there" if test.present else "is empty")
    return " and ".join(words)
