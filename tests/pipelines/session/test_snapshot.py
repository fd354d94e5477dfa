"""Finding a questionnaire by what an export calls it."""

import pytest

from fhir_service.interface.resources.questionnaire import Questionnaire
from pipelines.session.questionnaires import Snapshot


def questionnaire(**fields: object) -> Questionnaire:
    code = [{"system": "http://loinc.org", "code": "44249-1"}]
    return Questionnaire.model_validate({"status": "active", "code": code} | fields)


SNAPSHOT = Snapshot.of(
    [questionnaire(id="a", name="MOOD"), questionnaire(id="b", name="MOOD (v1)", status="retired")],
)


@pytest.mark.parametrize(
    ("text", "found"),
    [("a", "a"), ("MOOD", "a"), ("http://loinc.org|44249-1", "a"), ("b", "b"), ("MOOD (v1)", None), ("44249-1", None)],
)
def test_a_questionnaire_is_found_by_id_or_when_active_by_name_or_code(text: str, found: str | None) -> None:
    """FEED-ANS-03."""
    known = SNAPSHOT.find(text)
    assert (known and known.id) == found


def test_a_canonical_url_names_the_one_version_that_is_active() -> None:
    """FEED-ANS-03: a new version at the target takes the place of the one before."""
    bodies = [
        {"id": name, "url": "http://x.org/mood", "version": version} for name, version in (("a", "2"), ("b", "1"))
    ]
    known = Snapshot.of(SNAPSHOT.questionnaires.values(), bodies)
    found = {text: known.find(text) for text in ("http://x.org/mood", "http://x.org/mood|2", "http://x.org/mood|1")}
    assert [each and each.id for each in found.values()] == ["a", "a", None]
    both = [questionnaire(id="a", name="MOOD"), questionnaire(id="b", name="MOOD (v1)")]
    with pytest.raises(LookupError):
        Snapshot.of(both, bodies).find("http://x.org/mood")


def test_a_name_of_several_active_questionnaires_is_ambiguous() -> None:
    """FEED-ANS-03."""
    with pytest.raises(LookupError):
        Snapshot.of([questionnaire(id="a", name="MOOD"), questionnaire(id="c", name="MOOD")]).find("MOOD")
