"""Whole pages and the statement parse in fhir.resources R4B, the independent referee; `tests/spec` tries the rest."""

from collections.abc import Iterator

import pytest

from tests.conftest import Running, running
from tests.spec.casebook import cases
from tests.spec.test_http import stored
from tests.support import loopback
from tests.support.r4 import parses

ACCEPTED = [case for case in cases() if case.expected.outcome is None and case.read]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that holds what accepted cases leave."""
    with running(tmp_path_factory.mktemp("parses")) as found:
        for case in ACCEPTED:
            stored(found, case)
        yield found


@pytest.mark.parametrize(
    "resource", ["Task", "PaymentNotice", "Questionnaire", "QuestionnaireResponse", "DiagnosticReport"]
)
def test_every_page_of_every_type_is_r4(service: Running, resource: str) -> None:
    """BUNDLE-12, DR-02: whole pages of all that is stored."""
    url = f"/{resource}?_count=100"
    while url:
        response = service.client.get(url)
        parses(response)
        links = {link["relation"]: link["url"] for link in response.json()["link"]}
        url = links.get("next", "")


def test_the_capability_statement_is_r4(service: Running) -> None:
    """EXTRA-01, COMMON-55: and it says which version it is."""
    response = loopback.get(f"{service.url}/metadata")
    parses(response)
    assert response.json()["fhirVersion"] == "4.0.1"
