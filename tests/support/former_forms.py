"""Mood, a questionnaire that the target changes under its id, and answers to each of its forms."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fhir_service.interface.checking import check
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from pipelines.reports.forms import content_name
from tests.support.publishing import START, TARGET, World, carry_over, publish_only, unpublished

LOINC = "http://loinc.org"
ORDINAL = "http://hl7.org/fhir/StructureDefinition/ordinalValue"
URL = "http://forms.example/mood"


def form(*texts: str, value: float | None = 1, **more: Any) -> dict[str, Any]:
    declared = {} if value is None else {"extension": [{"url": ORDINAL, "valueDecimal": value}]}
    option = {"valueCoding": {"system": LOINC, "code": "low", "display": "Low"} | declared}
    items = [
        {"linkId": f"a{place}", "type": "choice", "text": text, "answerOption": [option]}
        for place, text in enumerate(texts, 1)
    ]
    about = {"resourceType": "Questionnaire", "id": "q1", "name": "Mood", "status": "active"}
    return about | more | {"item": items}


OLD, NEW = form("Sad?", "Tired?"), form("Sad?", "In pain?", value=5)


def answers(*links: str, **more: Any) -> dict[str, Any]:
    given = [{"linkId": link, "answer": [{"valueCoding": {"system": LOINC, "code": "low"}}]} for link in links]
    return {"questionnaire": "http://chart/Questionnaire/q1", "item": given} | more


def of_others(name: str, authored: datetime | None, **more: Any) -> dict[str, Any]:
    about = {"resourceType": "QuestionnaireResponse", "id": name, "status": "completed"}
    when = {"authored": authored.isoformat()} if authored else {}
    return about | when | answers("a1", "a2") | {"subject": {"reference": "Patient/p1"}} | more


@contextmanager
def asking(home: Path) -> Iterator[World]:
    """A home whose target has Mood in its old form. Its publications make the tables of answers and scores."""
    with pytest.MonkeyPatch.context() as patch, unpublished(home) as made:
        publish_only(patch, "score", wide=True)
        made.reports, made.questionnaires = [], [OLD]
        yield made


def name_of(questionnaire: dict[str, Any]) -> str:
    """Return the name of a questionnaire's content in manifests."""
    model = check(RESOURCES["Questionnaire"], questionnaire, Site(), needs=()).model
    assert model
    return content_name(model)


def checked_by(world: World, batch: str, *questionnaires: dict[str, Any], run: int = 1) -> None:
    """Record the questionnaires by which a run of a batch checked its answers."""
    manifest: dict[str, Any] = {
        "target": TARGET,
        "started_at": "2026-03-01T12:00:00.000000Z",
        "source": "default",
        "feed_hash": "f1",
    }
    contents = {each["id"]: name_of(each) for each in questionnaires}
    manifest |= {"resource": "QuestionnaireResponse", "questionnaires": contents}
    (world.home / "batches" / batch / f"run-{run}" / "manifest.json").write_text(json.dumps(manifest))


def replaced(world: World, new: dict[str, Any] = NEW) -> None:
    """Read the questionnaire as a publication does. Replace it a day later."""
    world.read()
    world.time += timedelta(days=1)
    world.questionnaires = [new]


def each_of_its_own(forms: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return forms as separate questionnaires: q1 and Mood 1, and so on."""
    return [each | {"id": f"q{n}", "name": f"{each['name']} {n}"} for n, each in enumerate(forms, 1)]


def named(world: World, *addresses: str) -> str:
    """Import a response to the questionnaire at each address. Return the batch."""
    given: dict[str, tuple[datetime | None, dict[str, Any]]] = {
        f"r{n}": (START, answers("a1", "a2", questionnaire=each)) for n, each in enumerate(addresses, 1)
    }
    return carry_over(world, "QuestionnaireResponse", given)


def of_forms(world: World) -> list[tuple[str, str | None]]:
    return world.rows("SELECT resource_id, questionnaire_id FROM questionnaire_response ORDER BY 1")


def shown(world: World) -> list[tuple[Any, ...]]:
    return world.rows("SELECT response_id, questionnaire_id, a1, a2, a2_2 FROM response_mood ORDER BY 1")
