"""Check the questionnaires of a file by the service itself, in a store that is thrown away."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fhir_service.interface.checking import check
from fhir_service.interface.json_text import Malformed, parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from fhir_service.paths import exists
from pipelines.home.batch import UnreadableFile, reading_file
from pipelines.home.folder import make_private
from pipelines.home.scratch import throwaway_folder
from pipelines.session.bundled import STORE, load_store
from pipelines.validation.inspection import ambiguities

MOST = 16 << 20
KIND = "Questionnaire"


@dataclass
class QuestionnaireVerdict:
    """The service's verdict on questionnaires. text: all as NDJSON. warnings: about those accepted but ambiguous."""

    text: str
    number: int
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield from self.problems
        yield from (f"warning: {said}" for said in self.warnings)
        if not self.problems:
            yield f"the service takes {'it' if self.number == 1 else f'all {self.number:,}'}"


def check_questionnaires(path: Path, home: Path, environ: Mapping[str, str]) -> QuestionnaireVerdict:
    """Load questionnaires into a temporary store; return what it refuses. Raises Unreadable, TargetUnusable."""
    found = _read(path)
    checked = QuestionnaireVerdict(
        "".join(json.dumps(each, ensure_ascii=False, default=str) + "\n" for each in found), len(found)
    )
    try:
        checked.text.encode()
    except UnicodeEncodeError:
        raise UnreadableFile(f"{path.name}: an escape such as \\ud83d is half of a character") from None
    make_private(home)
    with throwaway_folder(home) as folder:
        (folder / "given").mkdir()
        (folder / "given" / "questionnaires.ndjson").write_text(checked.text, encoding="utf-8")
        refused = folder / "refused.ndjson"
        ours = {name: value for name, value in environ.items() if name != "FHIR_SERVICE_STORE"}
        load_store(folder / STORE, folder / "given", refused, ours)
        for line in refused.read_text(encoding="utf-8").splitlines() if exists(refused) else ():
            told = json.loads(line)
            name = told.get("id") or f"number {told.get('line')}"
            checked.problems += [f"{name}: {each['expression']}: {each['text']}" for each in told["problems"]]
    if not checked.problems:
        models = (check(RESOURCES[KIND], each, Site(), needs=()).model for each in found)
        checked.warnings = [each.message for model in models if model is not None for each in ambiguities(model)]
    return checked


def _read(path: Path) -> list[dict[str, Any]]:
    """Read one questionnaire, an array or a bundle of them as JSON, or one on each line. Raises Unreadable."""
    try:
        with reading_file(path.name):
            if path.stat().st_size > MOST:
                raise UnreadableFile(f"{path.name}: larger than {MOST >> 20} MB; check the questionnaires in parts")
            text = path.read_text(encoding="utf-8-sig")
    except UnicodeError:
        raise UnreadableFile(f"{path.name}: not a text in UTF-8") from None
    try:
        found = parse_json(text)
    except (Malformed, ArithmeticError):
        found = [_line(path, number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if isinstance(found, dict) and found.get("resourceType") == "Bundle":
        entries = found.get("entry")
        found = [each.get("resource") if isinstance(each, dict) else None for each in entries or []]
    every = found if isinstance(found, list) else [found]
    if not every or not all(isinstance(each, dict) and each.get("resourceType") == KIND for each in every):
        raise UnreadableFile(f"{path.name}: the file must hold Questionnaires only")
    return every


def _line(path: Path, number: int, line: str) -> Any:
    try:
        return parse_json(line)
    except (Malformed, ArithmeticError):
        raise UnreadableFile(f"{path.name}: line {number} is not JSON") from None
