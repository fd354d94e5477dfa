"""Public sets of messy JSON and naughty strings, sent whole: what is taken is read back unchanged, the rest refused.

The sets are not part of the repository: see `tests/support/realdata.py`.
"""

import json
import re
import uuid
from urllib.parse import quote

import pytest

from fhir_service.interface.datatypes import CONTROLS, ID_PATTERN
from fhir_service.interface.json_text import Malformed, parse_json
from fhir_service.interface.registry import RESOURCES
from tests.support import loopback
from tests.support.bodies import TASK
from tests.support.realdata import MISSING, REALDATA

SUITE, NAUGHTY = REALDATA / "messy_json" / "JSONTestSuite", REALDATA / "messy_text" / "blns" / "blns.json"

needs_suite = pytest.mark.skipif(not SUITE.is_dir(), reason=MISSING)
needs_strings = pytest.mark.skipif(not NAUGHTY.is_file(), reason=MISSING)

HEADERS = {"content-type": "application/json"}


def suite(every: int = 1, first: int = 0):
    """The files of the suite, or one of every so many: (name, bytes), in order of their names."""
    return [(path.stem, path.read_bytes()) for path in sorted(SUITE.glob("*.json"))[first % every :: every]]


def strings(every: int = 1) -> list[str]:
    found: list[str] = json.loads(NAUGHTY.read_text(encoding="utf-8"))
    return found[::every]


some = pytest.mark.parametrize("every", [25, pytest.param(1, marks=pytest.mark.long)])
"""One string of every 25; all of them in `make test-all`."""
thirds = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
"""One file of every three, at each path others; all of them in `make test-all`."""
PATHS = [
    ("POST", "/Task"),
    ("POST", "/PaymentNotice"),
    ("POST", "/QuestionnaireResponse"),
    ("POST", "/"),
    ("PUT", "/Task/x"),
    ("PUT", "/QuestionnaireResponse/x"),
]


def acceptable(text):
    """COMMON-42, COMMON-46: some text, without control characters."""
    return bool(text) and not CONTROLS.search(text)


def outcome(response):
    """The one issue of an OperationOutcome."""
    body = response.json()
    assert body["resourceType"] == "OperationOutcome"
    (issue,) = body["issue"]
    return issue


# --- JSON -----------------------------------------------------------------------------------------


@needs_suite
def test_the_sets_are_whole():
    assert len(suite()) == 318
    assert not NAUGHTY.is_file() or len(strings()) == 515


@needs_suite
@thirds
@pytest.mark.parametrize(("method", "path"), PATHS)
def test_no_file_is_a_body_that_is_taken(service, method, path, every):
    """COMMON-32, COMMON-34, COMMON-35: what is no JSON, and JSON that is no resource, are bad requests."""
    for name, raw in suite(every, PATHS.index((method, path))):
        response = service.client.request(method, path, content=raw, headers=HEADERS)
        assert response.status_code == 400, name
        issue = outcome(response)
        assert (issue["code"], issue["details"]) == ("invalid", {"text": "Bad request"}), name
        if name.startswith("n_"):
            assert "expression" not in issue, name
        elif name.startswith("y_") and "duplicated" not in name:
            assert "not JSON" not in issue["diagnostics"], name


@needs_suite
@thirds
def test_every_file_is_examined_by_validate(service, every):
    for name, raw in suite(every, 1):
        response = service.client.post("/Task/$validate", content=raw, headers=HEADERS)
        assert response.json()["resourceType"] == "OperationOutcome", name
        assert response.status_code == (400 if name.startswith("n_") else response.status_code), name
        assert response.status_code in (200, 400), name
        assert response.json()["issue"][0]["severity"] == "error", name


def holds_nothing(value):
    """COMMON-42: null, or something empty."""
    if isinstance(value, dict):
        value = list(value.values()) or None
    return value in (None, "", []) or (isinstance(value, list) and any(map(holds_nothing, value)))


@needs_suite
@thirds
def test_every_json_test_file_within_meta_is_accepted_or_refused_as_its_suite_says(service, every):
    """`meta` may hold any JSON: files that must parse are accepted there, and the others are not."""
    for name, raw in suite(every, 2):
        body = json.dumps(TASK).encode()[:-1] + b',"meta":{"x":' + raw + b"}}"
        response = service.client.post("/Task", content=body, headers=HEADERS)
        assert response.status_code in (201, 400), name
        if name.startswith("n_"):
            assert response.status_code == 400, name
        elif name.startswith("y_"):
            refused = "duplicated" in name or holds_nothing(json.loads(raw))
            assert response.status_code == (400 if refused else 201), name
        if response.status_code == 400:
            assert outcome(response)["code"] == "invalid", name


