"""Render stored resources for an answer: one alone, or several joined to a Bundle."""

from collections.abc import Callable, Sized
from datetime import UTC
from email.utils import format_datetime
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from fhir_service.audit.records import touch
from fhir_service.interactions import update
from fhir_service.interactions.read import reference_to, require_found
from fhir_service.interface.vocabulary import Resource
from fhir_service.service import Service
from fhir_service.store.bodies import StoredVersion
from fhir_service.web.http import caller_of

FEW_PARTS = 50
"""So many resources are joined to a Bundle without a thread: it takes less than a millisecond."""


async def read(service: Service, resource: Resource, request: Request) -> StoredVersion:
    """Read the resource in a request's path."""
    resource_id = request.path_params["id"]
    touched = touch(request, "read", resource.name, resource_id)
    caller_of(request).require(resource.name, "r")
    found = await current(service, resource, resource_id)
    touched.patients = found.patients
    return found


def validators(found: StoredVersion) -> dict[str, str]:
    """Return the headers with the version and the time of a resource."""
    changed = format_datetime(found.updated_at.astimezone(UTC), usegmt=True)
    return {"last-modified": changed, "etag": update.etag(found.version)}


async def current(service: Service, resource: Resource, resource_id: str) -> StoredVersion:
    """Return the current version of a resource. Raises the 404 that names type and id."""
    if found := service.reader.at_hand(resource, resource_id):
        return found
    reference = reference_to(resource, resource_id)
    return require_found(await service.reader.together.look_up(reference), reference)


def rendered(service: Service, stored: bytes) -> bytes:
    """Return the bytes of an answer from a stored body or from several joined ones: fill its markers."""
    return service.documents.sign_all(service.site.fill(stored))


async def joined(service: Service, parts: Sized, join: Callable[..., bytes], *arguments: Any) -> bytes:
    """Return the bytes of a Bundle of stored bodies. One with many resources is made in a thread."""

    def made() -> bytes:
        return rendered(service, join(*arguments))

    return await run_in_threadpool(made) if len(parts) > FEW_PARTS else made()
