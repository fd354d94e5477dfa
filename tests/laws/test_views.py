"""The law of views: compiled SQL gives what a plain evaluator of paths and rows gives."""

import json
import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import duckdb
import pytest

from pipelines.reports.views.compile import compile_view
from pipelines.reports.views.definition import Column, Select, View, view_of
from pipelines.reports.views.fhirpath import Binary, Call, Index, Literal, Member, Node, This
from pipelines.reports.views.operators import told_by

SEVERAL = "more than one value where one is allowed"
TEXTS = ["a", "b", "LAB", "Patient/p1", ""]
CODING = {"system": "text", "code": "text", "display": "text"}
CONCEPT = {"coding": [CODING], "text": "text"}
REFERENCE = {"reference": "text", "display": "text"}
REPORT: dict[str, Any] = {
    "id": "text",
    "status": "text",
    "category": [CONCEPT],
    "code": CONCEPT,
    "subject": REFERENCE,
    "performer": [REFERENCE],
    "conclusion": "text",
    "presentedForm": [{"contentType": "text", "title": "text"}],
}


class Dice(random.Random):
    """Makes bodies, paths and views of the elements above."""

    def body(self, shape: Any = REPORT) -> Any:
        if shape == "text":
            return self.choice(TEXTS)
        if isinstance(shape, list):
            return [self.choice([None, *[self.body(shape[0])] * 4]) for _ in range(self.randint(0, 3))]
        return {name: self.body(each) for name, each in shape.items() if self.random() < 0.7}

    def path(self, shape: Any) -> tuple[str, Any]:
        """Return a path from an element, and the shape that it ends at."""
        text, at = "", shape
        while isinstance(at, dict) and (not text or self.random() < 0.8):
            name = self.choice(list(at))
            at = at[name][0] if isinstance(at[name], list) else at[name]
            text += f".{name}"
            end = self.random()
            if end < 0.2 and isinstance(at, dict):
                text += f".where({self.condition(at, 2)})"
            elif end < 0.4:
                text += self.choice([".first()", "[0]", "[1]"])
        return text[1:], at

    def value(self, shape: Any) -> str:
        """Return a path that ends at texts."""
        while True:
            text, at = self.path(shape)
            if at == "text":
                return text

    def condition(self, shape: Any, depth: int = 0) -> str:
        if depth < 3 and self.random() < 0.4:
            one, other = self.condition(shape, depth + 1), self.condition(shape, depth + 1)
            return f"({one} {self.choice(['and', 'or'])} {other})"
        kind = self.choice(["exists", "empty", "not", "equal", "equal", "order"])
        if kind in ("exists", "empty"):
            return f"{self.path(shape)[0]}.{kind}()"
        if kind == "not":
            return f"({self.condition(shape, depth + 1)}).not()"
        if kind == "order":
            return f"id {self.choice(['<', '>='])} 'b'"
        other = self.choice([f"'{self.choice(TEXTS)}'", self.value(shape)])
        return f"{self.value(shape)} {self.choice(['=', '!='])} {other}"

    def column(self, shape: Any, name: str) -> dict[str, Any]:
        if self.random() < 0.3:
            return {"name": name, "path": self.condition(shape), "type": "boolean"}
        path = self.value(shape)
        kind = self.choice(["first", "join", "collection", "index", "single"])
        if kind == "index":
            return {"name": name, "path": "%rowIndex", "type": "integer"}
        more = {"first": ".first()", "join": ".join('+')"}.get(kind, "")
        return {"name": name, "path": path + more, "type": "string", "collection": kind == "collection"}

    def select(self, shape: Any, names: Iterator[str], depth: int = 0) -> dict[str, Any]:
        made: dict[str, Any] = {}
        path, at = self.path(shape)
        if at != "text" and self.random() < 0.6:
            made[self.choice(["forEach", "forEachOrNull"])] = path
            shape = at
        made["column"] = [self.column(shape, next(names)) for _ in range(self.randint(1, 2))]
        if depth < 2 and self.random() < 0.5:
            made["select"] = [self.select(shape, names, depth + 1) for _ in range(self.randint(1, 2))]
        if depth < 2 and self.random() < 0.4:
            name = next(names)
            parts = [self.select(shape, iter([name] * 2), 9) for _ in range(2)]
            for part in parts:
                part["column"] = [{"name": name, "path": f"'{self.random()}'", "type": "string"}]
            made["unionAll"] = parts
        return made


