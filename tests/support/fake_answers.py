"""The answers of the fake target to writes: single ones, batches and transactions, with and without faults."""

import io
import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple


def outcome(code, text="Unprocessable entity", diagnostics=None):
    issue = {"severity": "error", "code": code, "details": {"text": text}}
    return {
        "resourceType": "OperationOutcome",
        "issue": [issue | ({"diagnostics": diagnostics} if diagnostics else {})],
    }


class Said(NamedTuple):
    """A fault that is an answer of the target. The write was done or not."""

    status: int
    body: Any = None
    headers: Sequence[tuple[str, str]] = ()
    done: bool = False


class Answering(BaseHTTPRequestHandler):
    """The part of a `FakeTarget` that carries out writes and answers them."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise a body waits 40 ms for the acknowledgement of its head
    target: Any

    def log_message(self, *_):
        pass

    def date_time_string(self, timestamp=None):
        shown = self.target.date_header
        return super().date_time_string(shown().timestamp() if shown else timestamp)

    def answer(self, status, body=None, headers=(), cut=0):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[: len(content) - cut])
        if cut:
            self.close_connection = True

    def allowed(self):
        self.target.answers -= 1
        if self.target.answers < 0:
            return self.hang_up()
        if self.headers.get("authorization", "").removeprefix("Bearer ") in self.target.valid_tokens:
            return True
        self.answer(401, outcome("unknown", "Authentication failed"))
        return False

    def hang_up(self):
        self.close_connection = True

    def write(self, body, cut=0, missing=0, silent=False, unplaced=False):
        if body["resourceType"] == "Bundle":
            return self.batch(body, cut, missing, silent, unplaced)
        if len(json.dumps(body)) > self.target.heaviest_alone:
            return self.answer(413, b"<html>Request Entity Too Large</html>")
        target, lane = self.target, str(body.get("request") or body.get("for") or body.get("subject"))
        with target.lock:
            target.at_work += 1
            target.most_at_work = max(target.at_work, target.most_at_work)
            target.lanes_doubled += target.lanes_at_work[lane]
            target.lanes_at_work[lane] += 1
        if target.hold:
            threading.Event().wait(target.hold)
        if target.fails(body):
            status, location, problem = 500, None, outcome("exception")
        else:
            status, location, problem = target.create(body, self.headers.get("if-none-exist"))
        with target.lock:
            target.at_work -= 1
            target.lanes_at_work[lane] -= 1
        if silent:
            return self.hang_up()
        return self.answer(status, problem, [("location", location)] if location else (), cut)

    def batch(self, bundle, cut, missing, silent, unplaced=False):
        target, entries = self.target, bundle["entry"]
        if not silent and self.is_late(entries):
            return self.fault_said(bundle, Said(504, b"<html>Gateway Time-out</html>", done=target.late_is_done))
        target.sizes.append(len(entries))
        heavy = target.heaviest and len(json.dumps(bundle)) > target.heaviest
        if heavy or (target.limit and len(entries) > target.limit):
            return self.answer(413, b"<html>Request Entity Too Large</html>")
        if bundle["type"] == "transaction":
            if any(entry["request"]["method"] != "POST" for entry in entries):
                return self.transaction_of_others(entries, cut, silent)
            return self.transaction(entries, cut, missing, silent)
        answers = []
        for entry in entries:
            if entry["request"]["method"] != "POST":
                answers.append(self.entry(**entry))
                continue
            status, location, problem = target.create(entry["resource"], entry["request"]["ifNoneExist"])
            response = {"status": str(status)} | ({"location": location} if location and not unplaced else {})
            found = target.stored.get(str(location).rpartition("/")[2]) if target.brings else None
            brought = {"resource": found} if found else {}
            answers.append(brought | {"response": response | ({"outcome": problem} if problem else {})})
        answers = target.order(answers)
        if silent:
            return self.hang_up()
        shown = answers[: len(answers) - missing]
        return self.answer(200, {"resourceType": "Bundle", "type": "batch-response", "entry": shown}, cut=cut)

    def is_late(self, entries):
        target, seconds = self.target, len(entries) * self.target.seconds_a_row
        target.seconds += min(seconds, 60)
        if seconds > 60:
            target.late.append(len(entries))
        return seconds > 60

    def transaction(self, entries, cut, missing, silent):
        """Answer a transaction like HAPI, all or nothing: a refusal has the status of the entry, a fault is a 500."""
        target = self.target
        if "transaction" in target.does_not:
            return self.answer(501, outcome("not-supported"))
        if any(target.fails(entry["resource"]) for entry in entries):
            return self.answer(500, outcome("exception"))
        if len({entry["fullUrl"] for entry in entries}) != len(entries):
            return self.answer(400, outcome("invalid"))
        before = dict(target.stored), dict(target.identified)
        made = [target.create(entry["resource"], entry["request"]["ifNoneExist"]) for entry in entries]
        if bad := next((each for each in made if each[2]), None):
            target.stored, target.identified = before
            return self.answer(bad[0], bad[2])
        if silent:
            return self.hang_up()
        shown = [
            {"response": {"status": f"{status} Done", "location": location.removeprefix(f"{target.url}/")}}
            for status, location, _ in made[: len(made) - missing]
        ]
        return self.answer(200, {"resourceType": "Bundle", "type": "transaction-response", "entry": shown}, cut=cut)

    def transaction_of_others(self, entries, cut, silent):
        """Answer a transaction of reads and updates, all or nothing."""
        before = dict(self.target.stored)
        answers = [self.entry(**entry) for entry in entries]
        for each in answers:
            if each["response"]["status"] != "200":
                self.target.stored = before
                return self.answer(int(each["response"]["status"]), each["response"]["outcome"])
        if silent:
            return self.hang_up()
        return self.answer(200, {"resourceType": "Bundle", "type": "transaction-response", "entry": answers}, cut=cut)

    def entry(self, request, resource=None):
        """Return a batch's answer to an entry that reads or updates."""
        target, found = self.target, request["url"].rpartition("/")[2]
        with target.lock:
            now = target.stored.get(found)
            etag = f'W/"{hash(json.dumps(now, sort_keys=True))}"'
            if now is None:
                return {"response": {"status": "404", "outcome": outcome("not-found")}}
            if request["method"] == "GET":
                return {"resource": now, "response": {"status": "200", "etag": etag}}
            if answer := self.refusal(target.put_faults[0] if target.put_faults else ""):
                return {"response": {"status": str(answer.status), "outcome": answer.body}}
            if request.get("ifMatch") != etag:
                return {"response": {"status": "412", "outcome": outcome("conflict")}}
            target.puts += 1
            target.replace(found, resource)
        return {"response": {"status": "200"}}

    def refusal(self, fault):
        """Return the answer by which a PUT fails; None if it does not, or gets no answer."""
        codes = {"conflict": (412, "conflict"), "refused": (422, "business-rule"), "too_large": (413, "too-long")}
        said = {name: Said(status, outcome(code)) for name, (status, code) in codes.items()}
        return fault if isinstance(fault, Said) else said.get(fault)

    def fault_of_updates(self, body):
        """Return the fault of a bundle that updates: that of the next PUT, for which it stays."""
        updates = any(entry["request"]["method"] == "PUT" for entry in body.get("entry", ()))
        fault = self.target.put_faults[0] if updates and self.target.put_faults else ""
        return "" if fault in ("conflict", "refused", "too_large") else fault

    def fault_said(self, body, said):
        if said.done:
            self.write(body, silent=True)
            self.close_connection = False  # otherwise the client's next request on this connection would be lost
        self.answer(said.status, said.body, said.headers)


