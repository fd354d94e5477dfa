"""Laws of searching by tokens and of merging an update into a task."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fhir_service.interactions.conditions import literal, pieces
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.resources.task import Task
from fhir_service.interface.site import STORED, Site
from fhir_service.interface.vocabulary import Moment

values = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


def escaped(value: str) -> str:
    """A value as FHIR has it in a query."""
    return "".join(f"\\{letter}" if letter in "\\,|$" else letter for letter in value)


@given(st.lists(values, min_size=1, max_size=4), st.sampled_from(",|"))
def test_escaped_values_come_apart_as_they_were_joined(parts: list[str], separator: str) -> None:
    """SEARCH-TOKEN-05, SEARCH-TOKEN-06: whatever characters a code, a system or an id has."""
    joined = separator.join(map(escaped, parts))
    assert [literal(part) for part in pieces(joined, separator)] == parts


class NoState:
    """A state that knows no names."""

    def display(self, _: str) -> None:
        return None


TASK, SITE = RESOURCES["Task"], Site()
people = st.sampled_from(["a", "b", "c"]).map(lambda one: {"reference": f"Practitioner/{one}"})
texts = st.sampled_from(["x", "y", "z"])
notes = st.lists(st.fixed_dictionaries({"text": texts, "authorReference": people}), min_size=1, max_size=3)
labels = st.lists(texts, min_size=1, max_size=3).map(
    lambda names: [{"type": {"text": "label"}, "valueString": name} for name in names]
)
bodies = st.fixed_dictionaries(
    {
        "resourceType": st.just("Task"),
        "status": st.sampled_from(["requested", "cancelled", "completed"]),
        "intent": st.just("unknown"),
        "requester": people,
    },
    optional={
        "description": texts,
        "owner": people,
        "for": st.sampled_from(["p1", "p2"]).map(lambda one: {"reference": f"Patient/{one}"}),
        "authoredOn": st.sampled_from(["2024-01-01", "2024-02-02T10:00:00+01:00"]),
        "restriction": st.just({"period": {"end": "2024-12-31"}}),
        "note": notes,
        "input": labels,
        "extension": st.sampled_from(["g1", "g2"]).map(
            lambda one: [{"url": SITE.task_group, "valueReference": {"reference": f"Group/{one}"}}]
        ),
    },
)


def moment(minute: int) -> Moment:
    state: Any = NoState()
    return Moment(datetime(2026, 1, 1, 12, minute, tzinfo=UTC), state, SITE, lambda: "n1")


def group(stored: dict[str, Any]) -> list[Any]:
    return [one["valueReference"]["reference"] for one in stored["extension"] if one["url"] == STORED.task_group]


@given(bodies, bodies)
def test_an_update_keeps_adds_and_removes_what_the_interface_says(old: dict[str, Any], new: dict[str, Any]) -> None:
    """TASK-UPDATE-02 to TASK-UPDATE-13: whatever either body holds."""
    stored = TASK.prepare(Task.model_validate(old), "t1", moment(0))
    merged = TASK.merge(stored, Task.model_validate(new), moment(1))
    alone = TASK.prepare(Task.model_validate(new), "t1", moment(1))
    for element in ("description", "owner", "restriction", "input", "status", "requester"):
        assert merged.get(element) == alone.get(element)
    assert merged.get("for") == (alone.get("for") or stored.get("for"))
    assert merged["authoredOn"] == (alone["authoredOn"] if "authoredOn" in new else stored["authoredOn"])
    assert merged.get("note", []) == stored.get("note", []) + alone.get("note", [])
    assert group(merged) == (group(alone) or group(stored))
