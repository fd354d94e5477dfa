"""The exit codes of `chartferry`, and the failures that have one. The highest code that applies is returned."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ALL_LOADED = 0
SET_ASIDE = 3
UNREADABLE = 4
IN_DOUBT = 5
UNUSABLE = 6

INTERNAL = 1
INTERRUPTED = 130


class CommandResult:
    """A dataclass that is the result of a command. Its JSON has its fields."""

    def as_json(self: "DataclassInstance") -> dict[str, Any]:
        return asdict(self)


class ExplainedError(Exception):
    """A request that cannot be carried out. The text is one line for a person, without a record's data. exit_code: of
    the command.
    """

    exit_code: ClassVar[int] = UNUSABLE


class BadSetting(ExplainedError):
    """A setting, or a file of settings, cannot be used. The text names it and the problem."""


class WronglyAsked(ExplainedError):
    """The request itself must be changed: another file, name or setting is needed."""

    exit_code = UNREADABLE
