"""The load stage over a ledger and a target, with invented accepted payments."""

import json
from contextlib import closing, contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.client.client import FhirClient
from pipelines.client.pace import Pace, RetryPauses
from pipelines.client.steps import step_for
from pipelines.client.tokens import Credentials
from pipelines.feeds.files.catalog import load_feeds
from pipelines.home.progress import Progress
from pipelines.ledger.ledger import Ledger
from pipelines.loading.book import Book
from pipelines.loading.load import Load
from pipelines.loading.load_counts import BatchRun
from pipelines.loading.stage import load
from pipelines.validation.tables import ACCEPTED, SKIPPED
from tests.support.fake_target import serving

QUESTIONNAIRE = "http://target/Questionnaire/q1"
TARGET = "urn:uuid:fake"


def payment(number, patient="p1", cents=100, key=None, content=None):
    body = {
        "resourceType": "PaymentNotice",
        "status": "active",
        "created": "2026-01-01T00:00:00+00:00",
        "request": {"reference": f"Patient/{patient}"},
        "amount": {"value": cents / 100, "currency": "USD"},
        "payment": {},
        "recipient": {},
    }
    return row(number, key or f"k{number}", patient, body, cents, content)


def task(number, patient="p1", text=None, key=None, authored=None, **more):
    body = {"resourceType": "Task", "status": "requested", "intent": "unknown", "description": text or f"call {number}"}
    body |= {"for": {"reference": f"Patient/{patient}"}, "requester": {"reference": "Practitioner/a"}}
    body |= {"authoredOn": authored} if authored else {}
    return row(number, key or f"k{number}", patient, body | more)


def response(number, patient="p1", text="yes", key=None, authored=None):
    answer = {"linkId": "1", "answer": [{"valueString": text}]}
    body = {"resourceType": "QuestionnaireResponse", "status": "completed", "questionnaire": QUESTIONNAIRE}
    body |= {"subject": {"reference": f"Patient/{patient}"}, "item": [answer]} | (
        {"authored": authored} if authored else {}
    )
    return row(number, key or f"k{number}", patient, body)


def row(number, key, patient, body, cents=None, content=None):
    text = json.dumps(body, separators=(",", ":"))
    return (number + 1, 1, key, patient, number, content or f"hash {text}", patient, None, cents, text)


class Said(Progress):
    """The lines that a load prints."""

    def __init__(self):
        self.lines: list[str] = []

    def say(self, text):
        self.lines.append(text)


class Work:
    """A ledger, a target and a client. `run` loads payments as a run of a batch."""

    def __init__(self, home, target):
        self.home, self.target, self.runs = home, target, 0
        self.ledger = Ledger.open(home / "ledger.db")
        self.pauses: list[float] = []
        self.progress = Said()
        patience = RetryPauses(attempts=6, sleep=self.pauses.append)
        self.client = FhirClient(target.url, Credentials(client_id="c", client_secret="s"), 2.0, patience)
        feed = load_feeds().named("payments")
        assert feed is not None
        self.feed = feed

    def follow(self, name, changed="reject"):
        """Switch to another built-in feed, with a policy for changed records."""
        feed = load_feeds().named(name)
        assert feed is not None
        self.feed = replace(feed, file=feed.file.model_copy(update={"changed": changed}))

    def run(self, rows, *args, **named):
        batch = self.batch(rows, *args, **named)
        with self.ledger.lease(TARGET) as lease:
            return load(self.load(batch, lease))

    def load(self, batch, lease, says=None):
        """Return the load of a batch. says: the target's capabilities; without it the target is asked."""
        says = self.client.capabilities() if says is None else says
        step = step_for(says, batch.feed.resource)
        return Load(batch, self.client, says, step, self.ledger, lease, self.progress)

    def batch(self, rows, batch_id="payments-1", resuming=True, skipped=(), settling=900.0, remap=False):
        self.runs += 1
        folder = self.home / f"run-{self.runs}"
        folder.mkdir()
        accepted = [dict.fromkeys(ACCEPTED.names) | dict(zip(ACCEPTED.names, row, strict=False)) for row in rows]
        pq.write_table(pa.Table.from_pylist(accepted, ACCEPTED), folder / "accepted.parquet")
        pq.write_table(pa.Table.from_pylist(list(skipped), SKIPPED), folder / "skipped.parquet")
        if self.ledger.start_batch(TARGET, batch_id):
            self.ledger.finish_batch(TARGET, batch_id, "finished")  # it blocks no lane of another load
        return BatchRun(TARGET, batch_id, self.feed, folder, resuming, Pace(settling_seconds=settling), remap)

    def book(self, lease, rows):
        """Return the book of a batch with rows to send."""
        return Book(self.load(self.batch(rows), lease))

    def states(self):
        rows = self.ledger.tables()["record"].to_pylist()
        return {row["key"]: row["state"] for row in rows}

    def table(self, name):
        return self.ledger.tables()[name].to_pylist()

    def agree(self):
        """Assert that the target has what the ledger says, each key once."""
        created = {row["resource_id"] for row in self.table("record") if row["state"] in ("created", "adopted")}
        assert created == set(self.target.stored)

    def close(self):
        self.client.close()
        self.ledger.close()


@contextmanager
def work_at(home, target):
    """Serve a target; yield a `Work` over it."""
    with serving(target), closing(Work(home, target)) as work:
        yield work
