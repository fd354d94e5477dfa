"""The least code that carries a CSV over HTTP into a store and checks it on both sides: the import is measured against
it.

usage: bare_loop.py tasks|payments|answers FILE.csv

Rows of the built-in feeds become bodies; small pydantic models check them; bundles of 500 go over one connection to a
service in a process of its own, which checks them again, appends them to a DuckDB table with a primary key and commits
once a bundle. No ledger, no rejects, no references, no balances, no access control, no history, no search columns.
Prints one JSON line: kind, records, seconds, per_second, and the CPU seconds of both processes.
"""

import argparse
import asyncio
import csv
import json
import multiprocessing
import resource
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb
import httpx
import orjson
import uvicorn
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

BUNDLE = 500
Body = dict[str, Any]
CsvRow = dict[str, str]


# --- Checks of both sides ---------------------------------------------------------------------------


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Reference(Shape):
    reference: str = Field(pattern=r"^[A-Z][A-Za-z]+/[A-Za-z0-9\-.]{1,64}$")


class Task(Shape):
    resourceType: str
    status: str
    intent: str
    description: str
    subject: Reference = Field(alias="for")
    requester: Reference
    owner: Reference | None = None
    authoredOn: str | None = None
    restriction: Body | None = None
    input: list[Body] | None = None
    note: list[Body] | None = None


class PaymentNotice(Shape):
    resourceType: str
    status: str
    request: Reference
    created: str
    payment: Body
    recipient: Body
    amount: Body
    extension: list[Body] | None = None


class Coding(Shape):
    system: str
    code: str
    display: str


class Answer(Shape):
    valueCoding: Coding | None = None
    valueString: str | None = None


class Item(Shape):
    linkId: str
    answer: list[Answer]


class QuestionnaireResponse(Shape):
    resourceType: str
    status: str
    questionnaire: str
    subject: Reference
    author: Reference | None = None
    authored: str | None = None
    item: list[Item]


SHAPES: dict[str, type[Shape]] = {shape.__name__: shape for shape in (Task, PaymentNotice, QuestionnaireResponse)}


def checked(body: Body) -> Body:
    SHAPES[body["resourceType"]].model_validate(body)
    return body


# --- From rows to bodies ----------------------------------------------------------------------------


def refer(kind: str, key: str) -> Body:
    return {"reference": f"{kind}/{key}"}


def task(row: CsvRow) -> Body:
    body: Body = {"resourceType": "Task", "status": row["status"], "intent": "unknown"}
    body["description"] = row["description"]
    body["for"] = refer("Patient", row["patient_id"])
    body["requester"] = refer("Practitioner", row["requester_id"])
    if owner := row["owner_id"]:
        body["owner"] = refer("Practitioner", owner)
    if due := row["due"]:
        body["restriction"] = {"period": {"end": due}}
    if labels := row["labels"]:
        body["input"] = [{"type": {"text": "label"}, "valueString": label} for label in labels.split(";")]
    if comment := row["comment"]:
        body["note"] = [{"text": comment, "authorReference": refer("Practitioner", row["comment_author_id"])}]
    return body


def payment(row: CsvRow) -> Body:
    body: Body = {"resourceType": "PaymentNotice", "status": "active", "created": row["paid_on"]}
    body |= {"payment": {}, "recipient": {}, "request": refer("Patient", row["patient_id"])}
    body["amount"] = {"value": row["amount"], "currency": "USD"}
    if claim := row["claim_id"]:
        named = {"url": "claim", "valueReference": refer("Claim", claim)}
        body["extension"] = [{"url": "copayment-claims", "extension": [named]}]
    return body


def response(rows: list[CsvRow]) -> Body:
    head = rows[0]
    body: Body = {"resourceType": "QuestionnaireResponse", "status": "completed", "authored": head["authored"]}
    body["questionnaire"] = f"http://127.0.0.1/Questionnaire/{head['questionnaire']}"
    body["subject"] = refer("Patient", head["patient_id"])
    body["item"] = [{"linkId": row["question"], "answer": [{"valueCoding": coding(row)}]} for row in rows]
    return body


