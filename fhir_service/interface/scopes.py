"""Rights: SMART scopes, which are text, and the caller who holds them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from fhir_service.interface.outcomes import AUTHENTICATION, FORBIDDEN, FhirError

EVERYTHING = "system/*.cruds"
CHART_TYPES = ("Patient", "Practitioner", "Group", "Claim")
"""Types that the chart shows and the interface does not: scopes may name them too."""

_SCOPE = re.compile(r"system/(\*|[A-Z][A-Za-z]{0,63})\.(read|write|\*|[cruds]{1,5})", re.ASCII)
_WORDS = {"read": "rs", "write": "cu", "*": "cruds"}


class ScopeError(ValueError):
    """A text that is not a list of scopes. The message shows what a scope looks like."""


@lru_cache(maxsize=1024)
def grants(scope: str) -> Mapping[str, frozenset[str]]:
    """Return the letters of `cruds` that a list of scopes grants, by resource type or `*`. Raises ScopeError."""
    found: dict[str, frozenset[str]] = {}
    for one in scope.split(" ") if scope else ():
        match = _SCOPE.fullmatch(one)
        if not match:
            raise ScopeError("a scope must have the form system/<Type or *>.<read, write, * or letters of cruds>")
        kind, permission = match.groups()
        found[kind] = found.get(kind, frozenset()) | frozenset(_WORDS.get(permission, permission))
    return found


@lru_cache(maxsize=1024)
def reach(scope: str, resource_type: str) -> frozenset[str]:
    """Return the letters that a list of scopes grants on a type. The type `*` means: on every type."""
    granted = grants(scope)
    return granted.get("*", frozenset()) | granted.get(resource_type, frozenset())


def within(asked: str, held: str) -> bool:
    """True if `held` grants all that `asked` grants. Raises ScopeError."""
    return all(letters <= reach(held, kind) for kind, letters in grants(asked).items())


_LETTERS = {"POST": "c", "PUT": "u", "PATCH": "u", "DELETE": "d"}


def letter_of(method: str, reading: str) -> str | None:
    """Return the letter of `cruds` that a method needs, `reading` for GET; None if it needs none."""
    return reading if method == "GET" else _LETTERS.get(method)


def unauthenticated() -> FhirError:
    """Return the 401 of a request without a valid token."""
    return FhirError(AUTHENTICATION, headers={"www-authenticate": "Bearer"})


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller: the client's id and the scopes of the token."""

    client: str
    scope: str

    def may(self, resource_type: str, letter: str) -> bool:
        """True if the caller may create, read, update, delete or search (`c r u d s`) resources of a type."""
        return letter in reach(self.scope, resource_type)

    @property
    def writes(self) -> bool:
        """True if the caller may create or update resources of some type."""
        return any(letters & {"c", "u"} for letters in grants(self.scope).values())

    def require(self, resource_type: str, letter: str) -> None:
        """Raise FhirError(FORBIDDEN) unless `may` is true."""
        if not self.may(resource_type, letter):
            raise FhirError(FORBIDDEN)