@needs_suite
@thirds
def test_every_text_of_the_json_test_files_is_stored_unchanged_or_refused(service, every):
    """A text that UTF-8 cannot hold is refused."""
    for name, raw in suite(every, 0):
        try:
            value = parse_json(raw)
        except Malformed:
            continue
        if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], str):
            continue
        text = raw.strip()[1:-1]
        body = json.dumps(TASK).encode().replace(b'"description": "x"', b'"description": ' + text)
        response = service.client.post("/Task", content=body, headers=HEADERS)
        assert response.status_code in (201, 400), name
        if response.status_code == 201:
            assert service.client.get(response.headers["location"]).json()["description"] == value[0], name
        else:
            expression = outcome(response)["expression"]
            assert expression == ["Task.description"], name
            assert not acceptable(value[0]) or any("\ud800" <= one <= "\udfff" for one in value[0]), name


# --- Text -----------------------------------------------------------------------------------------


def sent(service, bodies, method="POST", urls=None):
    """The responses of a batch: `(status, location or issue)`."""
    urls = urls or [bodies[0]["resourceType"]] * len(bodies)
    entries = [
        {"resource": body, "request": {"method": method, "url": url}} for body, url in zip(bodies, urls, strict=True)
    ]
    bundle = {"resourceType": "Bundle", "type": "batch", "entry": entries}
    response = service.client.post("/", json=bundle)
    assert response.status_code == 200
    found = [entry["response"] for entry in response.json()["entry"]]
    assert len(found) == len(bodies)
    return [(int(one["status"]), one["location"] if "location" in one else one.get("outcome")) for one in found]


def shown(service, location):
    response = service.client.get(location)
    assert response.status_code == 200
    return response.json()


def task_of(text, system):
    note = {"text": text, "authorReference": {"reference": "Practitioner/dr1", "display": text}}
    more = {"description": text, "note": [note], "input": [{"type": {"text": "label"}, "valueString": text}]}
    return TASK | more | {"identifier": [{"system": system, "value": text}]}


def search(service, kind, **params):
    response = service.client.get(f"/{kind}", params=params)
    assert response.status_code == 200, response.text
    return response.json()


@needs_strings
@some
def test_every_string_is_stored_in_a_task_and_found_by_it_or_refused(service, every):
    """COMMON-46, COMMON-47: as description, note, label and identifier; by description, label and identifier."""
    system = f"urn:uuid:{uuid.uuid4()}"
    answers = sent(service, [task_of(text, system) for text in strings(every)])
    for text, (status, answer) in zip(strings(every), answers, strict=True):
        assert status == (201 if acceptable(text) else 400), text
        if status == 400:
            assert answer["issue"][0]["code"] == "invalid", text
            continue
        task = shown(service, answer)
        assert (task["description"], task["note"][0]["text"]) == (text, text)
        assert task["input"] == [{"type": {"text": "label"}, "valueString": text}]
        assert task["identifier"] == [{"system": system, "value": text}]
        escaped = text.replace("\\", "\\\\").replace(",", "\\,").replace("|", "\\|").replace("$", "\\$")
        for params in ({"label": escaped}, {"description": escaped}, {"identifier": f"{system}|{escaped}"}):
            params |= {"_id": task["id"]}
            found = search(service, "Task", **params)
            assert [entry["resource"] for entry in found.get("entry", ())] == [task], (params, text)
        (link,) = [link["url"] for link in found["link"] if link["relation"] == "self"]
        assert service.client.get(link).json()["entry"] == found["entry"], text


@needs_strings
@some
def test_every_string_replaces_a_description_or_is_refused(service, every):
    made = sent(service, [TASK] * len(strings(every)))
    urls = [location.removeprefix(f"{service.url}/") for _, location in made]
    answers = sent(service, [TASK | {"description": text} for text in strings(every)], "PUT", urls)
    for text, url, (status, _) in zip(strings(every), urls, answers, strict=True):
        assert status == (200 if acceptable(text) else 400), text
        assert shown(service, f"/{url}")["description"] == (text if acceptable(text) else "x")


def response_of(service, text):
    return {
        "resourceType": "QuestionnaireResponse",
        "questionnaire": f"{service.url}/Questionnaire/q-intake",
        "status": "completed",
        "subject": {"reference": "Patient/p5"},
        "item": [{"linkId": "remarks", "text": text, "answer": [{"valueString": text}]}],
    }


@needs_strings
@some
def test_every_string_is_an_answer_or_is_refused(service, every):
    answers = sent(service, [response_of(service, text) for text in strings(every)])
    for text, (status, answer) in zip(strings(every), answers, strict=True):
        assert status == (201 if acceptable(text) else 400), text
        if status == 201:
            assert shown(service, answer)["item"][0]["answer"] == [{"valueString": text}]


