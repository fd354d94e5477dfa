"""Bodies, texts and queries that no client should send: each gets the outcome of the Errors table, never a 500."""

import gzip
import json
import uuid
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pytest

from fhir_service.interface.json_text import DEEPEST
from fhir_service.interface.registry import RESOURCES
from tests.conftest import BOTH
from tests.service.hostile.sent import PAYMENT, TEXT, arrays, objects, outcome, post, response_of, with_meta
from tests.support import loopback
from tests.support.bodies import TASK
from tests.support.fuzz_answers import CODES_OF

STORES = BOTH
pytestmark = pytest.mark.crossed


# --- JSON -----------------------------------------------------------------------------------------

MALFORMED = {
    "nothing": "",
    "blanks": " \n\t ",
    "half": TEXT[: len(TEXT) // 2],
    "twice": TEXT + TEXT,
    "a comma behind": TEXT + ",",
    "a comma before the end": TEXT[:-1] + ",}",
    "single quotes": TEXT.replace('"', "'"),
    "a name without quotes": TEXT.replace('"status"', "status"),
    "a comment": TEXT[:-1] + "/* x */}",
    "a comment behind": TEXT + "// x",
    "not a number": with_meta("NaN"),
    "infinity": with_meta("-Infinity"),
    "hexadecimal": with_meta("0x10"),
    "a leading zero": with_meta("007"),
    "a plus": with_meta("+1"),
    "no digits behind the point": with_meta("1."),
    "an exponent beyond computing": with_meta("1e99999999999999999999"),
    "Python's literals": with_meta("True"),
    "undefined": with_meta("undefined"),
    "a line end in a text": TEXT.replace('"x"', '"x\n"'),
    "a NUL in a text": TEXT.replace('"x"', '"x\0"'),
    "an escape of nobody": TEXT.replace('"x"', '"\\x41"'),
    "half an escape": TEXT.replace('"x"', '"\\u12"'),
    "a byte order mark": "\ufeff" + TEXT,
    "UTF-16": TEXT.encode("utf-16"),
    "UTF-32": TEXT.encode("utf-32"),
    "Latin-1": TEXT.replace('"x"', '"é"').encode("latin-1"),
    "an overlong slash": TEXT.encode().replace(b'"x"', b'"\xc0\xaf"'),
    "a surrogate in UTF-8": TEXT.encode().replace(b'"x"', b'"\xed\xa0\x80"'),
    "a compressed body": gzip.compress(TEXT.encode()),
    "XML": '<Task xmlns="http://hl7.org/fhir"><status value="requested"/></Task>',
    "a form": "status=requested&intent=unknown",
    "a key twice": TEXT[:-1] + ',"status":"requested"}',
    "a key twice, once escaped": TEXT[:-1] + ',"st\\u0061tus":"requested"}',
    "a key twice inside": with_meta('{"a":1,"a":1}'),
    "a key twice in an array": with_meta('[{"a":1,"a":2}]'),
    "a million brackets": "[" * 1_000_000,
    "many open objects": '{"a":' * 200_000,
    "deep arrays": with_meta(arrays(DEEPEST)),
    "deep objects": with_meta(objects(DEEPEST)),
    "arrays as deep as the parser goes": with_meta(arrays(900)),
    "very deep arrays": with_meta(arrays(300_000)),
    "null": "null",
    "true": "true",
    "a number": "17",
    "a text": '"Task"',
    "an array": f"[{TEXT}]",
    "an empty object": "{}",
    "an empty array": "[]",
}


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("path", ["/Task", "/PaymentNotice", "/QuestionnaireResponse", "/", "/Task/$validate"])
def test_a_malformed_body_is_a_bad_request(service, path, name):
    """COMMON-32, COMMON-33, COMMON-34, COMMON-63, ERR-400-01: for every request with a body."""
    response = post(service, path, MALFORMED[name])
    if path == "/Task/$validate" and response.status_code == 200:
        assert {issue["code"] for issue in response.json()["issue"]} == {"invalid"}
        return
    assert response.status_code == 400
    assert outcome(response)["details"] == {"text": "Bad request"}


@pytest.mark.parametrize(
    "text", [arrays(DEEPEST - 2), objects(DEEPEST - 2), "1e400", "-0", "9" * 4000, '"\\ud83d\\ude00"']
)
def test_ignored_elements_may_hold_anything(service, text):
    """COMMON-44"""
    assert post(service, "/Task", with_meta(text)).status_code == 201


def test_half_a_surrogate_is_no_text(service):
    """COMMON-46"""
    response = post(service, "/Task", TEXT.replace('"x"', '"\\ud800"'))
    assert (response.status_code, outcome(response)["expression"]) == (400, ["Task.description"])


def test_a_response_may_be_as_deep_as_a_body_and_no_deeper(service):
    """Nested answers are refused for their content or for their depth, never with a 500."""
    item = {"linkId": "deepest", "answer": [{"valueString": "x"}]}
    for depth in range(60):
        item = {"linkId": f"i{depth}", "answer": [{"valueString": "x", "item": [item]}]}
        body = response_of(service) | {"item": [item]}
        response = service.client.post("/QuestionnaireResponse", json=body)
        assert response.status_code in (400, 422)
        outcome(response)


# --- Numbers --------------------------------------------------------------------------------------

NUMBERS = {
    "1e400": 422,
    "-1e400": 422,
    "1e-400": 422,
    "9" * 5000: 422,
    "0." + "0" * 5000 + "1": 422,
    "1E+999999": 422,
    "1e999999999999999999": 422,
    "1e9999999999999999999": 400,
    "-0": 422,
    "0e5": 422,
    "0.005": 422,
    '"1.00"': 400,
    "true": 400,
    "[1]": 400,
    '{"value":1}': 400,
    "1.0000000000": 201,
    "1e2": 201,
    "100e-2": 201,
}


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:30])
def test_an_amount_of_any_size_or_form_is_booked_exactly_or_refused(service, number):
    """PAY-25, PAY-26, PAY-28, COMMON-35"""
    raw = json.dumps(PAYMENT).replace('"value": 1,', f'"value": {number},')
    response = post(service, "/PaymentNotice", raw)
    assert response.status_code == NUMBERS[number], response.text
    if response.status_code == 201:
        shown = json.loads(
            service.client.get(response.headers["location"]).text, parse_float=Decimal, parse_int=Decimal
        )
        assert shown["amount"]["value"] == Decimal(number)
    else:
        assert outcome(response).get("expression", ["PaymentNotice.amount.value"]) == ["PaymentNotice.amount.value"]


