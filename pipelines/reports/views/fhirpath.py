"""Parse the part of FHIRPath that ViewDefinitions use. Time is linear in the text; nesting and length are bounded."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import ClassVar, NamedTuple

MAX_CHARACTERS = 10_000
MAX_DEPTH = 60


class BadPath(Exception):
    """A FHIRPath expression cannot be used. The message is one sentence, without the place of the expression."""


@dataclass(frozen=True)
class Node:
    """A part of an expression. depth: the height of its tree of nodes."""

    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        below = max((node.depth for node in self.children()), default=0)
        if below >= MAX_DEPTH:
            raise BadPath(f"the expression is nested deeper than {MAX_DEPTH} steps")
        object.__setattr__(self, "depth", below + 1)

    def children(self) -> Iterator["Node"]:
        for each in fields(self):
            found = getattr(self, each.name, None)
            if isinstance(found, Node):
                yield found
            elif isinstance(found, tuple):
                yield from found


@dataclass(frozen=True)
class This(Node):
    """`$this`, or the element that a path starts at."""


@dataclass(frozen=True)
class Literal(Node):
    """A value written in the expression. type: its FHIR type."""

    value: str | bool | int | Decimal
    type: str


@dataclass(frozen=True)
class Constant(Node):
    """`%name`."""

    name: str


@dataclass(frozen=True)
class Member(Node):
    """`base.name`."""

    base: Node
    name: str


@dataclass(frozen=True)
class Index(Node):
    """`base[place]`."""

    base: Node
    place: Node


@dataclass(frozen=True)
class Call(Node):
    """`base.name(arguments)`."""

    base: Node
    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Negative(Node):
    """`-operand`."""

    operand: Node


@dataclass(frozen=True)
class Binary(Node):
    """`left operator right`."""

    operator: str
    left: Node
    right: Node


class Token(NamedTuple):
    """A piece of the text. kind: the name of its group in the pattern."""

    kind: str
    text: str
    at: int


_DAY = r"[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2})?)?"
_CLOCK = r"[0-9]{2}(?::[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?)?"
_ZONE = r"(?:Z|[+-][0-9]{2}:[0-9]{2})?"
_TOKENS = re.compile(
    rf"""(?P<blank>\s+)
    |(?P<number>[0-9]+(?:\.[0-9]+)?)
    |(?P<string>'(?:[^'\\]|\\.)*')
    |(?P<moment>@(?:T{_CLOCK}|{_DAY}(?:T(?:{_CLOCK}{_ZONE})?)?))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*|`[^`\\]+`)
    |(?P<this>\$this\b)
    |(?P<constant>%(?:[A-Za-z_][A-Za-z0-9_]*|`[^`\\]+`))
    |(?P<sign>!=|<=|>=|!~|[()\[\].,=<>+\-*/&|~])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
OPERATORS = {
    "or": 1, "and": 2, "=": 3, "!=": 3, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6,
}  # fmt: skip
"""The binary operators, each with its precedence; a higher number binds tighter."""
_OUTSIDE = {"implies", "xor", "in", "contains", "is", "as", "div", "mod", "&", "|", "~", "!~"}


def parse(text: str) -> Node:
    """Return the parsed expression. Raises `BadPath`."""
    if len(text) > MAX_CHARACTERS:
        raise BadPath(f"the expression has more than {MAX_CHARACTERS} characters")
    parser = _Parser(list(_tokens(text)))
    node = parser.expression(0)
    parser.end()
    return node


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None or match.lastgroup is None:
            raise BadPath(f"`{text[at : at + 20]}` at character {at + 1} is not FHIRPath")
        if match.lastgroup != "blank":
            yield Token(match.lastgroup, match[0], at)
        at = match.end()
    yield Token("end", "", at)


class _Parser:
    """A recursive-descent parser over the tokens. at: the index of the next token."""

    LITERALS: ClassVar[dict[str, bool]] = {"true": True, "false": False}

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.at, self.open = tokens, 0, 0

    def expression(self, above: int) -> Node:
        """Return the expression made of operators that bind tighter than `above`."""
        self.open += 1
        if self.open > MAX_DEPTH:
            raise BadPath(f"the expression is nested deeper than {MAX_DEPTH} steps")
        left = self._unary()
        while (power := self._operator()) > above:
            operator = self._next().text
            left = Binary(operator, left, self.expression(power))
        self.open -= 1
        return left

    def end(self) -> None:
        if self._peek().kind != "end":
            raise self._unexpected()

    def _operator(self) -> int:
        token = self._peek()
        if token.kind in ("name", "sign") and token.text in _OUTSIDE:
            allowed = " ".join(OPERATORS)
            raise BadPath(f"the operator `{token.text}` is outside the profile; allowed are {allowed}")
        return OPERATORS.get(token.text, 0) if token.kind in ("name", "sign") else 0

    def _unary(self) -> Node:
        signs = ""
        while self._peek().text in ("+", "-") and self._peek().kind == "sign":
            signs += self._next().text
        node = self._path()
        return Negative(node) if signs.count("-") % 2 else node

    def _path(self) -> Node:
        node = self._start()
        while self._peek().kind == "sign" and self._peek().text in (".", "["):
            if self._next().text == ".":
                node = self._step(node)
            else:
                node = Index(node, self.expression(0))
                self._expect("]")
        return node

    def _start(self) -> Node:
        token = self._next()
        if token.text == "(" and token.kind == "sign":
            node = self.expression(0)
            self._expect(")")
            return node
        if token.kind == "name" and token.text in self.LITERALS:
            return Literal(self.LITERALS[token.text], "boolean")
        if token.kind == "name":
            self.at -= 1
            return self._step(This())
        return self._value(token)

    def _value(self, token: Token) -> Node:
        if token.kind == "this":
            return This()
        if token.kind == "constant":
            return Constant(token.text[1:].strip("`"))
        if token.kind == "string":
            return Literal(_unescaped(token.text[1:-1]), "string")
        if token.kind == "number":
            number = Decimal(token.text)
            return Literal(number, "decimal") if "." in token.text else Literal(int(number), "integer")
        if token.kind == "moment":
            said = token.text[1:]
            kind = "time" if said[0] == "T" else "dateTime" if "T" in said else "date"
            return Literal(said.strip("T"), kind)
        self.at -= 1
        raise self._unexpected()

    def _step(self, base: Node) -> Node:
        token = self._next()
        if token.kind != "name":
            self.at -= 1
            raise self._unexpected()
        name = token.text.strip("`")
        if self._peek().text != "(" or self._peek().kind != "sign":
            return Member(base, name)
        self._next()
        return Call(base, name, self._arguments())

    def _arguments(self) -> tuple[Node, ...]:
        found: list[Node] = []
        while self._peek().text != ")" or self._peek().kind != "sign":
            if found:
                self._expect(",")
            found.append(self.expression(0))
        self._next()
        return tuple(found)

    def _peek(self) -> Token:
        return self.tokens[self.at]

    def _next(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def _expect(self, sign: str) -> None:
        if self._peek().text != sign or self._peek().kind != "sign":
            raise self._unexpected(f", where `{sign}` is needed")
        self.at += 1

    def _unexpected(self, needed: str = "") -> BadPath:
        token = self._peek()
        if token.kind == "end":
            return BadPath(f"the expression ends early{needed}")
        return BadPath(f"`{token.text[:20]}` at character {token.at + 1} is not expected there{needed}")


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(one, text)


def nodes(node: Node) -> Iterator[Node]:
    """Yield the node and all nodes below it."""
    yield node
    for each in node.children():
        yield from nodes(each)
