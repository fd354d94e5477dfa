"""Stored resources as they go out: one that is read, and several joined to a Bundle."""

from collections.abc import Callable, Sized
from datetime import UTC
from email.utils import format_datetime
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from fhir_service.audit.records import touch
from fhir_service.interactions import update
from fhir_service.interactions.read import referred, there
from fhir_service.interface.vocabulary import Resource
from fhir_service.service import Service
from fhir_service.store.bodies import Found
from fhir_service.web.http import caller_of

FEW_PARTS = 50
"""Resources that are joined to a Bundle without a thread: they take less than a millisecond."""


async def read(service: Service, resource: Resource, request: Request) -> Found:
    """Read the resource of a request's path."""
    resource_id = request.path_params["id"]
    touched = touch(request, "read", resource.name, resource_id)
    caller_of(request).require(resource.name, "r")
    found = await current(service, resource, resource_id)
    touched.patients = found.patients
    return found


def validators(found: Found) -> dict[str, str]:
    """The headers that tell the version and time of a resource."""
    changed = format_datetime(found.updated_at.astimezone(UTC), usegmt=True)
    return {"last-modified": changed, "etag": update.etag(found.version)}


async def current(service: Service, resource: Resource, resource_id: str) -> Found:
    """Return a resource as it is now. Raises the 404 that names type and id."""
    if found := service.reader.at_hand(resource, resource_id):
        return found
    reference = referred(resource, resource_id)
    return there(await service.reader.together.look_up(reference), reference)


def rendered(service: Service, stored: bytes) -> bytes:
    """A stored body, or several joined, as it goes out."""
    return service.documents.sign_all(service.site.fill(stored))


async def joined(service: Service, parts: Sized, join: Callable[..., bytes], *arguments: Any) -> bytes:
    """Return a Bundle of stored bodies as it goes out: made beside the event loop where it has many parts."""

    def made() -> bytes:
        return rendered(service, join(*arguments))

    return await run_in_threadpool(made) if len(parts) > FEW_PARTS else made()