@pytest.mark.parametrize("number", ["1e300", "-1e-300", "0." + "3" * 2000, "9" * 300, "-0", "0.0"])
def test_a_decimal_answer_of_any_digits_is_read_back_as_it_was_sent(service, number):
    """QR-ITEM-21, COMMON-34: never through a float."""
    body = response_of(service) | {"item": [{"linkId": "weight", "answer": [{"valueDecimal": "@"}]}]}
    response = post(service, "/QuestionnaireResponse", json.dumps(body).replace('"@"', number))
    assert response.status_code == 201, response.text
    shown = json.loads(service.client.get(response.headers["location"]).text, parse_float=Decimal, parse_int=Decimal)
    assert shown["item"][0]["answer"][0]["valueDecimal"] == Decimal(number)
    found = service.client.get("/QuestionnaireResponse", params={"_id": shown["id"]})
    assert found.json()["total"] == 1


@pytest.mark.parametrize(
    "when", ["9999-12-31", "9999-12-31T23:59:59.9999999Z", "0001-01-01", "0001-01-01T00:00:00Z", "2016-12-31T23:59:59Z"]
)
def test_the_ends_of_the_calendar_are_times_like_others(service, when):
    """COMMON-31"""
    label = uuid.uuid4().hex
    more = {"authoredOn": when, "restriction": {"period": {"end": when}}}
    body = TASK | more | {"input": [{"type": {"text": "label"}, "valueString": label}]}
    assert service.client.post("/Task", json=body).status_code == 201
    for query in (f"due={when[:10]}", f"due=ge{when[:4]}", "_sort=due-date", f"due=le{when[:7]}&_sort=-due-date"):
        assert service.client.get(f"/Task?label={label}&{query}").json()["total"] == 1, query


@pytest.mark.parametrize(
    "when", ["9999-12-31T23:59:59-00:01", "0001-01-01T00:00:00+00:01", "2016-12-31T23:59:60Z", "0000-01-01"]
)
def test_beyond_the_calendar_there_is_no_time(service, when):
    """COMMON-31"""
    response = service.client.post("/Task", json=TASK | {"authoredOn": when})
    assert (response.status_code, outcome(response)["expression"]) == (400, ["Task.authoredOn"])
    assert service.client.get("/Task", params={"due": when}).status_code == 400


# --- Shapes ---------------------------------------------------------------------------------------

