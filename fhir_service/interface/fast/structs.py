"""Bodies of plain shape, read and checked in one pass, which takes a tenth of the time that models take.

Beside a model stands a struct with the same elements, derived from it. It takes less than the model does: of what it
refuses, the model says whether it is wrong, and how. What it takes, the model takes too, and reads as the same values.
"""

import re
import types
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from pydantic import AfterValidator, BaseModel, StringConstraints
from pydantic.fields import FieldInfo

from fhir_service.interface.datatypes import NO_CONTROLS, Unused

_ESCAPED = re.compile(rb"\\(?:[bf]|u00(?:[01289]|7[fF]))")
_CONTROL = re.compile(rb"\xc2[\x80-\x9f]")
_MINUS_NOTHING = re.compile(rb"-0(?=[\s,}\]])")
_LEVELS = 3
"""Levels that a model may be nested in itself. No form in use has more, and structs cannot count them."""

_WRITER = msgspec.json.Encoder(decimal_format="number")


class _Never(msgspec.Struct, tag_field="resourceType", tag="\0"):
    """No resource: no plain text holds its tag. Of two structs msgspec wants the tag, which one alone may lack."""


class Reader:
    """Reads JSON texts of one type: a struct, or what holds structs."""

    def __init__(self, kind: Any) -> None:
        tagged = isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_config__.tag is not None
        self._decoder = msgspec.json.Decoder(kind | _Never if tagged else kind)

    def read(self, raw: bytes) -> Any | None:
        """Return the value of a text that is plain throughout; None where the models are to look."""
        if is_unplain(raw):
            return None
        try:
            value = self._decoder.decode(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        # What is repeated, null, or a number in quotation marks would miss marks when it is written again. Nothing
        # gains any: a text without the tag is refused.
        return value if _WRITER.encode(value).count(b'"') == raw.count(b'"') else None


def is_unplain(raw: bytes) -> bool:
    """True if a control character or an escaped quotation mark may be in it, or the number -0: structs read it as 0."""
    return bool(
        (b"\\" in raw and _ESCAPED.search(raw))
        or b"\x7f" in raw
        or (not raw.isascii() and _CONTROL.search(raw))
        or _MINUS_NOTHING.search(raw)
    )


class _NotPlain(Exception):
    """A type that structs do not take."""


@cache
def struct_of(model: type[BaseModel]) -> type[msgspec.Struct]:
    """The struct of a model, its tag being the `resourceType` where it has one. Properties of the model are its too."""
    return _struct(model, ())


def _struct(model: type[BaseModel], around: tuple[type[BaseModel], ...]) -> type[msgspec.Struct]:
    if model.model_config.get("extra") != "forbid" or around.count(model) >= _LEVELS:
        raise _NotPlain
    hints = get_type_hints(model, include_extras=True)
    fields = list(_fields(model, hints, (*around, model)))
    changed = [(name, change) for name, *_ in fields if (change := _change(hints[name]))]
    after = _changing(changed) if changed else None
    if not issubclass(model, Unused) and all(field.default is None for *_, field in fields):
        after = _not_empty([name for name, *_ in fields], after)
    tag = get_args(hints["resourceType"])[0] if "resourceType" in hints else None
    keeps = bool(_cached(model))
    taken = {name for name, *_ in fields}
    absent = {name: None for name in model.model_fields if name not in taken and name != "resourceType"}
    return msgspec.defstruct(
        model.__name__,
        fields,
        namespace=absent | _properties(model) | ({"__post_init__": after} if after else {}),
        kw_only=True,
        forbid_unknown_fields=True,
        omit_defaults=True,
        tag_field="resourceType" if tag else None,
        tag=tag,
        dict=keeps,
        gc=keeps,
    )


def _fields(
    model: type[BaseModel], hints: dict[str, Any], around: tuple[type[BaseModel], ...]
) -> Iterator[tuple[str, Any, Any]]:
    """The elements as structs have them. What is optional and not plain is left out: who sends it is refused."""
    checked_as_whole = bool(model.__pydantic_decorators__.model_validators)
    for name, info in model.model_fields.items():
        if name == "resourceType" or (checked_as_whole and not info.is_required()):
            continue
        try:
            kind = _plain(hints[name], around)
        except _NotPlain:
            if info.is_required():
                raise
            continue
        default = msgspec.NODEFAULT if info.is_required() else None
        yield name, kind, msgspec.field(name=info.alias, default=default)


def _properties(model: type[BaseModel]) -> dict[str, Any]:
    found = {name: value for name, value in _own(model).items() if isinstance(value, property)}
    return found | {name: _Kept(name, value.func) for name, value in _cached(model)}


def _cached(model: type[BaseModel]) -> list[tuple[str, cached_property[Any]]]:
    return [(name, value) for name, value in _own(model).items() if isinstance(value, cached_property)]


def _own(model: type[BaseModel]) -> dict[str, Any]:
    """The definitions of a model and its bases, without those that all models have."""
    kinds = [kind for kind in reversed(model.__mro__) if issubclass(kind, BaseModel) and kind is not BaseModel]
    return {name: value for kind in kinds for name, value in vars(kind).items()}


class _Kept:
    """A `cached_property` without the lock that it takes before Python 3.12: a body is one thread's."""

    def __init__(self, name: str, function: Callable[[Any], Any]) -> None:
        self._name, self._function = name, function

    def __get__(self, body: Any, _: type) -> Any:
        found = body.__dict__[self._name] = self._function(body)
        return found


# --- Types ----------------------------------------------------------------------------------------


def _plain(hint: Any, around: tuple[type[BaseModel], ...]) -> Any:
    """A type of the models as structs have it: nothing in it is empty. Raises _NotPlain."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        patterns = [pattern for note in parts[1:] if (pattern := _pattern(note))]
        plain = _plain(parts[0], around)
        return Annotated[plain, msgspec.Meta(pattern=patterns[0])] if patterns else plain
    if origin in (Union, types.UnionType):
        return Union[tuple(_plain(part, around) for part in parts)]  # noqa: UP007 - of parts that are computed
    if origin is list:
        return Annotated[list[_plain(parts[0], around)], msgspec.Meta(min_length=1)]  # type: ignore[misc]
    if hint is str:
        return Annotated[str, msgspec.Meta(min_length=1)]
    if origin is Literal or hint in (Decimal, type(None)):
        return hint
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return _struct(hint, around)
    raise _NotPlain


def _pattern(note: Any) -> str | None:
    """The pattern of an annotation, where the reader does not see to it. Raises _NotPlain for one that says else."""
    if isinstance(note, StringConstraints):
        others = (note.strip_whitespace, note.to_upper, note.to_lower, note.max_length)
        if any(others) or (note.min_length or 0) > 1:
            raise _NotPlain
        # `$` of pydantic is the very end, that of Python is also before a last line feed.
        return None if note.pattern in (None, NO_CONTROLS) else re.sub(r"\$\Z", r"\\Z", str(note.pattern))
    if isinstance(note, FieldInfo):
        if any(getattr(part, "min_length", 0) > 1 for part in note.metadata):
            raise _NotPlain
        return None
    if isinstance(note, AfterValidator):
        return None
    raise _NotPlain


# --- What becomes of values -----------------------------------------------------------------------

Change = Callable[[Any], Any]


def _change(hint: Any) -> Change | None:
    """Return the changes that a model makes to values of a type after it has checked them."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(filter(None, map(_change, get_args(hint))), None)
    found: list[Any] = [note.func for note in get_args(hint) if isinstance(note, AfterValidator)]
    return found[0] if found else None


def _not_empty(names: list[str], then: Callable[[Any], None] | None) -> Callable[[Any], None]:
    """Refuse an object of which no element is there: with none that is required, a decoder takes it."""

    def refuse_nothing(self: Any) -> None:
        if all(getattr(self, name) is None for name in names):
            raise ValueError
        if then:
            then(self)

    return refuse_nothing


def _changing(changed: list[tuple[str, Change]]) -> Callable[[Any], None]:
    def change_values(self: Any) -> None:
        for name, change in changed:
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, change(value))

    return change_values
