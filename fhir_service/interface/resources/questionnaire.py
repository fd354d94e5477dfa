"""Questionnaire: a structured set of questions with coded answer options. Read and searched only.

The model is lenient: it reads what this service or another with the same interface shows.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict

from fhir_service.interface.resources.common import ID, codings
from fhir_service.interface.vocabulary import Param, Resource

STATUSES = ("active", "retired")
# The question kinds that messages name, by (type, repeats).
KINDS = {
    ("choice", True): "MULT",
    ("choice", False): "SING",
    ("text", False): "TXT",
    ("decimal", False): "DEC",
    ("open-choice", True): "MULT",
    ("open-choice", False): "SING",
    ("string", False): "TXT",
    ("integer", False): "DEC",
    ("quantity", False): "DEC",
}


class _Shown(BaseModel):
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)


class Coding(_Shown):
    system: str | None = None
    code: str | None = None
    display: str | None = None


class Option(_Shown):
    valueCoding: Coding | None = None


class Item(_Shown):
    linkId: str
    code: list[Coding] = []
    text: str | None = None
    type: str
    repeats: bool = False
    enableWhen: list[dict[str, Any]] = []
    answerOption: list[Option] = []
    item: list["Item"] = []

    @cached_property
    def kind(self) -> str | None:
        """`SING`, `MULT`, `TXT` or `DEC`; None for a group or display item."""
        return KINDS.get((self.type, self.repeats)) or KINDS.get((self.type, False))

    @cached_property
    def options(self) -> tuple[Coding, ...]:
        """The codings of the permitted answers, in order."""
        return tuple(option.valueCoding for option in self.answerOption if option.valueCoding)

    @cached_property
    def option_counts(self) -> dict[tuple[str | None, str | None], int]:
        """Count the options with this (system, code)."""
        counts: dict[tuple[str | None, str | None], int] = {}
        for option in self.options:
            counts[option.system, option.code] = counts.get((option.system, option.code), 0) + 1
        return counts

    @cached_property
    def systems(self) -> tuple[str | None, ...]:
        """The systems of the options, the first option's first."""
        return tuple(dict.fromkeys(option.system for option in self.options))


class Questionnaire(_Shown):
    """A questionnaire as its answers are checked against it."""

    id: str
    name: str | None = None
    status: str
    code: list[Coding] = []
    item: list[Item] = []

    @cached_property
    def questions(self) -> dict[str, Item]:
        """Every item of every depth by its linkId."""
        return {item.linkId: item for item in _all(self.item)}

    @cached_property
    def settled(self) -> dict[int, tuple[Any, Any]]:
        """Items of responses that choose an option, and how they are stored, by their `id()`: see `shared_items.py`."""
        return {}


def _all(items: list[Item]) -> Iterator[Item]:
    for item in items:
        yield item
        yield from _all(item.item)


def _item_codings(stored: dict[str, Any]) -> list[tuple[str | None, str | None]]:
    """The codings of the questions and sections of every depth."""
    found: list[tuple[str | None, str | None]] = []
    for item in stored.get("item", ()):
        found += [(coding.get("system"), coding.get("code")) for coding in item.get("code", ())]
        found += _item_codings(item)
    return found


QUESTIONNAIRE = Resource(
    "Questionnaire",
    model=Questionnaire,
    interactions=("read", "search"),
    params=(
        ID,
        Param("name", "starts", lambda stored: stored.get("name")),
        Param("status", "token", lambda stored: stored["status"], allowed=STATUSES),
        Param("code", "codes", _item_codings),
        Param("questionnaire-code", "codes", codings("code")),
    ),
)
