"""The source column of each element of a body, as reasons of rejects name it."""

import json
import re
from collections.abc import Sequence

from pipelines.feeds.terms.columns import RecordKind
from pipelines.feeds.terms.schema import CONSTANT, FeedFile, source_label

ITEM = re.compile(r"\w+\.item\[(\d+)\]")


class Origins:
    """The source columns that elements come from. labels: these columns, by our column or `questions.<name>`."""

    def __init__(self, file: FeedFile, kind: RecordKind) -> None:
        self.labels = {name: source_label(value) for name, value in file.columns.items()}
        self.labels |= {f"questions.{name}": source_label(value) for name, value in file.questions.items()}
        if file.comments:
            self.labels["comments"] = ", ".join(source_label(comment.text) for comment in file.comments)
        self.key, self._kind = kind.columns[0], kind
        self._mapped = [column for column in kind.columns if column.name in self.labels]
        self._wide = bool(file.questions)

    def told(self, column: str) -> str:
        """Return the source columns of one of our columns, as a sentence names them."""
        label = self.labels.get(column) or column
        return f"{column} {label}" if label == CONSTANT else label

    def of(self, expression: str, places: Sequence[str] = ()) -> str | None:
        """Return the source column of the element at an expression. places: see `Built`."""
        if places and (item := ITEM.match(expression)):
            return self.labels.get(places[int(item[1])])
        near = [column for column in self._mapped if expression.startswith(column.element)]
        exact = [column for column in near if column.tail and column.tail in expression]
        if not exact and (lacking := self._lacking(expression)):
            return lacking
        return next((self.labels[column.name] for column in exact or near), None)

    def _lacking(self, expression: str) -> str | None:
        """Return our column of an element that several columns fill, if the feed does not map it; else None."""
        names = (column.name for column in self._kind.columns if column.tail and column.name not in self.labels)
        at = {column.name: column for column in self._kind.columns}
        found = (name for name in names if expression.startswith(at[name].element) and at[name].tail in expression)
        own = any(name in self.labels for name in ("comment", "question"))
        return next((f"{name}, which the feed does not map" for name in found if own), None)

    def in_body(self, expression: str, body: str) -> str | None:
        """Return the source column of an element in a stored body; only its linkId shows the question."""
        if not self._wide or ITEM.match(expression) is None:
            return self.of(expression)
        items = json.loads(body).get("item", ())
        return self.of(expression, [f"questions.{item.get('linkId')}" for item in items])