@needs_strings
@some
def test_every_string_as_a_code_is_refused_in_valid_json(service, every):
    """The message of an unknown option repeats its code; nothing else repeats what was sent."""
    for text in strings(every):
        body = response_of(service, "x")
        coding = {"system": "http://loinc.org", "code": text, "display": text}
        body["item"] = [{"linkId": "mood", "answer": [{"valueCoding": coding}]}]
        response = service.client.post("/QuestionnaireResponse", json=body)
        issue = outcome(response)
        assert response.status_code == (422 if acceptable(text) else 400), text
        if acceptable(text):
            assert issue["details"]["text"] == f"Question received an invalid response option code: {text}"


@needs_strings
@some
@pytest.mark.parametrize(
    "change",
    [
        lambda text: {"status": text},
        lambda text: {"intent": text},
        lambda text: {"id": text},
        lambda text: {"authoredOn": text},
        lambda text: {"requester": {"reference": text}},
        lambda text: {"requester": {"reference": f"Practitioner/{text}"}},
        lambda text: {"restriction": {"period": {"end": text}}},
        lambda text: {"extension": [{"url": text, "valueString": "x"}]},
        lambda text: {"input": [{"type": {"text": text}, "valueString": "x"}]},
        lambda text: {text: "x"},
        lambda text: {"requester": {text: 1}},
    ],
)
def test_every_string_where_it_does_not_belong_is_refused(service, change, every):
    """ERR-06: and the outcome does not repeat it, unless it is an id, which is not known."""
    allowed = {"status": "requested", "intent": "unknown"}
    for text, (status, answer) in zip(
        strings(every), sent(service, [TASK | change(text) for text in strings(every)]), strict=True
    ):
        if change(text).items() <= allowed.items() or change(text).get("id") is not None:
            continue
        assert status in (400, 422), text
        (issue,) = answer["issue"]
        assert issue["code"] in ("invalid", "business-rule")
        quiet = len(text) < 20 or re.fullmatch(ID_PATTERN, text)
        assert quiet or text not in json.dumps(issue, ensure_ascii=False), text


PARAMS = [(name, param.name) for name, resource in RESOURCES.items() for param in resource.params]


@pytest.mark.long
@needs_strings
@pytest.mark.parametrize(("kind", "name"), [*PARAMS, ("Task", "_sort"), ("Task", "_count"), ("Task", "_offset")])
def test_a_search_by_any_string_is_answered_with_a_bundle_or_names_the_parameter(service, kind, name):
    """"""
    for text in strings():
        response = service.client.get(f"/{kind}", params={name: text})
        assert response.status_code in (200, 400), text
        if response.status_code == 200:
            assert response.json()["resourceType"] == "Bundle"
        else:
            assert outcome(response)["diagnostics"].startswith(name), text


@needs_strings
@some
def test_every_string_as_the_name_of_a_parameter_is_refused(service, every):
    for text in strings(every):
        response = service.client.get("/Task", params={text: "1"})
        if response.status_code == 200:
            assert text in {"_sort", "_count", "_id", ""}, text
        else:
            assert (response.status_code, outcome(response)["code"]) == (400, "invalid"), text


@needs_strings
@some
def test_every_string_as_an_id_is_not_found(service, every):
    """ERR-404-01: the outcome names it letter for letter."""
    for text in strings(every):
        for kind in ("Task", "Questionnaire"):
            response = service.client.get(f"/{kind}/{quote(text, safe='')}")
            if not text or text in (".", "..") or "/" in text:
                assert response.status_code in (200, 404), text
                continue
            assert response.status_code == 404, text
            assert outcome(response)["details"]["text"] == f"Unknown {kind} resource '{text}'"


def header_value(text):
    """The bytes of a string, percent-encoded when no header may hold them."""
    raw = text.encode()
    return raw if raw == raw.strip() and not CONTROLS.search(raw.decode("latin-1")) else quote(text).encode()


@pytest.mark.long
@needs_strings
@pytest.mark.parametrize(
    ("name", "status"),
    [("x-correlation-id", 201), ("prefer", 201), ("accept", 201), ("if-none-exist", 400), ("authorization", 401)],
)
def test_any_string_as_a_header_is_ignored_or_refused_as_the_case_says(service, name, status):
    """COMMON-48: a value without meaning is ignored where that is safe."""
    with loopback.Client(base_url=service.url) as client:
        for text in strings():
            headers = {
                b"content-type": b"application/json",
                b"authorization": service.headers["authorization"].encode(),
            }
            headers |= {name.encode(): header_value(text)}
            response = client.post("/Task", json=TASK, headers=list(headers.items()))
            assert response.status_code == status, text
            assert status == 201 or outcome(response)["severity"] == "error"
            assert response.headers["x-correlation-id"]
