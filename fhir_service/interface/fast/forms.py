"""The stored form of a resource, declared as the JSON that it becomes, and a function that makes it in one pass.

A form is a dict in the order of the stored elements. A value is a constant, another form, or the place of a value in a
body: `Text`, `Number`, `Reference`, `Each`, `When`, `Value`. An element without a value is left out.

`maker` turns a form into a function, by Python source. The function writes the text of a new resource, and takes the
values of its search columns from the body. Going by way of a dict would take half as long again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from fhir_service.interface.datatypes import id_of
from fhir_service.interface.json_text import dump_json, plain_number
from fhir_service.interface.times import instant_text, period_of

Source = str | Callable[[Any, Any], Any]
"""Attributes of a body such as `restriction.period.end`, or a function of body and moment. None means absent."""
Form = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Text:
    """A text. or_now: where there is none, the time of storing."""

    source: Source
    or_now: bool = False


@dataclass(frozen=True, slots=True)
class Number:
    """A decimal, digit for digit."""

    source: Source


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference, stored with its type: one of the body, or a text `Type/id` from a function or a list."""

    source: Source


@dataclass(frozen=True, slots=True)
class Address:
    """A text that ends with the id of the new resource."""

    beginning: str


@dataclass(frozen=True, slots=True)
class Each:
    """A list: a form for each value of a list in the body. Its sources are attributes of that value; `""` is itself.

    distinct: an attribute of each value. The form is then for each text that it has, once.
    """

    source: str
    form: Form
    distinct: str = ""


@dataclass(frozen=True, slots=True)
class When:
    """A form that is present if an attribute of the body is."""

    source: str
    form: Form


@dataclass(frozen=True, slots=True)
class Value:
    """Any JSON that a function returns. of: an attribute; without it there is no value."""

    source: Callable[[Any, Any], Any]
    of: str = ""


@dataclass(frozen=True, slots=True)
class _Given:
    """A text that comes with the body: `id`, or `now`, the time of storing."""

    name: str


ID, NOW = _Given("id"), _Given("now")


class DrawnValues:
    """A function that takes the values at a path of a stored resource: the first, or all if there may be several."""

    def __init__(
        self,
        *path: str,
        convert: Callable[[Any], Any] | None = None,
        many: bool = False,
        members: tuple[str, ...] = (),
        required: bool = False,
    ) -> None:
        """
        Args:
            path: names of elements; `extension[]` is a list, and what follows is asked of each of its values.
            convert: a function that is applied to the value.
            members: the value is a tuple of these members of what stands there.
            required: a resource without it raises KeyError.
        """
        assert not (many and convert)  # noqa: S101 - a declaration of ours
        self.path, self.convert, self.many, self.members, self.required = path, convert, many, members, required
        self._steps = [(name.removesuffix("[]"), name.endswith("[]")) for name in path]

    def __call__(self, stored: Mapping[str, Any]) -> Any:
        """Raises KeyError, TypeError or AttributeError if the resource has another shape."""
        level: list[Any] = [stored]
        for name, is_list in self._steps:
            found = []
            for one in level:
                if (value := one.get(name)) is None:
                    continue
                if not is_list:
                    found.append(value)
                elif isinstance(value, list):
                    found += value
                else:
                    raise TypeError(name)
            level = found
        if self.members:
            level = [tuple(one.get(name) for name in self.members) for one in level]
        if self.many:
            return level
        if level:
            return self.convert(level[0]) if self.convert else level[0]
        if self.required:
            raise KeyError(self.path[-1])
        return None


Made = tuple[tuple[Any, ...], Sequence[list[tuple[Any, ...]]]]
"""The rows of a new resource: its own, which ends with its text, and those of each side table."""


class Column(NamedTuple):
    """A column. is_date: two columns, for the time that the date covers."""

    draw: DrawnValues
    is_date: bool = False


class Side(NamedTuple):
    """A side table with rows of the resource's number, a system and a code. exact: the values are codes alone.

    digest: of the code; it is a further column.
    """

    draw: DrawnValues
    exact: bool = False
    digest: Callable[[str], int] | None = None


Maker = Callable[[Any, str, int, str, Any], Made]
"""Makes a new resource of a body, its id, its number, the client that sent it, and the moment of its making."""


def maker(form: Form, columns: Sequence[Column] = (), sides: Sequence[Side] = ()) -> Maker:
    """Return a function that makes new resources with these columns (two for a date) and side tables."""
    source = _Source()
    pieces = source.object(form, "body", ())
    drawn = [one for column in columns for one in source.column(column)]
    lists = [source.side(side) for side in sides]
    row = f"number, id, 1, moment.now, client, {_commas(drawn)}{_joined(pieces)}"
    source.lines.append(f"return ({row}), ({_commas(lists)})")
    namespace = dict(source.names)
    lines = "def make(body, id, number, client, moment):\n    " + "\n    ".join(source.lines)
    exec(compile(lines, f"<form of {form['resourceType']}>", "exec"), namespace)  # noqa: S102 - made of forms alone
    made: Maker = namespace["make"]
    return made


