"""Send valid and invalid requests, byte by byte if needed, and read the answers."""

import json
import select
import socket
from urllib.parse import urlsplit

from tests.support.bodies import TASK
from tests.support.fuzz_answers import CODES_OF

HEADERS = {"content-type": "application/json"}
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
    """Return a valid body with any JSON in `meta`, which is ignored."""
    return TEXT[:-1] + f',"meta":{{"x":{text}}}}}'


def arrays(depth):
    return "[" * depth + "1" + "]" * depth


def objects(depth):
    return '{"a":' * depth + "1" + "}" * depth


def exchanged(url, *parts):
    """Send parts of bytes with pauses. Return all bytes that come back until the service closes the connection."""
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
