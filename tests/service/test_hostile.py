"""What no client should send: each gets the outcome of the Errors table, and the service stays as it was.

Bodies of every malformed kind, numbers beyond range, hostile texts, odd queries, broken HTTP; large, slow, unfinished
requests. Never a 500, a stack trace, a hang or growing memory.
"""

import functools
import gzip
import json
import select
import socket
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from fhir_service import auth, exchange, serve
from fhir_service.checks import check_store
from fhir_service.door import run_file
from fhir_service.interactions import create
from fhir_service.interface.datatypes import DEEPEST
from fhir_service.interface.registry import RESOURCES
from tests import commands
from tests.conftest import BOTH, WORLD
from tests.service.fuzz import CODES_OF

STORES = BOTH
HEADERS = {"content-type": "application/json"}
TASK = {
    "resourceType": "Task",
    "status": "requested",
    "intent": "unknown",
    "description": "x",
    "requester": {"reference": "Practitioner/dr1"},
}
PAYMENT = {
    "resourceType": "PaymentNotice",
    "status": "active",
    "request": {"reference": "Patient/p2"},
    "created": "2024-03-05T10:00:00Z",
    "payment": {},
    "recipient": {},
    "amount": {"value": 1, "currency": "USD"},
}
TEXT = json.dumps(TASK)


def response_of(service):
    return {
        "resourceType": "QuestionnaireResponse",
        "questionnaire": f"{service.url}/Questionnaire/q-intake",
        "status": "completed",
        "subject": {"reference": "Patient/p5"},
        "item": [{"linkId": "remarks", "answer": [{"valueString": "x"}]}],
    }


def outcome(response):
    """The issue of an answer that is an outcome of the Errors table."""
    body = response.json()
    assert body["resourceType"] == "OperationOutcome"
    (issue,) = body["issue"]
    assert issue["code"] in CODES_OF[response.status_code], response.text
    assert "Traceback" not in response.text
    return issue


def post(service, path, raw):
    return service.client.post(path, content=raw, headers=HEADERS)


def with_meta(text):
    """A body that is fine but for what `meta` holds, which is ignored."""
    return TEXT[:-1] + f',"meta":{{"x":{text}}}}}'


def arrays(depth):
    return "[" * depth + "1" + "]" * depth


def objects(depth):
    return '{"a":' * depth + "1" + "}" * depth


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
    """COMMON-32, COMMON-33, COMMON-34, COMMON-63, ERR-400-01: wherever a body is sent."""
    response = post(service, path, MALFORMED[name])
    if path == "/Task/$validate" and response.status_code == 200:
        assert {issue["code"] for issue in response.json()["issue"]} == {"invalid"}
        return
    assert response.status_code == 400
    assert outcome(response)["details"] == {"text": "Bad request"}


@pytest.mark.parametrize(
    "text", [arrays(DEEPEST - 2), objects(DEEPEST - 2), "1e400", "-0", "9" * 4000, '"\\ud83d\\ude00"']
)
def test_what_is_ignored_may_be_strange(service, text):
    """COMMON-44"""
    assert post(service, "/Task", with_meta(text)).status_code == 201


def test_half_a_surrogate_is_no_text(service):
    """COMMON-46"""
    response = post(service, "/Task", TEXT.replace('"x"', '"\\ud800"'))
    assert (response.status_code, outcome(response)["expression"]) == (400, ["Task.description"])


def test_a_response_may_be_as_deep_as_a_body_and_no_deeper(service):
    """Nested answers are refused for what they answer, or for their depth; never with a 500."""
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
def test_an_amount_of_any_size_and_shape(service, number):
    """PAY-25, PAY-26, PAY-28, COMMON-35: what is no amount is refused, what is one is booked to the cent."""
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


@pytest.mark.parametrize("number", ["1e400", "-1e-400", "1E+999999", "0." + "3" * 2000, "9" * 2000, "-0", "0.0"])
def test_a_decimal_answer_of_any_size_is_read_back_as_it_was_sent(service, number):
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