@lru_cache(maxsize=1 << 14)
def stored_reference(reference: str) -> tuple[str, str]:
    """Return a reference `Type/id` as it is stored, and its id. Cached: most bodies name what others have named."""
    kind, _, id = reference.partition("/")
    return f'{{"reference":{encode_basestring(reference)},"type":{encode_basestring(kind)}}}', id


NO_PERIOD, NO_REFERENCE = (None, None), (None, None)
_GIVEN = {
    "quoted": encode_basestring,
    "dumped": lambda value: dump_json(value).decode(),
    "plain_number": plain_number,
    "instant_text": instant_text,
    "period_of": period_of,
    "NO_PERIOD": NO_PERIOD,
    "NO_REFERENCE": NO_REFERENCE,
    "shown": stored_reference,
}


class _Static(str):
    """A constant piece of the text. Any other piece is an expression for a text."""

    __slots__ = ()


Path = tuple[str, ...]


def _joined(pieces: Iterable[str]) -> str:
    """Return the expression for the text that these pieces form."""
    shown = [_literal(piece) if isinstance(piece, _Static) else f"{{{piece}}}" for piece in pieces]
    return f"f'''{''.join(shown)}'''"


def _literal(text: str) -> str:
    """Return a text as it is written in a formatted string."""
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("{", "{{").replace("}", "}}")


def _commas(parts: Iterable[str]) -> str:
    return "".join(f"{part}, " for part in parts)


def _static(value: Any) -> _Static:
    return _Static(dump_json(value).decode())


