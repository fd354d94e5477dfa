"""Compile parsed expressions to SQL over the elements that they read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from pipelines.reports.views.definition import ConstantOf
from pipelines.reports.views.fhir_types import PRIMITIVES, choices, elements, is_resource, is_type, with_type
from pipelines.reports.views.fhirpath import (
    BadPath,
    Binary,
    Call,
    Constant,
    Index,
    Literal,
    Member,
    Negative,
    Node,
    This,
)
from pipelines.reports.views.operators import as_boolean, binary, single
from pipelines.reports.views.values import (
    INTEGERS,
    NOTHING,
    NUMBER,
    Value,
    as_list,
    as_number,
    as_text,
    boundary,
    each,
    kept_elements,
    let,
    present,
    quoted,
    quoted_name,
    sql_type,
)

MAX_DIGITS = 28
MAX_CRITERIA = 4
"""The deepest nesting of criteria. DuckDB's time to plan nested lambdas grows fourfold with each level."""


@dataclass(frozen=True)
class Context:
    """The start of a path.

    * this: the element that the path starts at.
    * index: returns the SQL of the position of its row, counted from 0.
    * place: the path's place in the definition.
    * within: the number of criteria that the path is nested in.
    """

    this: Value
    index: Callable[[], str]
    place: str
    within: int = 0

    def at(self, this: Value) -> "Context":
        """Return the context of criteria for an element. Raises `BadPath` if they are nested too deeply."""
        if self.within >= MAX_CRITERIA:
            raise BadPath(f"criteria of `where` and `exists` are nested deeper than {MAX_CRITERIA}")
        return Context(this, self.index, self.place, self.within + 1)


