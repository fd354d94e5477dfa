"""The exit codes of `chartferry`: the highest that applies is given."""

ALL_LOADED = 0
SET_ASIDE = 3
UNREADABLE = 4
IN_DOUBT = 5
UNUSABLE = 6

INTERNAL = 1
INTERRUPTED = 130
