"""The questionnaires among the reference data of the home, for what can be known of a sample without a target."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fhir_service.interface.checking import check
from fhir_service.interface.json_text import Malformed, parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from pipelines.session.questionnaires import Snapshot

MOST_BYTES = 64 << 20


def reference_questionnaires(home: Path) -> Snapshot | None:
    """The questionnaires in `<home>/reference`; None where there are none that can be read."""
    checked = (check(RESOURCES["Questionnaire"], body, Site(), needs=()).model for body in _bodies(home / "reference"))
    models = [model for model in checked if model is not None]
    return Snapshot.of(models) if models else None


def _bodies(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.ndjson")):
        if path.stat().st_size > MOST_BYTES:
            continue
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if '"Questionnaire"' in line and (body := _parsed(line)).get("resourceType") == "Questionnaire":
                yield body


def _parsed(line: str) -> dict[str, Any]:
    try:
        found = parse_json(line)
    except (Malformed, ArithmeticError):
        return {}
    return found if isinstance(found, dict) else {}
