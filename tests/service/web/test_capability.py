"""The CapabilityStatement of the service."""

import json
from pathlib import Path

import httpx
import pytest

from fhir_service.interface.registry import RESOURCES
from fhir_service.settings import Settings
from fhir_service.web.capability import capability_statement, smart_configuration
from tests.conftest import running

INTERACTIONS = {
    "read": ("GET", "/x"),
    "vread": ("GET", "/x/_history/1"),
    "update": ("PUT", "/x"),
    "patch": ("PATCH", "/x"),
    "delete": ("DELETE", "/x"),
    "history-instance": ("GET", "/x/_history"),
    "history-type": ("GET", "/_history"),
    "create": ("POST", ""),
    "search-type": ("GET", ""),
}
"""The interactions of R4 with a type, each with its request."""


def test_the_capability_statement_names_the_interface_and_the_additions():
    """EXTRA-01, EXTRA-06, EXTRA-TXN-05, COMMON-55, COMMON-56"""
    statement = capability_statement(Settings("s"), "an-id", "1.2.3")
    rest = statement["rest"][0]
    assert statement["fhirVersion"] == "4.0.1"
    assert statement["software"]["version"] == "1.2.3"
    assert statement["implementation"] == {"description": "urn:uuid:an-id", "url": "http://127.0.0.1:8400"}
    assert rest["interaction"] == [{"code": "batch"}, {"code": "transaction"}]
    shown = {resource["type"]: resource for resource in rest["resource"]}
    assert list(shown) == list(RESOURCES)
    assert [name for name in shown if shown[name]["conditionalCreate"]] == [
        "Task",
        "PaymentNotice",
        "QuestionnaireResponse",
    ]
    codes = [interaction["code"] for interaction in shown["Task"]["interaction"]]
    assert codes == ["create", "read", "update", "search-type", "history-instance", "history-type"]
    assert [name for name in shown if "operation" in shown[name]] == ["Task", "PaymentNotice", "QuestionnaireResponse"]
    params = {param["name"]: param["type"] for param in shown["Task"]["searchParam"]}
    assert (params["identifier"], params["due"], params["owner"]) == ("token", "date", "reference")
    params = {param["name"]: param["type"] for param in shown["QuestionnaireResponse"]["searchParam"]}
    # R4 has this type for what names a canonical address.
    assert params["questionnaire"] == "reference"
    # The extension for addresses of OAuth may not lack that of a page to sign in at.
    assert list(rest["security"]) == ["service"]


def test_the_bare_interface_advertises_no_additions():
    """EXTRA-02"""
    statement = capability_statement(Settings("s", interface_only=True), "an-id", "1.2.3")
    rest = statement["rest"][0]
    assert "interaction" not in rest
    assert not any(resource["conditionalCreate"] or "operation" in resource for resource in rest["resource"])
    assert "history" not in json.dumps(rest["resource"]).replace("readHistory", "")
    assert "identifier" not in {param["name"] for resource in rest["resource"] for param in resource["searchParam"]}


def test_the_capability_statement_is_valid_R4():
    """EXTRA-01"""
    from fhir.resources.R4B.capabilitystatement import CapabilityStatement

    for only in (False, True):
        CapabilityStatement.model_validate(capability_statement(Settings("s", interface_only=only), "an-id", "1.2.3"))


def test_the_smart_configuration_leads_to_the_token_address():
    """AUTH-24"""
    found = smart_configuration(Settings("s", base_url="https://fhir.example.org/r4"))
    assert found["token_endpoint"] == "https://fhir.example.org/r4/auth/token"
    assert found["grant_types_supported"] == ["client_credentials"]
    assert "system/*.cruds" in found["scopes_supported"]


@pytest.mark.parametrize(("base", "only"), [("", False), ("", True), ("/fhir", False)])
def test_the_service_does_what_its_statement_says_and_no_more(base: str, only: bool, tmp_path: Path) -> None:
    """EXTRA-01, EXTRA-02, EXTRA-R4-01: interactions, parameters and what can be included."""
    with running(tmp_path, interface_only=only) as service:
        client = service.client
        shown = {one["type"]: one for one in client.get(f"{base}/metadata").json()["rest"][0]["resource"]}
        params = {name: {param["name"] for param in one["searchParam"]} for name, one in shown.items()}
        includes = {f"{name}:{param}" for name, names in params.items() for param in names}
        for name, one in shown.items():
            path = f"{base}/{name}"
            done = {
                code for code, (how, at) in INTERACTIONS.items() if _is_done(client.request(how, path + at, json={}))
            }
            assert done == {each["code"] for each in one["interaction"]}
            assert _is_done(client.post(f"{path}/$validate", json={})) == ("operation" in one)
            asked = {"_lastUpdated", "_text", "priority", *set().union(*params.values())}
            known = {each for each in asked if "not known here" not in client.get(path, params={each: "x"}).text}
            assert known == params[name]
            taken = {each for each in includes if client.get(path, params={"_include": each}).is_success}
            assert taken == set(one.get("searchInclude", ()))


def _is_done(answer: httpx.Response) -> bool:
    """True if an answer is that of an interaction that the service has, done or refused."""
    undone = ("Unknown path", "Operation is not supported", "resource '_history'")
    return not any(text in answer.text for text in undone)