@pytest.mark.parametrize("kind", ["Task", "PaymentNotice", "QuestionnaireResponse"])
def test_every_element_with_a_value_of_every_shape(service, kind):
    """COMMON-35, COMMON-42: a value that does not fit is refused where it stands."""
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
        {"request": {"method": "GET", "url": "Task"}},
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
    response = service.client.post("/", json=bundle)
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
    """COMMON-46: in bodies, queries, forms, paths and conditions; also what a store uses inside."""
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
    assert httpx.post(f"{service.url}/auth/token", data=form).status_code in (400, 401)
    assert httpx.post(f"{service.url}/chart", data=form).status_code == 400


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
    "_count=99999999999999999999": 400,
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
    "description=" + "%25" * 5_000: 200,
    "&".join(["status=requested"] * 200): 200,
    "&".join(["status=requested"] * 201): 400,
    "status=requested;status=draft": 400,
    "x" * 20_000 + "=1": 400,
}


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query[:40])
def test_an_odd_query(service, query):
    """ERR-400-01: a query that cannot be understood is a bad request, by address and by form."""
    response = service.client.get(f"/Task?{query}")
    assert response.status_code == QUERIES[query], response.text
    assert response.is_success or outcome(response)["code"] == "invalid"
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert service.client.post("/Task/_search", content=query, headers=form).status_code == QUERIES[query]


# --- HTTP -----------------------------------------------------------------------------------------


