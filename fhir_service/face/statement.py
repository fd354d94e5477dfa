"""The CapabilityStatement of the R4 face: that of the interface, with the face's address and its own parameters."""

from typing import Any

from fhir_service.face.including import includable
from fhir_service.face.rendering import at_face
from fhir_service.face.searching import LAST_UPDATED
from fhir_service.interface.registry import RESOURCES
from fhir_service.settings import Settings
from fhir_service.web.capability import capability_statement


def face_statement(settings: Settings, store_id: str, version: str) -> dict[str, Any]:
    """Return the statement of a service's face."""
    statement = capability_statement(settings, store_id, version)
    statement["implementation"]["url"] = at_face(settings.site).base_url
    statement["format"].append("json")
    for shown in statement["rest"][0]["resource"]:
        shown["conditionalRead"] = "not-match"
        shown["searchParam"].append({"name": LAST_UPDATED.name, "type": "date"})
        if includes := list(includable(RESOURCES[shown["type"]])):
            shown["searchInclude"] = includes
    return statement
