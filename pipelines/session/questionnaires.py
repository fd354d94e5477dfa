"""Questionnaires as they were when a file was validated, for rules and for the answers feed.

They are a target's or, for a sample without a target, those in the reference data of a home.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from fhir_service.interface.checking import check
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from pipelines.client.profiles import member
from pipelines.home.reference_files import reference_bodies
from pipelines.reports.forms import content_name


class Snapshot:
    """Questionnaires by id. Serves as the `Lookup` of the interface's rules.

    canonicals: by id, the canonical URL by which the target's responses name a questionnaire, if it is not an address
    there.
    """

    def __init__(
        self, questionnaires: Mapping[str, Any] | None = None, canonicals: Mapping[str, str] | None = None
    ) -> None:
        self.questionnaires = dict(questionnaires or {})
        self.canonicals = dict(canonicals or {})

    @classmethod
    def of(cls, questionnaires: Iterable[Any], bodies: Iterable[Mapping[str, Any]] = ()) -> "Snapshot":
        """Return a snapshot of models of the interface. bodies: from a target of another make, with canonical URLs."""
        known = {questionnaire.id: questionnaire for questionnaire in questionnaires}
        return cls(known, canonicals_of([body for body in bodies if body.get("id") in known]))

    def questionnaire(self, questionnaire_id: str) -> Any | None:
        """Return the questionnaire with this id, whatever its status."""
        return self.questionnaires.get(questionnaire_id)

    def words(self, site: Site) -> dict[str, str]:
        """Return how a response names each questionnaire with a canonical URL: in the interface, and at the target."""
        addresses = {name: site.url("Questionnaire", name) for name in self.canonicals}
        return {
            member("questionnaire", addresses[name]): member("questionnaire", url)
            for name, url in self.canonicals.items()
        }

    def versions(self) -> dict[str, str]:
        """Return a short hash of each questionnaire's content, by id."""
        return {name: content_name(each) for name, each in sorted(self.questionnaires.items())}

    def find(self, text: str) -> Any | None:
        """Return one by id, else the active one by name, canonical URL or `system|code`. LookupError if several
        match.
        """
        if found := self.questionnaires.get(text):
            return found
        named = self._active.get(text, [])
        if len(named) > 1:
            raise LookupError(text)
        return named[0] if named else None

    @cached_property
    def _active(self) -> dict[str, list[Any]]:
        """Active questionnaires by name, by canonical URL with and without version, and by `system|code`."""
        found: dict[str, list[Any]] = {}
        for questionnaire in self.questionnaires.values():
            if questionnaire.status == "active":
                codes = {f"{coding.system}|{coding.code}" for coding in questionnaire.code or ()}
                canonical = self.canonicals.get(questionnaire.id, "")
                for text in {questionnaire.name, canonical, canonical.split("|")[0], *codes} - {None, ""}:
                    found.setdefault(text, []).append(questionnaire)
        return found


def canonicals_of(bodies: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return canonical URLs by id, with the version if several questionnaires of the target share one URL."""
    urls = {str(body["id"]): url for body in bodies if isinstance(url := body.get("url"), str) and url}
    shared = {url for url, times in Counter(urls.values()).items() if times > 1}
    versions = {str(body["id"]): body["version"] for body in bodies if isinstance(body.get("version"), str)}
    return {
        name: f"{url}|{versions[name]}" if url in shared and name in versions else url for name, url in urls.items()
    }


def reference_questionnaires(home: Path) -> Snapshot | None:
    """Return the questionnaires in `<home>/reference`; None if none can be read."""
    bodies = reference_bodies(home / "reference", ["Questionnaire"])
    checked = (check(RESOURCES["Questionnaire"], body, Site(), needs=()).model for body in bodies)
    models = [model for model in checked if model is not None]
    return Snapshot.of(models) if models else None
