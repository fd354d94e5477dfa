"""The independent referee of what the service shows: the models of FHIR R4B in `fhir.resources`."""

import json
from importlib import import_module
from typing import Any

import httpx

from tests.spec.casebook import from_json


def parses(response: httpx.Response) -> None:
    """The body is a resource of R4 and, serialised again, the same resource."""
    body = from_json(response.content)
    name = body["resourceType"]
    model: Any = getattr(import_module(f"fhir.resources.R4B.{name.lower()}"), name)
    again = json.loads(model.model_validate_json(response.content).model_dump_json())
    assert set(again) == set(body)
