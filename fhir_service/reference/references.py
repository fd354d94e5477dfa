"""References between loaded records, and their times: common to all types."""

import re
from collections.abc import Iterator
from typing import Any

from fhir_service.interface.datatypes import ID_PATTERN
from fhir_service.interface.site import Site
from fhir_service.interface.times import normal_time
from fhir_service.reference.reading import Flaw

# In the order of loading: what others are refused without comes first.
TYPES = ("Patient", "Practitioner", "Group", "Encounter", "Claim", "Observation", "Questionnaire", "DiagnosticReport")
_LOCAL = re.compile(rf"((?:{'|'.join(TYPES)})/{ID_PATTERN})(?:/_history/{ID_PATTERN})?\Z", re.ASCII)
_PARTIAL = re.compile(r"\d{4}(?:-\d\d)?\Z", re.ASCII)


def target_of(element: Any, site: Site, *types: str) -> str | None:
    """Return `Type/id` of a reference to a loadable record of these types; None for any other reference."""
    text = element.get("reference") if isinstance(element, dict) else None
    if not isinstance(text, str):
        return None
    match = _LOCAL.match(text.removeprefix(f"{site.base_url}/"))
    return match[1] if match and (not types or match[1].partition("/")[0] in types) else None


def targets(body: Any, site: Site) -> Iterator[str]:
    """Return all references of a record to loadable records, at any depth, as `Type/id`."""
    stack = [body]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if found := target_of(value, site):
                yield found
            stack += [part for part in value.values() if isinstance(part, dict | list)]
        elif isinstance(value, list):
            stack += [part for part in value if isinstance(part, dict | list)]


def patient_of(body: dict[str, Any], element: str, site: Site, required: bool, flaws: list[Flaw]) -> str | None:
    """Return the id of the patient that an element names. Add a flaw if it has to name one and does not."""
    found = target_of(body.get(element), site, "Patient")
    if found is None and required:
        flaws.append(Flaw(f"{body['resourceType']}.{element}", "names no patient in the form Patient/<id>"))
    return found.partition("/")[2] if found else None


def time_of(body: dict[str, Any], element: str, path: str, flaws: list[Flaw]) -> str | None:
    """Return a date, or a datetime in UTC. Add a flaw if it is not in the calendar."""
    text = body.get(element)
    if text is None:
        return None
    try:
        return text if isinstance(text, str) and _PARTIAL.match(text) else normal_time(text)
    except (ValueError, TypeError):
        flaws.append(Flaw(f"{path}.{element}", "not a date, or a datetime with an offset"))
        return None