def exchanged(url, *parts):
    """What comes back for these bytes, sent a moment apart, until the other side closes."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        received = b""
        try:
            for part in parts:
                connection.sendall(part)
                if len(parts) > 1 and select.select([connection], [], [], 0.1)[0]:
                    break
            while piece := connection.recv(65536):
                received += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
        return received


def request_of(service, *lines, body=b"", start="GET /Task HTTP/1.1"):
    """The bytes of a request with a token."""
    head = [start, "host: x", f"authorization: {service.headers['authorization']}", *lines, "", ""]
    return "\r\n".join(head).encode("latin-1") + body


def get(service, *lines, start="GET /Task HTTP/1.1"):
    """A request after which the connection is closed."""
    return request_of(service, "connection: close", *lines, start=start)


def statuses(received):
    """The statuses of the responses in what was received."""
    return [int(part[1:4]) for part in received.split(b"HTTP/1.1")[1:]]


BROKEN = {
    "garbage": lambda _: b"\x00\x01\x02\xff" * 100,
    "a TLS greeting": lambda _: bytes.fromhex("16030100a5010000a10303") + b"x" * 200,
    "HTTP/2": lambda _: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": lambda _: b"GET /Task\r\n",
    "HTTP of the future": lambda s: request_of(s, start="GET /Task HTTP/9.9"),
    "no method": lambda s: request_of(s, start="/Task HTTP/1.1"),
    "an unknown method": lambda s: request_of(s, start="BREW /Task HTTP/1.1"),
    "a method in small letters": lambda s: request_of(s, start="get /Task HTTP/1.1"),
    "a blank in a name": lambda s: request_of(s, "bad name: x"),
    "a blank before the colon": lambda s: request_of(s, "content-length : 5"),
    "no colon": lambda s: request_of(s, "nothing"),
    "no name": lambda s: request_of(s, ": x"),
    "a NUL in a value": lambda s: request_of(s, "x-a: \x00"),
    "a bare return in a value": lambda s: request_of(s, "x-a: a\rb"),
    "two lengths": lambda s: request_of(s, "content-length: 1", "content-length: 2", start="POST /Task HTTP/1.1"),
    "a length and chunks": lambda s: request_of(
        s, "content-length: 5", "transfer-encoding: chunked", start="POST /Task HTTP/1.1", body=b"0\r\n\r\n"
    ),
    "a length in words": lambda s: request_of(s, "content-length: ten", start="POST /Task HTTP/1.1"),
    "a negative length": lambda s: request_of(s, "content-length: -1", start="POST /Task HTTP/1.1"),
    "a length beyond counting": lambda s: request_of(s, "content-length: " + "9" * 40, start="POST /Task HTTP/1.1"),
    "an unknown transfer": lambda s: request_of(s, "transfer-encoding: gzip", start="POST /Task HTTP/1.1"),
    "a chunk of no size": lambda s: request_of(
        s,
        "transfer-encoding: chunked",
        "content-type: application/json",
        start="POST /Task HTTP/1.1",
        body=b"zz\r\n{}\r\n",
    ),
    "a chunk beyond counting": lambda s: request_of(
        s,
        "transfer-encoding: chunked",
        "content-type: application/json",
        start="POST /Task HTTP/1.1",
        body=b"f" * 40 + b"\r\n",
    ),
    "a long header": lambda s: request_of(s, "x-a: " + "x" * 200_000),
    "a long header name": lambda s: request_of(s, "x" * 200_000 + ": x"),
    "many headers": lambda s: request_of(s, *(f"x-{number}: x" for number in range(20_000))),
    "a long address": lambda s: request_of(s, start="GET /Task?" + "x" * 200_000 + " HTTP/1.1"),
    "an endless head": lambda _: b"GET /" + b"x" * 2_000_000,
}
"""Requests that are no HTTP, or have too large a head."""


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_http_is_a_bad_request(service, monkeypatch, name):
    """ERR-400-01, COMMON-48: in JSON, like every error; the connection is closed, and others go on."""
    monkeypatch.setattr(serve, "HEAD_SECONDS", 1.0)
    received = exchanged(service.url, BROKEN[name](service))
    # Who sends on and on may find the connection closed before the answer can be read.
    assert statuses(received) == [400] or (received == b"" and len(BROKEN[name](service)) > serve.LARGEST_HEAD)
    if received:
        head, _, body = received.partition(b"\r\n\r\n")
        assert b"x-correlation-id: " in head
        assert json.loads(body)["issue"][0]["code"] == "invalid"
    assert service.client.get("/health").status_code == 200


ODD = {
    "an absolute address": (lambda s: get(s, start="GET http://elsewhere.example/Task HTTP/1.1"), 200),
    "an asterisk": (lambda s: get(s, start="OPTIONS * HTTP/1.1"), 404),
    "a tunnel": (lambda s: get(s, start="CONNECT elsewhere.example:443 HTTP/1.1"), 400),
    "HTTP/1.0": (lambda s: request_of(s, start="GET /Task HTTP/1.0"), 200),
    "blank lines before": (lambda s: b"\r\n\r\n" + get(s), 200),
    "a change of protocol": (lambda s: get(s, "connection: upgrade", "upgrade: websocket"), 200),
    "bytes that are no ASCII": (lambda s: get(s, "x-a: \xff\xfe", "accept: \xe9"), 200),
    "two tokens": (lambda s: get(s, "authorization: Bearer other"), 200),
    "two types": (
        lambda s: get(s, "content-type: application/json", "content-type: text/plain", start="POST /Task HTTP/1.1"),
        400,
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_http_is_answered_like_any_other(service, name):
    make, status = ODD[name]
    received = exchanged(service.url, make(service))
    assert statuses(received) == [status], received[:300]


def test_a_second_request_cannot_hide_in_the_first(service):
    """A body that a request does not announce is the next request, and needs a token of its own."""
    hidden = b"GET /Task HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    received = exchanged(
        service.url, request_of(service, "content-length: 0", start="POST /Task HTTP/1.1", body=hidden)
    )
    assert statuses(received) == [400, 401]


# --- Large, slow, unfinished ----------------------------------------------------------------------


def test_a_large_body_is_refused_by_its_announcement(service):
    """LIMIT-09: before any of it is sent."""
    for length in (1024 * 1024 + 1, 10**15):
        lines = ("content-type: application/json", f"content-length: {length}", "expect: 100-continue")
        received = exchanged(service.url, get(service, *lines, start="POST /Task HTTP/1.1"))
        assert b" 413 " in received
        assert b'"too-long"' in received


def test_the_largest_body_is_taken(service):
    """LIMIT-06: one byte more is not."""
    raw = TEXT.encode().ljust(1024 * 1024)
    assert post(service, "/Task", raw).status_code == 201
    response = post(service, "/Task", raw + b" ")
    assert (response.status_code, outcome(response)["code"]) == (413, "too-long")


def test_a_stranger_sends_no_body(service):
    """LIMIT-09: who has no token is refused before the body comes."""
    lines = (
        "POST /Task HTTP/1.1",
        "host: x",
        "content-type: application/json",
        "content-length: 1000000",
        "connection: close",
    )
    assert statuses(exchanged(service.url, "\r\n".join([*lines, "", ""]).encode())) == [401]


def test_a_body_that_does_not_come_is_not_waited_for(service, monkeypatch):
    """The connection is answered and closed; whoever sends byte by byte has no more time than others."""
    monkeypatch.setattr(exchange, "BODY_SECONDS", 0.5)
    head = request_of(service, "content-type: application/json", "content-length: 500", start="POST /Task HTTP/1.1")
    for parts in ([head], [head, *[b" "] * 20]):
        began = time.monotonic()
        assert statuses(exchanged(service.url, *parts)) == [400]
        assert time.monotonic() - began < 5


def test_a_form_that_does_not_come_is_not_waited_for(service, monkeypatch):
    monkeypatch.setattr(auth, "FORM_SECONDS", 0.5)
    lines = "content-type: application/x-www-form-urlencoded", "content-length: 500"
    received = exchanged(service.url, request_of(service, *lines, start="POST /auth/token HTTP/1.1"))
    assert statuses(received) == [400]


@pytest.mark.parametrize("parts", [[], [b"GET /Ta"], [b"GET /Task HTTP/1.1\r\nhost: x\r\n", *[b"x-a: b\r\n"] * 20]])
def test_a_head_that_does_not_come_is_not_waited_for(service, monkeypatch, parts):
    """Also on a connection over which nothing is ever said."""
    monkeypatch.setattr(serve, "HEAD_SECONDS", 0.5)
    began = time.monotonic()
    received = exchanged(service.url, *parts)
    assert statuses(received) in ([], [400])
    assert time.monotonic() - began < 5


def test_who_goes_away_in_the_middle_leaves_nothing_behind(service):
    """Half a request is no request."""
    before = service.client.get("/Task?_count=0").json()["total"]
    lines = "content-type: application/json", f"content-length: {len(TEXT)}"
    head = request_of(service, *lines, start="POST /Task HTTP/1.1")
    for cut in (0, 1, len(TEXT) // 2, len(TEXT) - 1):
        address = urlsplit(service.url)
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(head + TEXT[:cut].encode())
    assert service.client.get("/Task?_count=0").json()["total"] == before
    assert service.client.get("/health").status_code == 200


def test_what_fails_for_one_request_does_not_fail_for_those_beside_it(service, monkeypatch):
    """Requests that are stored together are apart when one of them meets a fault of ours."""
    act = create.Create.act

    def faulty(entry, desk):
        if entry.model.description == "a fault":
            raise ZeroDivisionError
        return act(entry, desk)

    monkeypatch.setattr(create.Create, "act", faulty)
    busy = threading.Thread(target=service.service.writer.transact, args=[lambda _: time.sleep(0.5)])
    busy.start()
    with ThreadPoolExecutor(9) as pool:
        words = ["x"] * 4 + ["a fault"] + ["x"] * 4
        send = functools.partial(httpx.post, f"{service.url}/Task", headers=service.headers)
        answers = list(pool.map(lambda word: send(json=TASK | {"description": word}).status_code, words))
    busy.join()
    assert answers == [201] * 4 + [503] + [201] * 4


def test_nothing_that_was_sent_here_did_damage(service):
    """Runs last over the store that all of this was sent to."""
    assert check_store(service.service.store, service.service.site) == []


# --- Memory ---------------------------------------------------------------------------------------


def resident(pid):
    """Megabytes that a process holds."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def storm(client, number):
    """Requests that each could leave something behind: large, deep, unknown, each with names of its own."""
    raw = [
        with_meta(arrays(DEEPEST)).ljust(900_000),
        "[" * 900_000,
        TEXT.ljust(2_000_000),
        with_meta('"' + "x" * 900_000),
    ]
    for body in raw:
        assert client.post("/Task", content=body, headers=HEADERS).status_code in (400, 413)
    for _ in range(60):
        name = uuid.uuid4().hex
        assert client.get(f"/{name}").status_code == 404
        assert client.get(f"/Task/{name}", headers={"x-correlation-id": name}).status_code == 404
        assert client.get("/Task", params={name: name}).status_code == 400
        assert client.get("/Task", params={"label": name * 100}).status_code == 200
        assert client.get("/Task", headers={"authorization": f"Bearer {name}{number:011}"}).status_code == 401
        assert client.request(f"X{name}"[:12].upper(), "/Task").status_code in (400, 405)


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_does_not_grow_with_what_is_refused(tmp_path):
    """After the first rounds, more of the same takes no more."""
    home = tmp_path / "home"
    store = home / "service.duckdb"
    assert commands.load(home, WORLD).returncode == 0
    added = commands.run("fhir-service", "client", "add", "--store", store, "--name", "storm").stdout
    (home / "credentials.json").write_text(added, encoding="utf-8")
    with commands.serving(home) as client:
        pid = json.loads(run_file(store).read_text(encoding="utf-8"))["pid"]
        for number in range(5):
            storm(client, number)
        before = resident(pid)
        for number in range(20):
            storm(client, number)
        grown = resident(pid) - before
        print(f"{before:.0f} MB, then {grown:+.1f} MB")
        assert grown < 24
