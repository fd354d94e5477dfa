"""The condition of a create: `If-None-Exist` names an identifier that no resource may have yet."""

import re
from collections.abc import Sequence
from urllib.parse import parse_qsl

from fhir_service.interactions.conditions import literal, pieces
from fhir_service.interface.datatypes import CONTROLS
from fhir_service.interface.outcomes import INVALID, FhirError

# An identifier without escapes. Almost all are like this, and need no further parsing.
_PLAIN = re.compile(r"identifier=([\w.:/\-]+)\|([\w.:/~\-]+)\Z", re.ASCII)


def condition_of(headers: Sequence[str]) -> tuple[str, str] | None:
    """Return the identifier of a request's `If-None-Exist` headers, at most one. Raises a bad request."""
    if len(headers) > 1:
        raise FhirError(INVALID, "If-None-Exist is sent twice")
    return condition(*headers)


def condition(text: str | None = None) -> tuple[str, str] | None:
    """Return the identifier of `identifier=<system>|<value>`; None for no condition. Raises the 400 of all else."""
    if text is None:
        return None
    if plain := _PLAIN.match(text):
        return plain[1], plain[2]
    pairs = parse_qsl(text.lstrip("?"), keep_blank_values=True)
    if len(pairs) == 1 and pairs[0][0] == "identifier" and len(list(pieces(pairs[0][1], ","))) == 1:
        parts = [literal(part) for part in pieces(pairs[0][1], "|")]
        if len(parts) == 2 and all(parts) and not CONTROLS.search(pairs[0][1]):
            return parts[0], parts[1]
    raise FhirError(INVALID, "If-None-Exist must be one identifier=<system>|<value>")
