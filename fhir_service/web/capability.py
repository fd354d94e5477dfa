"""The CapabilityStatement and the SMART configuration, made from the registry."""

from collections.abc import Iterator
from typing import Any

from fhir_service.auth.assertions import ALGORITHMS
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.vocabulary import Param, Resource
from fhir_service.settings import TOKEN_PATH, Settings

_PUBLISHED = "2026-11-21"
_INTERACTIONS = {"create": "create", "read": "read", "update": "update", "search": "search-type"}
_PARAM_TYPES = {
    "id": "token",
    "token": "token",
    "codes": "token",
    "reference": "reference",
    "date": "date",
    "contains": "string",
    "starts": "string",
    "exact": "string",
    "uri": "reference",
}
_HISTORY = ("history-instance", "history-type")
_VALIDATE = {"name": "validate", "definition": "http://hl7.org/fhir/OperationDefinition/Resource-validate"}
_SECURITY_SERVICE = "http://terminology.hl7.org/CodeSystem/restful-security-service"
_SECURITY = {"service": [{"coding": [{"system": _SECURITY_SERVICE, "code": "SMART-on-FHIR"}]}]}
"""The address of tokens is in the SMART configuration: the extension that names it asks for a page to sign in at."""


def capability_statement(settings: Settings, store_id: str, version: str) -> dict[str, Any]:
    """Return the CapabilityStatement. Its `implementation.description` is the store's id: importers recognise it."""
    return {
        "resourceType": "CapabilityStatement",
        "status": "active",
        "date": _PUBLISHED,
        "kind": "instance",
        "software": {"name": "Chartferry fhir-service", "version": version},
        "implementation": {"description": f"urn:uuid:{store_id}", "url": settings.site.base_url},
        "fhirVersion": "4.0.1",
        "format": ["application/fhir+json", "application/json"],
        "rest": [_rest(settings)],
    }


def offered(settings: Settings) -> Iterator[Resource]:
    """Yield the resources that a service with these settings offers."""
    return (each for each in RESOURCES.values() if not (each.addition and settings.interface_only))


def _rest(settings: Settings) -> dict[str, Any]:
    rest = {
        "mode": "server",
        "security": _SECURITY,
        "resource": [_resource(resource, not settings.interface_only) for resource in offered(settings)],
    }
    return rest if settings.interface_only else rest | {"interaction": [{"code": "batch"}, {"code": "transaction"}]}


def _resource(resource: Resource, additions: bool) -> dict[str, Any]:
    added = additions and "create" in resource.interactions
    interactions = [*(_INTERACTIONS[name] for name in resource.interactions), *(_HISTORY if added else ())]
    shown: dict[str, Any] = {
        "type": resource.name,
        "interaction": [{"code": code} for code in interactions],
        "versioning": "versioned",
        "readHistory": False,
        "updateCreate": False,
        "conditionalCreate": added,
        "conditionalUpdate": False,
        "conditionalDelete": "not-supported",
        "searchParam": [_param(param) for param in resource.params if additions or param.name != "identifier"],
    }
    return shown | {"operation": [_VALIDATE]} if added else shown


def _param(param: Param) -> dict[str, str]:
    return {"name": param.name, "type": _PARAM_TYPES[param.kind]}


def smart_configuration(settings: Settings) -> dict[str, Any]:
    """Return the body of `/.well-known/smart-configuration`."""
    return {
        "token_endpoint": settings.site.base_url + TOKEN_PATH,
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "private_key_jwt"],
        "token_endpoint_auth_signing_alg_values_supported": list(ALGORITHMS),
        "grant_types_supported": ["client_credentials"],
        "scopes_supported": [f"system/{name}.cruds" for name in ("*", *(one.name for one in offered(settings)))],
        "response_types_supported": [],
        "capabilities": [
            "client-confidential-symmetric",
            "client-confidential-asymmetric",
            "permission-v1",
            "permission-v2",
        ],
    }