def evaluated(node: Node, focus: Any, index: int) -> list[Any]:
    """Return the values of a path."""
    if isinstance(node, This):
        return [] if focus is None else [focus]
    if isinstance(node, Literal):
        return [node.value]
    if isinstance(node, Member):
        found = [each.get(node.name) for each in evaluated(node.base, focus, index)]
        flat = [one for each in found for one in (each if isinstance(each, list) else [each])]
        return [each for each in flat if each is not None]
    if isinstance(node, Index):
        assert isinstance(node.place, Literal)
        return evaluated(node.base, focus, index)[int(node.place.value) :][:1]
    if isinstance(node, Binary):
        return operated(node.operator, evaluated(node.left, focus, index), evaluated(node.right, focus, index))
    return called(node, focus, index) if isinstance(node, Call) else [index]  # the only constant is %rowIndex


def called(node: Call, focus: Any, index: int) -> list[Any]:
    found = evaluated(node.base, focus, index)
    if node.name == "where":
        return [each for each in found if evaluated(node.arguments[0], each, index) == [True]]
    if node.name == "join":
        return ["+".join(found)] if found else []
    return {
        "exists": [bool(found)],
        "empty": [not found],
        "not": [not each for each in found],
        "first": found[:1],
    }[node.name]


def operated(operator: str, left: list[Any], right: list[Any]) -> list[Any]:
    if operator in ("and", "or"):
        decides = operator == "or"
        if [decides] in (left, right):
            return [decides]
        return [not decides] if left and right else []
    if not left or not right:
        return []
    if operator in ("=", "!="):
        return [(left == right) == (operator == "=")]
    return [left[0] < right[0] if operator == "<" else left[0] >= right[0]]


class Rows:
    """Makes the rows of a view. several: if a path gave more than one value where one is allowed, in whatever row."""

    def __init__(self) -> None:
        self.several = False

    def of_view(self, view: View, bodies: list[Any]) -> list[str]:
        rows = []
        for body in bodies:
            if all(evaluated(path.node, body, 0) == [True] for path in view.where):
                rows += merged([self.of_select(select, body, 0) for select in view.select])
        return sorted(json.dumps(row, sort_keys=True) for row in rows)

    def of_select(self, select: Select, focus: Any, index: int) -> list[dict[str, Any]]:
        elements = [(focus, index)]
        if select.rows_as is not None:
            elements = [(each, at) for at, each in enumerate(evaluated(select.rows_by[0].node, focus, index))]
            if select.rows_as == "forEachOrNull" and not elements:
                elements = [(None, 0)]
        return [row for each, at in elements for row in self.of_element(select, each, at)]

    def of_element(self, select: Select, focus: Any, index: int) -> list[dict[str, Any]]:
        parts = [[{column.name: self.cell(column, focus, index) for column in select.columns}]]
        parts += [self.of_select(each, focus, index) for each in select.selects]
        if select.union:
            parts.append([row for each in select.union for row in self.of_select(each, focus, index)])
        return merged(parts)

    def cell(self, column: Column, focus: Any, index: int) -> Any:
        found = evaluated(column.path.node, focus, index)
        if column.collection:
            return found
        self.several |= len(found) > 1
        return SEVERAL if len(found) > 1 else found[0] if found else None


def merged(parts: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return every combination of one row of each part, as one row."""
    return [{name: value for part in whole for name, value in part.items()} for whole in product(*parts)]


@pytest.mark.parametrize("seed", range(60))
def test_compiled_views_give_what_the_evaluator_gives(seed: int) -> None:
    """VIEW-01"""
    dice = Dice(seed)
    bodies = [{"resourceType": "DiagnosticReport"} | dice.body() for _ in range(8)]
    names = (f"c{number}" for number in range(1_000))
    body: dict[str, Any] = {"resource": "DiagnosticReport"}
    body["select"] = [dice.select(REPORT, names) for _ in range(dice.randint(1, 2))]
    if dice.random() < 0.5:
        body["where"] = [{"path": dice.condition(REPORT)}]
    view = view_of(body, "view")
    with duckdb.connect(config={"threads": 1}) as db:
        db.execute(
            "CREATE TABLE resource AS SELECT unnest(?::VARCHAR[])::JSON AS body", [[json.dumps(b) for b in bodies]]
        )
        wanted, told = Rows(), None
        right = wanted.of_view(view, bodies)
        try:
            found = db.execute(compile_view(view, "resource").sql)
        except duckdb.InvalidInputException as error:
            told = told_by(error)
            found = None
        if found is None:
            assert told
            assert wanted.several
            return
        columns = [each[0] for each in found.description or ()]
        rows = [json.dumps(dict(zip(columns, row, strict=True)), sort_keys=True) for row in found.fetchall()]
    assert sorted(rows) == right
