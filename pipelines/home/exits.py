"""The exit codes of `chartferry`: the highest that applies is given. And the failures that say which is theirs."""

from typing import ClassVar

ALL_LOADED = 0
SET_ASIDE = 3
UNREADABLE = 4
IN_DOUBT = 5
UNUSABLE = 6

INTERNAL = 1
INTERRUPTED = 130


class Explained(Exception):
    """A request that cannot be carried out: one line for a person, with no record's data. exit_code: the command's."""

    exit_code: ClassVar[int] = UNUSABLE


class BadSetting(Explained):
    """A setting, or a file of settings, cannot be used: the line names it, and says how it is wrong."""


class WronglyAsked(Explained):
    """It cannot be done as it was asked for: a file, a name or a setting has to be another."""

    exit_code = UNREADABLE