@dataclass(slots=True)
class _Source:
    """The lines of a function, the names that they use, and the expression for the value at each path of the form.

    within: True in a list or a `When`, where nothing is absent. leaves: by path, one value or None. lists: by path, a
    list or None, and the form of its values.
    """

    within: bool = False
    lines: list[str] = field(default_factory=lambda: ["now = instant_text(moment.now)"])
    names: dict[str, Any] = field(default_factory=lambda: dict(_GIVEN))
    leaves: dict[Path, str] = field(default_factory=dict)
    lists: dict[Path, tuple[str, Form]] = field(default_factory=dict)

    # --- the text ---

    def object(self, form: Form, of: str, path: Path) -> list[str]:
        """The pieces of an object. Its first element is always there."""
        pieces: list[str] = [_Static("{")]
        for number, (name, node) in enumerate(form.items()):
            head = _Static(("," if number else "") + dump_json(name).decode() + ":")
            marked = f"{name}[]" if isinstance(node, Each | list) else name
            absent, value = self.value(node, of, (*path, marked))
            pieces += self._unless(absent if number else "", [head, *value])
        return [*pieces, _Static("}")]

    def array(self, nodes: Sequence[Any], of: str, path: Path) -> list[str]:
        """The pieces of a list of unlike values. Its last one is always there."""
        assert not isinstance(nodes[-1], Each | When | Value)  # noqa: S101 - a form of ours
        pieces: list[str] = [_Static("[")]
        for number, node in enumerate(nodes, 1):
            absent, value = self.value(node, of, path)
            pieces += value if number == len(nodes) else self._unless(absent, [*value, _Static(",")])
        return [*pieces, _Static("]")]

    def _unless(self, absent: str, pieces: list[str]) -> list[str]:
        """The pieces, or an empty text where the value is absent."""
        return [self._kept(f'"" if {absent} else {_joined(pieces)}')] if absent else pieces

    def value(self, node: Any, of: str, path: Path) -> tuple[str, list[str]]:
        """Return the condition under which a value is absent (an expression or nothing), and its pieces."""
        if isinstance(node, When):
            return self._when(node, of, path)
        if isinstance(node, Each):
            return self._each(node, of, path)
        if isinstance(node, Text | Number | Reference | Value):
            return self._leaf(node, of, path)
        if isinstance(node, Address):
            return "", [_Static(_static(node.beginning)[:-1]), "id", _Static('"')]
        if isinstance(node, Mapping | list):
            return "", self.object(node, of, path) if isinstance(node, Mapping) else self.array(node, of, path)
        return "", [_Static('"'), node.name, _Static('"')] if isinstance(node, _Given) else [_static(node)]

    def _when(self, node: When, of: str, path: Path) -> tuple[str, list[str]]:
        there = self._kept(f"{of}.{node.source}")
        absent = f"{there} is None"
        inner = _Source(True, [], self.names)
        pieces = inner.object(node.form, of, path)
        for line in inner.lines:
            name, _, expression = line.partition(" = ")
            self.lines.append(f"{name} = None if {absent} else {expression}")
        self.leaves |= inner.leaves
        return absent, pieces

    def _each(self, node: Each, of: str, path: Path) -> tuple[str, list[str]]:
        values = self._kept(f"{of}.{node.source}")
        if node.distinct:
            values = self._kept(f"{values} and list(dict.fromkeys([each.{node.distinct} for each in {values}]))")
        self.lists[path] = values, node.form
        inner = _Source(True, [], self.names)
        each = inner.object(node.form, "each", ())
        assert not inner.lines  # noqa: S101 - within a list each value is named where it is used
        joined = self._kept(f'{values} and ",".join([{_joined(each)} for each in {values}])')
        return f"not {values}", [_Static("["), joined, _Static("]")]

    def _leaf(self, node: Text | Number | Reference | Value, of: str, path: Path) -> tuple[str, list[str]]:
        if isinstance(node, Reference):
            return self._reference(node, of, path)
        found = self._expression(node.source, of)
        if isinstance(node, Text) and node.or_now:
            found = f"({found} or now)"
        if isinstance(node, Value) and node.of:
            found = f"None if {of}.{node.of} is None else {found}"
        value = found if of == "each" else self._kept(found)
        self.leaves.setdefault(path, value)
        always = self.within or (isinstance(node, Text) and node.or_now)
        absent = "" if always else f"{value} is None"
        written = {Text: "quoted", Number: "plain_number", Value: "dumped"}[type(node)]
        return absent, [f"{written}({value})"]

    def _reference(self, node: Reference, of: str, path: Path) -> tuple[str, list[str]]:
        """A reference, whose id is a leaf: `("owner", "id")`, beside `("owner", "reference")`."""
        found = self._expression(node.source, of)
        element = f"{found}.reference" if isinstance(node.source, str) and node.source else found
        if of == "each":
            self.leaves[*path, "reference"] = element
            return "", [f"shown({element})[0]"]
        there = self._kept(found)
        of_it = self._kept(f"NO_REFERENCE if {there} is None else shown({element.replace(found, there, 1)})")
        self.leaves[*path, "id"] = f"{of_it}[1]"
        return f"{there} is None", [f"{of_it}[0]"]

    def _expression(self, source: Source, of: str) -> str:
        if isinstance(source, str):
            return f"{of}.{source}" if source else of
        return f"{self._named(source)}(body, moment)"

    def _kept(self, expression: str) -> str:
        """Keep a value in a variable, and return its name."""
        name = self._named(None)
        self.lines.append(f"{name} = {expression}")
        return name

    def _named(self, value: Any) -> str:
        """A new name, of a value that the lines use or of a variable."""
        name = f"n{len(self.names)}"
        self.names[name] = value
        return name

    # --- what is drawn ---

    def column(self, column: Column) -> list[str]:
        """The expressions of the values of a column."""
        draw = column.draw
        if draw.convert is id_of and (found := self.leaves.get((*draw.path[:-1], "id"))):
            return [found]
        value = self.leaves.get(draw.path) or self._first(draw.path)
        if draw.convert:
            value = self._kept(f"None if {value} is None else {self._named(draw.convert)}({value})")
        if not column.is_date:
            return [value]
        span = self._kept(f"period_of({value}) if {value} else NO_PERIOD")
        return [f"{span}[0]", f"{span}[1]"]

    def _first(self, path: Path) -> str:
        values, expression = self._around(path), self._within(path)
        return self._kept(f"next(iter([{expression} for each in {values}]), None) if {values} else None")

    def side(self, side: Side) -> str:
        """The expression of the rows of a side table."""
        draw = side.draw
        if draw.path not in self.lists and any(path[:-1] == draw.path for path in self.leaves):
            members = [self.leaves[*draw.path, name] for name in draw.members]
            return f"[] if {members[0]} is None else [{self._side_row(members, side)}]"
        rows = values = self._around(draw.path)
        if side.exact:
            members = ["None", "each"]
            rows = f"dict.fromkeys([{self._within(draw.path)} for each in {values}])"
        else:
            members = [self._within((*draw.path, name)) for name in draw.members]
        return f"[{self._side_row(members, side)} for each in {rows}] if {values} else []"

    def _side_row(self, members: Sequence[str], side: Side) -> str:
        digest = [f"{self._named(side.digest)}({members[1]})"] if side.digest else []
        return f"(number, {_commas([*members, *digest])})"

    def _around(self, path: Path) -> str:
        """The list in whose values a path ends."""
        return self.lists[self._list_of(path)][0]

    def _within(self, path: Path) -> str:
        """The expression of what stands at a path in each value of that list."""
        around = self._list_of(path)
        inner = _Source(True, [], self.names)
        inner.object(self.lists[around][1], "each", ())
        return inner.leaves[path[len(around) :]]

    def _list_of(self, path: Path) -> Path:
        return next(path[:end] for end in range(len(path), 0, -1) if path[:end] in self.lists)