class Expressions:
    """A compiler for the expressions of one view.

    again: True if an element is needed as JSON after earlier SQL has read it as a struct. The view must then be
    compiled again.
    """

    def __init__(self, constants: Mapping[str, ConstantOf]) -> None:
        self.constants, self.again = constants, False

    def value(self, node: Node, context: Context) -> Value:
        """Return the value of an expression. Raises `BadPath`."""
        return self._KINDS[type(node)](self, node, context)

    def whole(self, value: Value) -> Value:
        """Return a complex value as JSON."""
        if value.shape is not None and not value.is_json:
            value.shape.whole = self.again = True
        return value

    def condition(self, node: Node, context: Context) -> str:
        return as_boolean(self.value(node, context), context.place)

    def _this(self, node: This, context: Context) -> Value:  # noqa: ARG002 - one signature for all
        return context.this

    def _literal(self, node: Literal, context: Context) -> Value:  # noqa: ARG002
        return _literal(node.value, node.type)

    def _constant(self, node: Constant, context: Context) -> Value:
        if node.name == "rowIndex":
            return Value(context.index(), "integer")
        found = self.constants[node.name]
        return _literal(found.value, found.type)

    def _negative(self, node: Negative, context: Context) -> Value:
        value = single(self.value(node.operand, context), context.place)
        if value.family not in (None, "number"):
            raise BadPath(f"`-` computes with the type {value.type}; it takes numbers")
        return Value(f"(-{as_number(value, value.sql)})", NUMBER)

    def _binary(self, node: Binary, context: Context) -> Value:
        return binary(node.operator, self.value(node.left, context), self.value(node.right, context), context.place)

    def _index(self, node: Index, context: Context) -> Value:
        value, place = self.value(node.base, context), node.place
        if not isinstance(place, Literal | Constant):
            raise BadPath("a place in brackets must be a number or a constant")
        index = self.value(place, context)
        if index.type not in INTEGERS or index.sql.startswith("-"):
            raise BadPath("a place in brackets must be an integer from 0 on")
        return value.with_sql(f"({as_list(value)})[({index.sql}) + 1]")

    def _member(self, node: Member, context: Context) -> Value:
        base = self.value(node.base, context)
        if _begins(node) and node.name == base.type:
            return base
        return self.member(base, node.name)

    def member(self, base: Value, name: str) -> Value:
        """Return an element of the value, or of each of its elements."""
        if base.type == NUMBER or base.type in PRIMITIVES:
            raise BadPath(f"`{name}` is asked of the type {base.type}, which has no elements")
        if base.shape is not None and not base.is_json:
            if name not in elements(base.type or "") and choices(base.type or "", name):
                self.whole(base)
                return Value("[]", None, many=True, is_json=True)
            return _of_struct(base, name)
        return _of_json(base, name)

    def _call(self, node: Call, context: Context) -> Value:
        if node.name not in self.FUNCTIONS:
            raise BadPath(f"the function `{node.name}` is outside the profile; allowed are {', '.join(self.FUNCTIONS)}")
        fewest, most, function = self.FUNCTIONS[node.name]
        if not fewest <= len(node.arguments) <= most:
            allowed = f"{fewest}" if fewest == most else f"{fewest} or {most}"
            raise BadPath(f"`{node.name}` has {len(node.arguments)} arguments, where {allowed} are allowed")
        return function(self, node, context)

    def where(self, value: Value, criteria: Node, context: Context) -> Value:
        """Return the elements of a value for which the criteria are true."""

        def true_of(v: str) -> str:
            return self.condition(criteria, context.at(value.with_sql(v)))

        found = kept_elements(as_list(value), true_of)
        return value.with_sql(found, many=True) if value.many else value.with_sql(f"({found})[1]")

    def _where(self, node: Call, context: Context) -> Value:
        return self.where(self.value(node.base, context), node.arguments[0], context)

    def _exists(self, node: Call, context: Context) -> Value:
        found = self.value(node.base, context)
        found = self.where(found, node.arguments[0], context) if node.arguments else found
        return Value(f"len({found.sql}) > 0" if found.many else f"({found.sql}) IS NOT NULL", "boolean")

    def _empty(self, node: Call, context: Context) -> Value:
        return Value(f"(NOT {self._exists(node, context).sql})", "boolean")

    def _not(self, node: Call, context: Context) -> Value:
        return Value(f"(NOT {self.condition(node.base, context)})", "boolean")

    def _first(self, node: Call, context: Context) -> Value:
        found = self.value(node.base, context)
        return found.with_sql(f"list_any_value({found.raw or found.sql})") if found.many else found

    def _extension(self, node: Call, context: Context) -> Value:
        same_url = Binary("=", Member(This(), "url"), node.arguments[0])
        return self.where(self.member(self.value(node.base, context), "extension"), same_url, context)

    def _join(self, node: Call, context: Context) -> Value:
        value = self.value(node.base, context)
        if value.is_complex:
            raise BadPath(f"`join` takes texts, not the type {value.type}")
        between = Value("''", "string")
        if node.arguments:
            if not isinstance(node.arguments[0], Literal | Constant):
                raise BadPath("`join` takes a text or a constant between the values")
            between = self.value(node.arguments[0], context)
        texts, text = each(as_list(value), lambda v: as_text(value, v)), as_text(between, between.sql)
        return Value(let(texts, lambda v: f"array_to_string(nullif({v}, []), {text})"), "string")

    def _of_type(self, node: Call, context: Context) -> Value:
        name = _type_name(node.arguments[0])
        base = node.base
        if isinstance(base, Member):
            parent = self.value(base.base, context)
            if not is_resource(name) and base.name not in elements(parent.type or ""):
                return self.member(parent, with_type(base.name, name))
        found = self.value(base, context)
        if found.type == name:
            return found
        if not is_resource(name) or found.type is not None:
            return NOTHING
        of_type = kept_elements(as_list(found), lambda v: f"({v} ->> '$.resourceType') = {quoted(name)}")
        return Value(of_type, name, many=True, is_json=True)

    def _resource_key(self, node: Call, context: Context) -> Value:
        return self.member(self.value(node.base, context), "id")

    def _reference_key(self, node: Call, context: Context) -> Value:
        reference = self.member(self.value(node.base, context), "reference")
        kind = _type_name(node.arguments[0]) if node.arguments else "[A-Z][A-Za-z]*"
        pattern = quoted(f"(?:^|/){kind}/([A-Za-z0-9.-]+)(?:/_history/[A-Za-z0-9.-]+)?$")

        def key(v: str) -> str:
            return f"nullif(regexp_extract({as_text(reference, v)}, {pattern}, 1), '')"

        sql = present(each(reference.sql, key)) if reference.many else key(reference.sql)
        return Value(sql, "id", reference.many)

    def _boundary(self, node: Call, context: Context) -> Value:
        found = boundary(self.value(node.base, context), node.name == "highBoundary")
        if found is None:
            raise BadPath(f"`{node.name}` takes a decimal, date, dateTime or time; `ofType` names the type of a choice")
        return found

    FUNCTIONS: ClassVar[dict[str, tuple[int, int, Callable[["Expressions", Call, Context], Value]]]] = {
        "where": (1, 1, _where),
        "exists": (0, 1, _exists),
        "empty": (0, 0, _empty),
        "not": (0, 0, _not),
        "first": (0, 0, _first),
        "ofType": (1, 1, _of_type),
        "extension": (1, 1, _extension),
        "join": (0, 1, _join),
        "getResourceKey": (0, 0, _resource_key),
        "getReferenceKey": (0, 1, _reference_key),
        "lowBoundary": (0, 0, _boundary),
        "highBoundary": (0, 0, _boundary),
    }
    """The functions of the profile: fewest and most arguments, and the method that compiles the call."""

    _KINDS: ClassVar[dict[type[Node], Callable[..., Value]]] = {
        This: _this,
        Literal: _literal,
        Constant: _constant,
        Negative: _negative,
        Binary: _binary,
        Index: _index,
        Member: _member,
        Call: _call,
    }


