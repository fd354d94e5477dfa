"""The independent check of all bodies of the service: the models of FHIR R4B in `fhir.resources`, and invariants of R4.

The models check the structure only. The invariants are those of the types that the service has.
"""

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import httpx

from tests.spec.casebook import from_json

Body = dict[str, Any]
_VALUES = ("searchset", "history")
_REQUESTS = ("batch", "transaction", "history")
_RESPONSES = ("batch-response", "transaction-response", "history")


def _entries(body: Body) -> list[Body]:
    found: list[Body] = body.get("entry", [])
    return found


def _only_in(kinds: tuple[str, ...], name: str) -> Callable[[Body], bool]:
    return lambda bundle: bundle["type"] in kinds or not any(name in entry for entry in _entries(bundle))


def _each_version_once(bundle: Body) -> bool:
    shown = [
        (entry["fullUrl"], entry["resource"].get("meta", {}).get("versionId"))
        for entry in _entries(bundle)
        if "fullUrl" in entry
    ]
    return bundle["type"] == "history" or len(set(shown)) == len(shown)


def _link_ids(items: list[Body]) -> Iterator[str]:
    for item in items:
        yield item["linkId"]
        yield from _link_ids(item.get("item", []))


def _are_different(values: list[Any]) -> bool:
    return len(set(values)) == len(values)


def _resources(statement: Body) -> list[Body]:
    return [resource for rest in statement["rest"] for resource in rest["resource"]]


INVARIANTS: dict[str, dict[str, Callable[[Body], bool]]] = {
    "Bundle": {
        "bdl-1": lambda bundle: bundle["type"] in _VALUES or "total" not in bundle,
        "bdl-2": _only_in(("searchset",), "search"),
        "bdl-3": _only_in(_REQUESTS, "request"),
        "bdl-4": _only_in(_RESPONSES, "response"),
        "bdl-5": lambda bundle: all(entry.keys() & {"resource", "request", "response"} for entry in _entries(bundle)),
        "bdl-7": _each_version_once,
        "bdl-8": lambda bundle: not any("/_history/" in entry.get("fullUrl", "") for entry in _entries(bundle)),
    },
    "CapabilityStatement": {
        "cpb-9": lambda statement: _are_different([one["type"] for one in _resources(statement)]),
        "cpb-12": lambda statement: all(
            _are_different([param["name"] for param in one["searchParam"]]) for one in _resources(statement)
        ),
    },
    "Questionnaire": {"que-2": lambda body: _are_different([*_link_ids(body.get("item", []))])},
    "Observation": {
        "obs-6": lambda body: "dataAbsentReason" not in body or not any(n.startswith("value") for n in body)
    },
}
"""The invariants of each type, by their names in R4."""


def broken(body: Body) -> list[str]:
    """Return the violated invariants of a resource and of resources within it, each with its path."""
    return [*_broken(body, str(body["resourceType"]))]


def _broken(value: Any, path: str) -> Iterator[str]:
    if value in (None, "", [], {}):
        yield f"{path}: ele-1"
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _broken(part, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _broken(part, f"{path}.{name}")
        for extension in value.get("extension", []):
            if ("extension" in extension) == any(name.startswith("value") for name in extension):
                yield f"{path}.extension: ext-1"
        for name, holds in INVARIANTS.get(value.get("resourceType", ""), {}).items():
            if not holds(value):
                yield f"{path}: {name}"


def parses(response: httpx.Response) -> None:
    """Assert that a body is an R4 resource, equals its serialised model, and violates no invariant."""
    body = from_json(response.content)
    name = body["resourceType"]
    model: Any = getattr(import_module(f"fhir.resources.R4B.{name.lower()}"), name)
    again = json.loads(model.model_validate_json(response.content).model_dump_json())
    assert set(again) == set(body)
    assert not broken(body)
