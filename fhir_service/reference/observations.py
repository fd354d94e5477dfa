"""A loaded Observation as the service shows it: unchanged, but with references and codes in the interface's form."""

from typing import Any

from fhir_service.interface.datatypes import reference
from fhir_service.interface.resources.observation import content_of
from fhir_service.interface.site import Site
from fhir_service.reference.narrative import sanitised
from fhir_service.reference.references import target_of


def stored_observation(observation: dict[str, Any], site: Site) -> dict[str, Any]:
    """Return the observation in the form in which it is stored, with the site's markers."""
    body: dict[str, Any] = _stored(content_of(observation), site)
    narrative = observation.get("text", {}).get("div")
    if isinstance(narrative, str) and (div := sanitised(narrative)):
        body["text"] = {"status": "generated", "div": div}
    return body


def _stored(value: Any, site: Site) -> Any:
    """Return an element of any depth, with relative references and with the markers of systems."""
    if isinstance(value, list):
        return [_stored(part, site) for part in value]
    if not isinstance(value, dict):
        return value
    stored = {name: _stored(part, site) for name, part in value.items()}
    if target := target_of(value, site):
        stored |= reference(target)
    if isinstance(system := value.get("system"), str):
        stored["system"] = site.stored_systems.get(system, system)
    return stored
