"""Read a ViewDefinition: check its JSON and parse its expressions. Each error names the file and the place."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipelines.home.batch import reading_file
from pipelines.home.exits import WronglyAsked
from pipelines.reports.views.fhir_types import PRIMITIVES, is_resource, is_type
from pipelines.reports.views.fhirpath import BadPath, Constant, Node, nodes, parse

MAX_BYTES = 1 << 20
MAX_NESTING = 20
MAX_PARTS = 2_000
MAX_STEPS = 100
FILES_KEPT = 200
"""The number of parsed views that are cached by file content: each is read for several uses, and by every home."""
HALF_A_CHARACTER = "not JSON: an escape such as \\ud83d is half of a character"
SUFFIX = ".view.json"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
_COMMON = {"id", "extension", "modifierExtension"}
_METADATA = _COMMON | {
    "resourceType", "meta", "implicitRules", "language", "text", "contained", "url", "identifier", "version",
    "versionAlgorithmString", "versionAlgorithmCoding", "title", "status", "experimental", "date", "publisher",
    "contact", "useContext", "jurisdiction", "purpose", "copyright", "copyrightLabel", "approvalDate",
    "lastReviewDate", "effectivePeriod", "topic", "author", "editor", "reviewer", "endorser", "relatedArtifact",
    "profile", "fhirVersion",
}  # fmt: skip
_VIEW = {"resource", "name", "description", "constant", "where", "select"}
_SELECT = {"column", "select", "unionAll", "forEach", "forEachOrNull", "repeat"}
_COLUMN = {"name", "path", "description", "collection", "type", "tag"}
_CONSTANTS: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "decimal": (int, Decimal),
    "integer": (int,),
    "integer64": (int,),
    "positiveInt": (int,),
    "unsignedInt": (int,),
}
"""The JSON types that a constant of each FHIR type may have; all others are strings."""
_ROWS_BY = ("forEach", "forEachOrNull", "repeat")
_URI = "http://hl7.org/fhir/StructureDefinition/"
_FHIRPATH_URI = "http://hl7.org/fhirpath/System."


class BadView(WronglyAsked):
    """A ViewDefinition cannot be used. The message is one sentence with the file and the place, without data."""


@dataclass(frozen=True)
class PathAt:
    """An expression and its place in the definition."""

    place: str
    text: str
    node: Node


@dataclass(frozen=True)
class Column:
    """A column. type: the FHIR type that it declares, if any. tags: its tags by name."""

    place: str
    name: str
    path: PathAt
    description: str
    collection: bool
    type: str | None
    tags: Mapping[str, str]


@dataclass(frozen=True)
class Select:
    """Columns, and their rows. rows_as: `forEach` and so on, or None. rows_by: the paths of the rows."""

    place: str
    rows_as: str | None
    rows_by: tuple[PathAt, ...]
    columns: tuple[Column, ...]
    selects: tuple["Select", ...]
    union: tuple["Select", ...]


@dataclass(frozen=True)
class ConstantOf:
    """A constant: its FHIR type and its value."""

    type: str
    value: str | bool | int | Decimal


@dataclass(frozen=True)
class View:
    """A ViewDefinition. file: its name in messages."""

    file: str
    resource: str
    name: str
    description: str
    constants: Mapping[str, ConstantOf]
    where: tuple[PathAt, ...]
    select: tuple[Select, ...]


def read_view(path: Path) -> View:
    """Return the view of a file. Raises `BadView`."""
    with reading_file(path.name, BadView):
        content = path.read_bytes()
    if len(content) > MAX_BYTES:
        raise BadView(f"{path.name}: the file has more than {MAX_BYTES} bytes")
    return _view_in(path.name, content)


@lru_cache(maxsize=FILES_KEPT)
def _view_in(file: str, content: bytes) -> View:
    try:
        body = json.loads(content, parse_float=Decimal, object_pairs_hook=_without_doubles)
        json.dumps(body, ensure_ascii=False, default=str).encode()
    except json.JSONDecodeError as error:
        raise BadView(f"{file} line {error.lineno}: not JSON: {error.msg}") from None
    except UnicodeDecodeError:
        raise BadView(f"{file}: not JSON: the text is not UTF-8") from None
    except UnicodeEncodeError:
        raise BadView(f"{file}: {HALF_A_CHARACTER}") from None
    except RecursionError:
        raise BadView(f"{file}: not JSON: nested too deeply") from None
    except ValueError as error:
        raise BadView(f"{file}: not JSON: {error}") from None
    return view_of(body, file)


def view_of(body: Any, file: str) -> View:
    """Return the view that a JSON object defines. Raises `BadView`."""
    return _Reader(file).view(body)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def columns_of(selects: Sequence[Select]) -> list[Column]:
    """Return the columns of the selects in their order; for a union, the columns of its first part."""
    found: list[Column] = []
    for select in selects:
        found += [*select.columns, *columns_of(select.selects), *columns_of(select.union[:1])]
    return found


def _all(selects: Sequence[Select]) -> Iterator[Select]:
    for select in selects:
        yield select
        yield from _all([*select.selects, *select.union])


class _Reader:
    """A reader of one definition.

    parts: the number of selects and columns read so far. steps: the number of selects that make rows.
    """

    def __init__(self, file: str) -> None:
        self.file, self.parts, self.steps = file, 0, 0
        self.constants: dict[str, ConstantOf] = {}

    def view(self, body: Any) -> View:
        self._object(body, "", _METADATA | _VIEW)
        if body.get("resourceType", "ViewDefinition") != "ViewDefinition":
            raise self._bad("resourceType", "must be ViewDefinition")
        resource = self._text(body, "", "resource")
        if not is_resource(resource):
            raise self._bad("resource", f"`{resource[:50]}` is not a resource of FHIR R4")
        self.constants = dict(self._constants(body))
        where = tuple(
            self._path(self._object(each, place, _COMMON | {"path", "description"}).get("path"), f"{place}.path")
            for each, place in self._list(body, "", "where")
        )
        select = self._selects(body, "", "select", 1)
        view = View(
            self.file, resource, self._optional(body, "", "name"), self._optional(body, "", "description"),
            self.constants, where, select,
        )  # fmt: skip
        self._names(view)
        return view

    def _constants(self, body: Mapping[str, Any]) -> Iterator[tuple[str, ConstantOf]]:
        seen = {"rowIndex"}
        for each, place in self._list(body, "", "constant"):
            values = [key for key in each if key.startswith("value")] if isinstance(each, dict) else []
            self._object(each, place, _COMMON | {"name", *values})
            name = self._named(each, place)
            if name in seen:
                raise self._bad(place, f"the constant `{name}` is there already")
            if len(values) != 1:
                raise self._bad(place, "a constant has one value, such as valueString")
            seen.add(name)
            yield name, self._constant(values[0], each[values[0]], place)

    def _constant(self, key: str, value: Any, place: str) -> ConstantOf:
        kind = next((name for name in PRIMITIVES if "value" + name[0].upper() + name[1:] == key), None)
        if kind is None:
            raise self._bad(f"{place}.{key}", "not a primitive type of FHIR")
        if type(value) not in _CONSTANTS.get(kind, (str,)):
            raise self._bad(f"{place}.{key}", f"the value is not of the type {kind}")
        return ConstantOf(kind, value)

    def _selects(self, body: Mapping[str, Any], place: str, key: str, depth: int) -> tuple[Select, ...]:
        if depth > MAX_NESTING:
            raise self._bad(place, f"selects are nested deeper than {MAX_NESTING}")
        return tuple(self._select(each, at, depth) for each, at in self._list(body, place, key))

    def _select(self, body: Any, place: str, depth: int) -> Select:
        self._count(place)
        self._object(body, place, _COMMON | _SELECT)
        rows_as = [key for key in _ROWS_BY if body.get(key) is not None]
        self.steps += len(rows_as) + bool(body.get("unionAll"))
        if self.steps > MAX_STEPS:
            raise self._bad(place, f"the view has more than {MAX_STEPS} of {', '.join(_ROWS_BY)} and unionAll")
        if len(rows_as) > 1:
            raise self._bad(place, f"has {' and '.join(rows_as)}, where one of them is allowed")
        return Select(
            place,
            rows_as[0] if rows_as else None,
            tuple(self._rows_by(body, place, rows_as[0])) if rows_as else (),
            tuple(self._column(each, at) for each, at in self._list(body, place, "column")),
            self._selects(body, place, "select", depth + 1),
            self._selects(body, place, "unionAll", depth + 1),
        )

    def _rows_by(self, body: Mapping[str, Any], place: str, key: str) -> Iterator[PathAt]:
        if key != "repeat":
            yield self._path(body[key], f"{place}.{key}")
            return
        paths = self._list(body, place, key)
        if not paths:
            raise self._bad(f"{place}.{key}", "must name at least one path")
        for each, at in paths:
            yield self._path(each, at)

    def _column(self, body: Any, place: str) -> Column:
        self._count(place)
        self._object(body, place, _COMMON | _COLUMN)
        name = self._named(body, place)
        collection = body.get("collection", False)
        if not isinstance(collection, bool):
            raise self._bad(f"{place}.collection", "must be true or false")
        kind = self._optional(body, place, "type")
        short = kind.removeprefix(_URI).removeprefix(_FHIRPATH_URI)
        short = short[:1].lower() + short[1:] if kind.startswith(_FHIRPATH_URI) else short
        if kind and not is_type(short):
            raise self._bad(f"{place}.type", f"`{kind[:80]}` is not a type of FHIR R4")
        tags = {
            self._text(self._object(tag, at, _COMMON | {"name", "value"}), at, "name"): self._text(tag, at, "value")
            for tag, at in self._list(body, place, "tag")
        }
        path = self._path(body.get("path"), f"{place}.path")
        return Column(place, name, path, self._optional(body, place, "description"), collection, short or None, tags)

    def _names(self, view: View) -> None:
        """Check that there are columns, and that no name occurs twice."""
        seen: set[str] = set()
        for column in columns_of(view.select):
            if column.name.lower() in seen:
                raise self._bad(
                    column.place, f"the column `{column.name}` is there already; names differ by more than case"
                )
            seen.add(column.name.lower())
        if not seen:
            raise self._bad("select", "the view has no columns")
        for select in _all(view.select):
            self._alike(select.union)

    def _alike(self, union: Sequence[Select]) -> None:
        """Check that the parts of a union have equal columns."""
        names = [[column.name for column in columns_of([part])] for part in union]
        for part, given in zip(union, names, strict=True):
            if given != names[0]:
                told = ", ".join(names[0])[:300] or "none"
                raise self._bad(part.place, f"its columns differ from those of the union's first part: {told}")

    def _path(self, text: Any, place: str) -> PathAt:
        if not isinstance(text, str):
            raise self._bad(place, "must be a FHIRPath expression, as a string")
        try:
            node = parse(text)
        except BadPath as error:
            raise self._bad(place, str(error)) from None
        known = [*self.constants, "rowIndex"]
        for each in nodes(node):
            if isinstance(each, Constant) and each.name not in known:
                told = ", ".join(f"%{name}" for name in known)
                raise self._bad(place, f"the constant `%{each.name}` is not declared; declared are {told}"[:500])
        return PathAt(place, text, node)

    def _named(self, body: Mapping[str, Any], place: str) -> str:
        name = self._text(body, place, "name")
        if not _NAME.fullmatch(name):
            raise self._bad(f"{place}.name", "must be a letter, then letters, digits and `_`, at most 128")
        return name

    def _count(self, place: str) -> None:
        self.parts += 1
        if self.parts > MAX_PARTS:
            raise self._bad(place, f"the view has more than {MAX_PARTS} selects and columns")

    def _object(self, body: Any, place: str, allowed: set[str]) -> dict[str, Any]:
        if not isinstance(body, dict):
            raise self._bad(place, "must be a JSON object")
        for key in body:
            if key not in allowed and not key.startswith("_"):
                shown = ", ".join(sorted(allowed - _METADATA)) or ", ".join(sorted(allowed))
                raise self._bad(place, f"`{key[:50]}` is not known there; allowed are {shown}")
        return body

    def _list(self, body: Mapping[str, Any], place: str, key: str) -> list[tuple[Any, str]]:
        found, at = body.get(key, []), f"{place}.{key}".lstrip(".")
        if not isinstance(found, list):
            raise self._bad(at, "must be a list")
        return [(each, f"{at}[{number}]") for number, each in enumerate(found)]

    def _text(self, body: Mapping[str, Any], place: str, key: str) -> str:
        found = body.get(key)
        if not isinstance(found, str) or not found:
            raise self._bad(f"{place}.{key}".lstrip("."), "must be there, as a string")
        return found

    def _optional(self, body: Mapping[str, Any], place: str, key: str) -> str:
        return self._text(body, place, key) if body.get(key) is not None else ""

    def _bad(self, place: str, reason: str) -> BadView:
        return BadView(f"{self.file}: {place}: {reason}" if place else f"{self.file}: {reason}")
