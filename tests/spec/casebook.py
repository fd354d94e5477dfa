"""The cases of tests/spec/cases as data, read as the files say: bodies, reads and expected outcomes.

A case of a body starts from a named base of its file, is changed by `unset` and then `set` (simple paths such as
`note[0].text`; an index one past the end appends), or is given as `raw` JSON text. `read` says in the same way what a
read shows after the body was accepted. Placeholders in the text of values: see `tests/spec/matching.py`.
"""

import copy
import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import yaml

SPEC = Path(__file__).parent
BODY_FILES = ("task", "payment_notice", "questionnaire_response", "common")


class _Loader(yaml.CSafeLoader):
    """YAML whose times stay text and whose numbers keep their digits."""


def _number(_: _Loader, node: yaml.ScalarNode) -> Decimal:
    return Decimal(node.value)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.add_constructor("tag:yaml.org,2002:int", _number)


def read_yaml(name: str) -> Any:
    """A file of tests/spec/cases."""
    return yaml.load((SPEC / "cases" / f"{name}.yaml").read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a SafeLoader


@cache
def outcomes() -> dict[str, dict[str, Any]]:
    """The Errors table: name -> status, code, text."""
    return {name: row | {"status": int(row["status"])} for name, row in read_yaml("outcomes").items()}


@cache
def requirements() -> dict[str, dict[str, str]]:
    """The requirement ledger: id -> row."""
    with (SPEC / "interface.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


# --- JSON that keeps digits -----------------------------------------------------------------------


def to_json(value: Any) -> str:
    """A value as JSON text, decimals digit for digit."""
    match value:
        case dict():
            return "{" + ",".join(f"{json.dumps(name)}:{to_json(part)}" for name, part in value.items()) + "}"
        case list():
            return "[" + ",".join(map(to_json, value)) + "]"
        case Decimal():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False)


def from_json(text: str | bytes) -> Any:
    """JSON text as a value, every number a Decimal."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


# --- Paths ----------------------------------------------------------------------------------------


def _steps(path: str) -> list[str | int]:
    return [int(index) if index else name for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path)]


def _parent(body: Any, steps: list[str | int]) -> Any:
    for step in steps[:-1]:
        body = body[step]
    return body


def changed(base: Any, set: dict[str, Any] | None = None, unset: list[str] | None = None) -> Any:
    """A copy of a body with the elements of `unset` gone and those of `set` in place."""
    body = copy.deepcopy(base)
    for path in unset or ():
        steps = _steps(path)
        parent: Any = _parent(body, steps)
        if isinstance(parent, dict):
            parent.pop(steps[-1], None)
        else:
            del parent[steps[-1]]
    for path, value in (set or {}).items():
        steps = _steps(path)
        parent = _parent(body, steps)
        if isinstance(parent, list) and steps[-1] == len(parent):
            parent.append(copy.deepcopy(value))
        else:
            parent[steps[-1]] = copy.deepcopy(value)
    return body


def filled(value: Any, **words: str) -> Any:
    """A value with `{name}` of each word replaced in its texts; other placeholders stay."""
    match value:
        case dict():
            return {name: filled(part, **words) for name, part in value.items()}
        case list():
            return [filled(part, **words) for part in value]
        case str():
            for name, word in words.items():
                value = value.replace(f"{{{name}}}", word)
            return value
        case _:
            return value


# --- Cases of bodies ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """The expectation of a case: accepted (`outcome` None), or an outcome with its expression."""

    outcome: str | None
    rule: str | None = None
    text: str | None = None
    expression: str | None = None
    names: str | None = None

    @property
    def row(self) -> dict[str, Any]:
        """status, code and text, the rule's own message included."""
        row = outcomes()[str(self.outcome)]
        return row | {"text": self.text or row["text"]}

    @property
    def body(self) -> dict[str, Any]:
        """The whole OperationOutcome; what `diagnostics` says is free, but for the names it must hold."""
        issue = {
            "severity": "error",
            "code": self.row["code"],
            "details": {"text": self.row["text"]},
            "diagnostics": f"{{rest}}{self.names}{{rest}}" if self.names else "{any}",
        }
        if self.expression:
            issue["expression"] = [self.expression]
        return {"resourceType": "OperationOutcome", "issue": [issue]}


@dataclass(frozen=True)
class Case:
    """A body, the request with it, and the expected result."""

    id: str
    file: str
    resource: str
    proves: tuple[str, ...]
    expected: Expected
    body: Any = None
    raw: str | None = None
    interaction: str = "create"
    needs: str = "payload"
    stored: Any = None
    read: Any = None
    all: tuple[str, ...] = ()
    balances: dict[str, int] = field(default_factory=dict)

    def text(self, base_url: str, resource_id: str = "") -> str:
        """The JSON text to send."""
        if self.raw is not None:
            return self.raw
        return to_json(filled(self.body, base_url=base_url, id=resource_id))


@cache
def cases() -> tuple[Case, ...]:
    """Every case of a body."""
    return tuple(case for file in BODY_FILES for case in _of_file(file))


def _of_file(file: str) -> Iterator[Case]:
    book = read_yaml(file)
    for row in book["cases"]:
        yield _case(file, book, row)


def _case(file: str, book: dict[str, Any], row: dict[str, Any]) -> Case:
    unknown = set(row) - {
        *("id", "resource", "proves", "base", "set", "unset", "raw", "interaction", "needs", "stored"),
        *("expected", "read", "all", "balances"),
    }
    assert not unknown, f"{row['id']}: {unknown}"
    bases, base = book["bases"], row.get("base")
    read = row.get("read")
    return Case(
        id=row["id"],
        file=file,
        resource=row.get("resource") or book["resource"],
        proves=tuple(row["proves"]),
        expected=_expected(row["expected"]),
        body=changed(bases[base], row.get("set"), row.get("unset")) if base else None,
        raw=row.get("raw"),
        interaction=row.get("interaction", "create"),
        needs=row.get("needs", "payload"),
        stored=bases[row.get("stored", base)] if row.get("interaction") == "update" else None,
        read=changed(book["reads"][read["base"]], read.get("set"), read.get("unset")) if read else None,
        all=tuple(row.get("all", ())),
        balances={patient: int(cents) for patient, cents in row.get("balances", {}).items()},
    )


def _expected(expected: Any) -> Expected:
    return Expected(None) if expected == "accepted" else Expected(**expected)


# --- The world ------------------------------------------------------------------------------------


@cache
def world() -> dict[str, dict[str, Any]]:
    """The reference world: `Type/id` -> resource."""
    found = [
        from_json(line)
        for path in sorted((SPEC / "world").glob("*.ndjson"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return {f"{resource['resourceType']}/{resource['id']}": resource for resource in found}


# --- Scenarios of HTTP requests -------------------------------------------------------------------

SCENARIO_FILES = ("reads", "search", "http", "extra", "face")
STEP_KEYS = {
    *("send", "headers", "token", "scope", "json", "raw", "form", "pad", "chunked"),
    *("status", "headers_are", "allow", "text", "body", "world", "set", "ids", "sorted_ids", "parts", "holds", "lacks"),
    *("outcome", "names", "expression", "unknown", "issue", "keep", "equals"),
}


@dataclass(frozen=True)
class Scenario:
    """Requests sent one after another, each with what is expected of its response."""

    id: str
    proves: tuple[str, ...]
    steps: tuple[dict[str, Any], ...]


@cache
def scenarios() -> tuple[Scenario, ...]:
    """Every scenario."""
    rows = [row for file in SCENARIO_FILES for row in read_yaml(file)["scenarios"]]
    for row in rows:
        for step in row["steps"]:
            assert set(step) <= STEP_KEYS, f"{row['id']}: {set(step) - STEP_KEYS}"
    return tuple(Scenario(row["id"], tuple(row["proves"]), tuple(row["steps"])) for row in rows)


def with_world(value: Any) -> Any:
    """A value with each `{world: Type/id, set: ...}` in it replaced by that resource of the world."""
    match value:
        case dict() if "world" in value:
            return changed(world()[value["world"]], value.get("set"))
        case dict():
            return {name: with_world(part) for name, part in value.items()}
        case list():
            return [with_world(part) for part in value]
        case _:
            return value


def part(body: Any, path: str) -> Any:
    """Return the element of a body at a path; None if there is none."""
    for step in _steps(path):
        try:
            body = body[step]
        except (KeyError, IndexError, TypeError):
            return None
    return body