VALUES: list[Any] = [
    None,
    True,
    5,
    1.5,
    "",
    "x",
    [],
    {},
    [[]],
    [{}],
    [None],
    ["x"],
    {"": 1},
    {"a": {"b": []}},
    "\u0000",
    "x" * 100_000,
]


@pytest.mark.alike
@pytest.mark.parametrize("kind", ["Task", "PaymentNotice", "QuestionnaireResponse"])
def test_an_element_with_a_value_of_a_wrong_type_is_refused_with_its_place(service, kind):
    """COMMON-35, COMMON-42"""
    base = {"Task": TASK, "PaymentNotice": PAYMENT, "QuestionnaireResponse": response_of(service)}[kind]
    names = [info.alias or name for name, info in RESOURCES[kind].model.model_fields.items()]
    for name in [*names, "contained", "_status", "extra", ""]:
        for value in VALUES:
            response = service.client.post(f"/{kind}", json=base | {name: value})
            assert response.status_code in (201, 400, 422), (name, value, response.text)
            if response.status_code != 201:
                shown = name if name in names or name in ("contained", "_status", "extra") else "?"
                assert outcome(response)["expression"][0].startswith(f"{kind}.{shown}"), (name, value)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "x",
        {},
        {"request": None},
        {"request": {}},
        {"request": {"method": "POST"}},
        {"request": {"method": 5, "url": "Task"}},
        {"request": {"method": "POST", "url": 5}},
        {"request": {"method": "POST", "url": ["Task"]}},
        {"request": {"method": "GET", "url": "Task?colour=red"}},
        {"request": {"method": "GET", "url": "Task?description=\ud800"}},
        {"request": {"method": "GET", "url": "Task/a%00b"}},
        {"request": {"method": "GET", "url": "Task/%ff"}},
        {"request": {"method": "GET", "url": "Task/\ud800"}},
        {"request": {"method": "GET", "url": "?x=1"}},
        {"request": {"method": "POST", "url": "Task?x=1"}},
        {"request": {"method": "POST", "url": "http://elsewhere.example/Task"}},
        {"request": {"method": "POST", "url": "../Task"}},
        {"request": {"method": "POST", "url": "Task\n"}},
        {"request": {"method": "POST", "url": "Patient"}, "resource": {}},
        {"request": {"method": "POST", "url": "Task"}},
        {"request": {"method": "POST", "url": "Task"}, "resource": []},
        {"request": {"method": "POST", "url": "Task", "ifNoneExist": 5}, "resource": TASK},
        {"request": {"method": "POST", "url": "Task", "ifNoneExist": "identifier=a|b%00"}, "resource": TASK},
        {"request": {"method": "PUT", "url": "Task/x", "ifMatch": 5}, "resource": TASK},
        {"request": {"method": "PUT", "url": "Task/nobody"}, "resource": TASK},
        {"request": {"method": "DELETE", "url": "Task/x"}},
    ],
)
def test_an_odd_entry_does_not_keep_the_others_from_being_stored(service, entry):
    """EXTRA-BATCH-02, EXTRA-BATCH-06: refused as a whole, or one entry of it, but never with a 500."""
    good = {"request": {"method": "POST", "url": "Task"}, "resource": TASK}
    bundle = {"resourceType": "Bundle", "type": "batch", "entry": [good, entry, good]}
    headers = {"content-type": "application/json"}
    response = service.client.post("/", content=json.dumps(bundle), headers=headers)
    if response.status_code == 200:
        answers = [one["response"] for one in response.json()["entry"]]
        assert [one["status"] for one in answers][::2] == ["201", "201"]
        assert int(answers[1]["status"]) in CODES_OF
        assert answers[1]["outcome"]["issue"][0]["code"] in CODES_OF[int(answers[1]["status"])]
    else:
        assert (response.status_code, outcome(response)["code"]) == (400, "invalid")


# --- Texts ----------------------------------------------------------------------------------------

