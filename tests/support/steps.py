"""Count the steps of a backtracking matcher for a pattern: a measure of work without a clock."""

import math
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from re import _compiler, _constants as c, _parser  # type: ignore[attr-defined]  # isort: skip

SINGLE = (c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN)
REPEATS = (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT)
sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))


@cache
def _parsed(pattern: str, flags: int) -> Any:
    return _parser.parse(pattern, flags)


class TooManySteps(AssertionError):
    """The matcher took more steps than allowed."""


class Steps:
    """A matcher of one pattern that counts its steps. It tries all paths that the engine of `re` would try."""

    def __init__(self, pattern: re.Pattern[str], text: str, most: float = math.inf) -> None:
        self.taken, self._most = 0, most
        self._text = text
        self._tree = _parsed(pattern.pattern, pattern.flags & ~re.UNICODE.value)
        self._flags = pattern.flags
        self._tests: dict[int, Callable[[str], object]] = {}

    def match(self) -> bool:
        """True if the pattern matches the whole text."""
        return any(end == len(self._text) for end in self._sequence(list(self._tree), 0))

    def _sequence(self, nodes: list[Any], at: int) -> Iterator[int]:
        if not nodes:
            yield at
            return
        for end in self._node(nodes[0], at):
            yield from self._sequence(nodes[1:], end)

    def _node(self, node: Any, at: int) -> Iterator[int]:
        self.taken += 1
        if self.taken > self._most:
            raise TooManySteps
        op, given = node
        if op in SINGLE:
            yield from [at + 1] * self._is(node, at)
        elif op is c.SUBPATTERN:
            yield from self._sequence(list(given[-1]), at)
        elif op is c.ATOMIC_GROUP:
            yield from self._first(self._sequence(list(given), at))
        elif op is c.BRANCH:
            for branch in given[1]:
                yield from self._sequence(list(branch), at)
        elif op in REPEATS:
            least, most, body = given
            yield from self._repeat(op, least, most, body, at)
        elif op is c.AT:
            yield from [at] * self._is_place(given, at)
        elif op in (c.ASSERT, c.ASSERT_NOT):
            yield at
        elif op is c.FAILURE:
            return
        else:
            raise NotImplementedError(str(op))

    def _is_place(self, place: Any, at: int) -> bool:
        """True if an anchor may match here. Anchors other than both ends of the text always match."""
        if place in (c.AT_BEGINNING, c.AT_BEGINNING_STRING):
            return at == 0
        return at == len(self._text) if place in (c.AT_END, c.AT_END_STRING) else True

    def _repeat(self, op: Any, least: int, most: Any, body: Any, at: int) -> Iterator[int]:
        limit = len(self._text) + 1 if most is c.MAXREPEAT else int(most)
        ends = self._times(op, least, limit, list(body), at)
        yield from self._first(ends) if op is c.POSSESSIVE_REPEAT else ends

    def _times(self, op: Any, least: int, limit: int, body: list[Any], at: int) -> Iterator[int]:
        if op is c.MIN_REPEAT and least <= 0:
            yield at
        if limit > 0:
            for end in self._sequence(body, at):
                if end > at:
                    yield from self._times(op, least - 1, limit - 1, body, end)
        if op is not c.MIN_REPEAT and least <= 0:
            yield at

    def _is(self, node: Any, at: int) -> bool:
        if at >= len(self._text):
            return False
        if id(node) not in self._tests:
            part = _parser.SubPattern(self._tree.state, [node])
            self._tests[id(node)] = _compiler.compile(part, self._flags & ~re.UNICODE.value).fullmatch
        return bool(self._tests[id(node)](self._text[at]))

    @staticmethod
    def _first(ends: Iterator[int]) -> Iterator[int]:
        for end in ends:
            yield end
            return