class Faulty(Answering):
    """The faults of writes: a method for each."""

    def fault_lost_before(self, _):
        self.hang_up()

    def fault_lost_after(self, body):
        self.write(body, silent=True)

    def fault_twice(self, body):
        """The network delivers the request a second time. Its answer is lost."""
        self.write(body)
        again, self.wfile = self.wfile, io.BytesIO()
        self.write(body)
        self.wfile = again

    def fault_at_once(self, body):
        """The network delivers the request twice at the same time. A condition does not see the other create."""
        before = set(self.target.identified)
        again, self.wfile = self.wfile, io.BytesIO()
        self.write(body)
        self.wfile = again
        for key in self.target.identified.keys() - before:
            del self.target.identified[key]
        self.write(body)

    def fault_held(self, body):
        """A gateway holds the request (`target.held`), and may deliver it later."""
        self.target.held.append(body)
        self.hang_up()

    def fault_truncated(self, body):
        self.write(body, cut=7)

    def fault_missing_entries(self, body):
        self.write(body, missing=1)

    def fault_unplaced(self, body):
        self.write(body, unplaced=True)

    def fault_throttled(self, _):
        self.answer(429, outcome("throttled"), [("retry-after", "7")])

    def fault_busy(self, _):
        self.answer(503, outcome("transient"))

    def fault_gateway(self, _):
        self.answer(503, "away")

    def fault_error(self, _):
        self.answer(500, outcome("exception"))

    def fault_redirect(self, _):
        self.answer(307, None, [("location", f"{self.target.url}/elsewhere")])

    def fault_expired(self, _):
        self.target.valid_tokens.clear()
        self.answer(401, outcome("unknown", "Authentication failed"))

    def fault_forbidden(self, _):
        self.answer(403, outcome("forbidden", "Authorization failed"))