def coding(row: CsvRow) -> Body:
    return {"system": "http://loinc.org", "code": row["answer_code"], "display": "-"}


def responses(rows: Iterable[CsvRow]) -> Iterator[Body]:
    return (response(list(group)) for _, group in groupby(rows, itemgetter("response_id")))


KINDS: dict[str, Callable[[Iterable[CsvRow]], Iterable[Body]]] = {
    "tasks": lambda rows: map(task, rows),
    "payments": lambda rows: map(payment, rows),
    "answers": responses,
}


# --- The service ------------------------------------------------------------------------------------


def serve(listening: socket.socket, folder: str) -> None:
    database = duckdb.connect(f"{folder}/bare.duckdb")
    database.execute("CREATE TABLE resource (id UUID PRIMARY KEY, type VARCHAR, body VARCHAR)")

    def store(content: bytes) -> bytes:
        rows = []
        for entry in orjson.loads(content)["entry"]:
            body = checked(entry["resource"])
            rows.append((uuid.uuid4(), body["resourceType"], orjson.dumps(body).decode()))
        database.begin()
        append(database, rows)
        database.commit()
        answers = [{"response": {"status": "201", "location": f"{kind}/{key}"}} for key, kind, _ in rows]
        return orjson.dumps({"resourceType": "Bundle", "type": "batch-response", "entry": answers})

    async def batch(request: Request) -> Response:
        return Response(await run_in_threadpool(store, await request.body()), media_type="application/json")

    async def used(_: Request) -> Response:
        return Response(orjson.dumps(cpu_seconds()))

    app = Starlette(routes=[Route("/", batch, methods=["POST"]), Route("/used", used)])
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])


def append(database: duckdb.DuckDBPyConnection, rows: list[tuple[uuid.UUID, str, str]]) -> None:
    appender = database.appender("resource")
    appender.append_rows(rows)
    appender.flush()


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# --- The client -------------------------------------------------------------------------------------


async def send(url: str, bodies: Iterable[Body]) -> int:
    """Send all bodies, one bundle while the next is built and checked. Return the number of stored resources."""
    done, under_way, rest = 0, None, iter(bodies)
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        while chunk := list(map(checked, islice(rest, BUNDLE))):
            done += await under_way if under_way else 0
            under_way = asyncio.create_task(post(client, chunk))
            await asyncio.sleep(0)
        return done + (await under_way if under_way else 0)


async def post(client: httpx.AsyncClient, chunk: list[Body]) -> int:
    bundle = {"resourceType": "Bundle", "type": "batch", "entry": [{"resource": body} for body in chunk]}
    answer = (await client.post("/", content=orjson.dumps(bundle))).raise_for_status()
    return len(orjson.loads(answer.content)["entry"])


def measure(kind: str, path: Path) -> dict[str, Any]:
    """Send a file to a service that is started for it. Return rate and seconds."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listening:
        server = multiprocessing.Process(target=serve, args=(listening, folder), daemon=True)
        server.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with path.open(newline="", encoding="utf-8") as file:
            idle = httpx.get(f"{url}/used", timeout=60).json()
            began, cpu = time.perf_counter(), cpu_seconds()
            records = asyncio.run(send(url, KINDS[kind](csv.DictReader(file))))
            seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu
            served = httpx.get(f"{url}/used").json() - idle
        server.terminate()
        server.join()
    rate = round(records / seconds)
    used = {"client": round(cpu, 2), "service": round(served, 2)}
    return {"kind": kind, "records": records, "seconds": round(seconds, 3), "per_second": rate, "cpu": used}


def main() -> None:
    parser = argparse.ArgumentParser(description="Carries a CSV into a store, with nothing else done.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    print(json.dumps(measure(given.kind, given.file)))


if __name__ == "__main__":
    main()
