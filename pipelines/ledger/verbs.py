"""Verbs: the functions that write to the ledger. Each call is a fact, and calling it again makes the same rows.

A fact is the verb's name with its arguments: ids, hashes, line numbers and cents, never a name or a text of a record.
"""

import inspect
from collections.abc import Callable, Iterator, KeysView, ValuesView
from functools import cache, wraps
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar, cast, get_type_hints

import msgspec

from pipelines.ledger.tables import LedgerError

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class FactRecorder(Protocol):
    """A ledger that keeps calls of verbs as facts."""

    def tell(self, name: str, arguments: list[Any], act: Callable[[], R]) -> R:
        """Run a verb, and keep it as a fact of the transaction."""


# -- verbs


class ReplayedLease(NamedTuple):
    """The lease of a replayed write. It was held when the write was new."""

    target: str

    def confirm(self, _: object) -> None:
        """Raise nothing, whoever holds the target now."""


VERBS: dict[str, Callable[..., Any]] = {}
"""The functions behind the verbs, by name."""
MODULES = ("all_rows", "batches", "doubts", "former_versions", "ledger", "notes", "reject_state", "rejects")
"""The modules of this package with verbs. A command may need only some of them, but replays the facts of all."""


def verb(function: F) -> F:
    """Make a function of a ledger a verb: each call of it is a fact of the journal.

    Its arguments are texts, numbers, and sequences, mappings and named tuples of them. A parameter named `lease` is
    kept as its target.
    """
    name, signature = function.__name__, inspect.signature(function)
    if name in VERBS:
        raise ValueError(f"two verbs are named {name}")
    VERBS[name] = function

    @wraps(function)
    def tell(ledger: FactRecorder, *arguments: Any, **named: Any) -> Any:
        bound = signature.bind(ledger, *arguments, **named)
        bound.apply_defaults()
        for each, value in bound.arguments.items():
            if isinstance(value, Iterator | KeysView | ValuesView):
                bound.arguments[each] = list(value)
        _, *values = (_as_told(each, value) for each, value in bound.arguments.items())
        return ledger.tell(name, values, lambda: function(*bound.args, **bound.kwargs))

    return cast(F, tell)


def _as_told(name: str, value: Any) -> Any:
    """Return an argument in the form that a fact has."""
    if name == "lease":
        return value.target
    return dict(value) if isinstance(value, MappingProxyType) else value


def replay(ledger: Any, fact: list[Any]) -> None:
    """Call the verb of a fact again. A fact of an earlier version may lack newer parameters, which have defaults.

    Raises `LedgerError` if this version does not know the verb or its arguments.
    """
    name, *arguments = fact
    if name not in VERBS:
        for module in MODULES:
            import_module(f"pipelines.ledger.{module}")
    if name not in VERBS:
        raise LedgerError(f"the journal is from a newer version: it has a fact '{name}', which this one does not know")
    signature, types = _parameters(name)
    if len(arguments) > len(types):
        raise LedgerError(f"the journal is from a newer version: it says more of '{name}' than this one knows")
    bound = signature.bind_partial(ledger)
    for (each, kind), said in zip(types.items(), arguments, strict=False):
        bound.arguments[each] = ReplayedLease(said) if each == "lease" else msgspec.convert(said, kind, str_keys=True)
    VERBS[name](*bound.args, **bound.kwargs)


@cache
def _parameters(name: str) -> tuple[inspect.Signature, dict[str, Any]]:
    """Return a verb's signature, and the types of its arguments by name."""
    function = VERBS[name]
    signature, hints = inspect.signature(function), get_type_hints(function)
    _, *rest = signature.parameters.values()
    named = inspect.Parameter.VAR_KEYWORD
    return signature, {each.name: dict if each.kind is named else hints[each.name] for each in rest}