HOSTILE = [
    "'; DROP TABLE task; --",
    '" OR 1=1 --',
    "%' OR '1'='1",
    "100%_",
    "\\",
    "\\%",
    "${jndi:ldap://elsewhere.example/a}",
    "{0.__class__}",
    "%s%n%x",
    "{{7*7}}",
    "<script>alert(1)</script>",
    "../../../../etc/passwd",
    "\u202eright to left",
    "\u0301 alone",
    "\ufffe\uffff",
    "\U0010ffff",
    "İıſK",
    "x" * 200_000,
    "\r\nset-cookie: a=b",
]
REFUSED = ["\x00", "a\x00b", "\x1b[2J", "\x01", "\x02", "\x03", "\x7f", "\x85", "\x94r1/0\x94"]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_hostile_text_is_a_text(service, text):
    """COMMON-46, COMMON-47: stored, searched for and shown as it is."""
    label = uuid.uuid4().hex
    labels = [{"type": {"text": "label"}, "valueString": value} for value in (label, text)]
    response = service.client.post("/Task", json=TASK | {"description": text, "input": labels})
    assert response.status_code == 201
    shown = service.client.get(response.headers["location"]).json()
    assert (shown["description"], shown["input"][1]["valueString"]) == (text, text)
    if len(text) < 1000:
        escaped = text.replace("\\", "\\\\").replace(",", "\\,").replace("|", "\\|").replace("$", "\\$")
        for name in ("description", "label"):
            found = service.client.get("/Task", params=[("label", label), (name, escaped)])
            assert found.json()["entry"] == [{"resource": shown}], name


@pytest.mark.parametrize("text", REFUSED, ids=ascii)
def test_a_control_character_is_refused_everywhere(service, text):
    """COMMON-46: in bodies, queries, forms, paths and conditions; also the characters that a store uses itself."""
    bodies = [
        TASK | {"description": text},
        TASK | {"id": text},
        TASK | {"requester": {"reference": f"Practitioner/{text}"}},
    ]
    bodies += [TASK | {"identifier": [{"system": "urn:x", "value": text}]}, TASK | {text: "x"}]
    for body in bodies:
        response = service.client.post("/Task", json=body)
        assert (response.status_code, outcome(response)["code"]) == (400, "invalid")
    for name, resource in RESOURCES.items():
        for param in resource.params:
            response = service.client.get(f"/{name}", params={param.name: text})
            assert (response.status_code, outcome(response)["code"]) == (400, "invalid"), param.name
    for path in (f"/Task/{quote(text)}", f"/Task/{quote(text)}/_history", f"/DiagnosticReport/{quote(text)}"):
        assert service.client.get(path).status_code == 404
    assert service.client.put(f"/Task/{quote(text)}", json=TASK).status_code == 404
    condition = {"if-none-exist": f"identifier=urn:x|{quote(text)}"}
    assert service.client.post("/Task", json=TASK, headers=condition).status_code == 400
    form = {"grant_type": "client_credentials", "client_id": text, "client_secret": text}
    assert loopback.post(f"{service.url}/auth/token", data=form).status_code in (400, 401)
    assert loopback.post(f"{service.url}/chart", data=form).status_code == 400


# --- Queries --------------------------------------------------------------------------------------

QUERIES = {
    "%": 400,
    "%00": 400,
    "%ff=1": 400,
    "_id=%ff": 400,
    "_id=%C0%AF": 400,
    "&&&": 200,
    "=": 400,
    "=x": 400,
    "_id": 400,
    "_id=": 400,
    "_id[]=x": 400,
    "_id:missing=true": 400,
    "_ID=x": 400,
    "_count=-1": 400,
    "_count=1e3": 400,
    "_count=%D9%A1": 400,
    "_count=99999999999999999999": 200,
    "_count=5&_count=5": 400,
    "_offset=-1": 400,
    "_offset=999999999999999999": 200,
    "_sort=": 400,
    "_sort=-": 400,
    "_sort=_id,due-date": 400,
    "_sort=description": 400,
    "_include=*": 400,
    "_format=xml": 400,
    "due=ge": 400,
    "due=xx2024": 400,
    "due=2024-13": 400,
    "due=" + "9" * 10_000: 400,
    "owner=Patient/p1": 400,
    "owner=Practitioner/": 400,
    "owner=" + ",".join(["dr1"] * 500): 200,
    "identifier=a|b|c": 400,
    "identifier=|": 400,
    "label=" + "x" * 30_000: 200,
    "description=" + "%25" * 500: 200,
    "description=" + "%25" * 501: 400,
    "&".join(["status=requested"] * 200): 200,
    "&".join(["status=requested"] * 201): 400,
    "status=requested;status=draft": 400,
    "x" * 20_000 + "=1": 400,
}


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query[:40])
def test_an_unreadable_query_is_a_bad_request_and_others_are_answered(service, query):
    """ERR-400-01: by address and by form."""
    response = service.client.get(f"/Task?{query}")
    assert response.status_code == QUERIES[query], response.text
    assert response.is_success or outcome(response)["code"] == "invalid"
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert service.client.post("/Task/_search", content=query, headers=form).status_code == QUERIES[query]