def descends(node: Node) -> bool:
    """True if the path gives only elements below the element that it starts at, so that a repeat of it ends."""
    if isinstance(node, Member):
        return _starts_here(node.base) and not _begins(node)
    if isinstance(node, Index):
        return descends(node.base)
    if isinstance(node, Call) and node.name == "extension":
        return _starts_here(node.base)
    return isinstance(node, Call) and node.name in ("where", "first", "ofType") and descends(node.base)


def _starts_here(node: Node) -> bool:
    return isinstance(node, This) or _begins(node) or descends(node)


def _begins(node: Node) -> bool:
    """True if a path begins with a type, as `Patient.name` may. No element name starts with a capital."""
    return isinstance(node, Member) and isinstance(node.base, This) and node.name[:1].isupper()


def _literal(value: str | bool | int | Decimal, type_name: str) -> Value:
    if isinstance(value, bool):
        return Value("true" if value else "false", type_name)
    if isinstance(value, str):
        if "\0" in value:
            raise BadPath("a text holds the character NUL")
        return Value(quoted(value), type_name)
    if len(Decimal(value).as_tuple().digits) > MAX_DIGITS or not -MAX_DIGITS < Decimal(value).adjusted() < MAX_DIGITS:
        raise BadPath(f"a number has more than {MAX_DIGITS} digits")
    if type_name == "decimal":
        return Value(quoted(f"{value:f}"), type_name)
    if not -(1 << 63) <= value < 1 << 63:
        raise BadPath("an integer has more than 64 bits")
    return Value(f"{value}", type_name)


def _type_name(node: Node) -> str:
    """Return the type that an argument names. Raises `BadPath` if there is no such type."""
    name = node.name if isinstance(node, Member) and isinstance(node.base, This | Member) else ""
    if not is_type(name):
        raise BadPath(f"`{name}` is not a type of FHIR R4" if name else "the argument must be the name of a type")
    return name


def _of_struct(base: Value, name: str) -> Value:
    assert base.shape is not None  # noqa: S101 - the caller made sure of it
    element, shape = base.shape.member(name)
    field, many = quoted_name(name), base.many or element.many
    if not base.many:
        sql = f"({base.sql}).{field}"
    else:
        found = each(base.raw or base.sql, lambda v: f"{v}.{field}")
        sql = f"flatten({found})" if element.many else found
    is_json = shape is not None and shape.whole
    value = Value(present(sql) if many else sql, element.type, many, shape, is_json, sql if many else None)
    if element.type is None:  # may be a list in some bodies and a single element in others
        spread = "CASE WHEN json_type({0}) = 'ARRAY' THEN json_extract({0}, '$[*]') ELSE [{0}] END".format
        return Value(present(f"flatten({each(as_list(value), spread)})"), None, many=True, is_json=True)
    return value


def _of_json(base: Value, name: str) -> Value:
    """Return an element of JSON, which may be a list in some bodies and a single element in others."""
    declared = elements(base.type or "").get(name)
    names = [name] if declared else list(choices(base.type or "", name).values()) or [name]
    if '"' in name or "\0" in name:
        raise BadPath("the name of an element holds a character that none has")

    def of_one(v: str) -> str:
        found = []
        for each_name in names:
            path = f'$."{each_name}"'
            found.append(
                f"CASE WHEN json_type({v}, {quoted(path)}) = 'ARRAY' THEN json_extract({v}, {quoted(path + '[*]')}) "
                f"ELSE [json_extract({v}, {quoted(path)})] END"
            )
        return found[0] if len(found) == 1 else f"flatten([{', '.join(found)}])"

    items = kept_elements(f"flatten({each(as_list(base), of_one)})", lambda v: f"json_type({v}) <> 'NULL'")
    if declared is None or declared.type is None:
        return Value(items, None, many=True, is_json=True)
    is_primitive = declared.type in PRIMITIVES
    if is_primitive:
        items = present(each(items, lambda v: f"try_cast({v} ->> '$' AS {sql_type(declared.type)})"))
    many = base.many or declared.many
    return Value(items if many else f"({items})[1]", declared.type, many, is_json=not is_primitive)
