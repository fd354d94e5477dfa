"""The exports of one practice, as their systems wrote them, through the feed files of `docs/examples`.

The expected outcome of each payment, answer and task is computed here again, in plain Python from the files, and
compared to the row and the cent. `make test` takes the patients of a tenth of the practice, `make test-all` all of
them.

The data is not part of this project: the tests are skipped where it is not at hand.
"""

import csv
import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zlib import crc32

import duckdb
import pytest

from tests.support.called import called
from tests.support.commands import load, resources, run, serving
from tests.support.published_rows import Tables
from tests.support.questions import ANSWERS, asked, same
from tests.support.realdata import MISSING, REALDATA

ROOT = Path(__file__).parents[1]
PRACTICE = REALDATA / "practice"
SET_ASIDE = 3
LIMIT = Decimal("9999999.99")
LOADED = ("Task", "PaymentNotice", "QuestionnaireResponse")
COPAYMENT = "/fhir/copayment-claims"
ID = re.compile(r"[\w.-]+")

pytestmark = pytest.mark.skipif(
    not all((PRACTICE / name).is_dir() for name in ("reference", "inbox")),
    reason=MISSING,
)


# --- What the files say must happen -----------------------------------------------------------------


@pytest.fixture(scope="module", params=[10, pytest.param(1, marks=pytest.mark.long)], ids=["a tenth", "all"])
def practice(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the practice's reference data and exports, or of what is about some of its patients alone."""
    if request.param == 1:
        return PRACTICE
    tasks = set(ID.findall((PRACTICE / "inbox" / "tasks.ndjson").read_text(encoding="utf-8")))  # few: all of them stay
    people = {each["id"] for each in reference(PRACTICE, "Patient")} - tasks
    left_out = {each for each in people if crc32(each.encode()) % request.param}
    folder = tmp_path_factory.mktemp("some of the practice")
    for path in (path for path in PRACTICE.glob("*/*") if path.parent.name in ("reference", "inbox")):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = data.decode().splitlines(keepends=True)
        kept = [line for line in lines if left_out.isdisjoint(ID.findall(line))]
        assert 0 < len(kept) <= len(lines)
        (folder / path.parent.name).mkdir(exist_ok=True)
        (folder / path.parent.name / path.name.removesuffix(".gz")).write_text("".join(kept))
    return folder


@dataclass(frozen=True)
class Payment:
    """A payment row of the billing system. claim: only a copayment has one. created: what the rules say of it."""

    key: str
    patient: str
    amount: Decimal
    claim: str | None
    created: bool


def reference(practice: Path, kind: str) -> Iterator[dict[str, Any]]:
    """The reference records of a type."""
    for path in sorted((practice / "reference").glob(f"{kind}.*")):
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            yield from (json.loads(line, parse_float=Decimal) for line in file if line.strip())


def export(practice: Path, name: str) -> list[dict[str, str]]:
    with (practice / "inbox" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def claim_total(claim: dict[str, Any]) -> Decimal:
    if "total" in claim:
        return Decimal(claim["total"]["value"])
    return sum((Decimal(item["net"]["value"]) for item in claim.get("item", []) if "net" in item), Decimal(0))


def payments_predicted(practice: Path) -> dict[str, Payment]:
    """PAY-CREATE-02 to PAY-CREATE-07 by hand: per patient, by day and then by place in the file, an ordinary payment is
    taken up to the balance; a copayment for a claim of the patient may take the balance below zero."""
    claims = {claim["id"]: claim for claim in reference(practice, "Claim")}
    balance: defaultdict[str, Decimal] = defaultdict(Decimal)
    for claim in claims.values():
        if claim["status"] == "active":
            balance[bare(claim["patient"]["reference"])] += claim_total(claim)
    patients = {patient["id"] for patient in reference(practice, "Patient")}
    paid = [row for row in export(practice, "claims_transactions.csv") if row["TYPE"] == "PAYMENT"]
    found = {}
    for row in sorted(paid, key=lambda row: datetime.fromisoformat(row["FROMDATE"])):  # stable: then as in the file
        patient, amount = row["PATIENTID"], Decimal(row["PAYMENTS"])
        claim_id = row["CLAIMID"] if row["METHOD"] == "COPAY" else None
        possible = patient in patients and 0 < amount <= LIMIT and amount == amount.quantize(Decimal("0.01"))
        if claim_id:
            possible &= claim_id in claims and bare(claims[claim_id]["patient"]["reference"]) == patient
        else:
            possible &= amount <= balance[patient]
        if possible:
            balance[patient] -= amount
        found[row["ID"]] = Payment(row["ID"], patient, amount, claim_id, possible)
    assert len(found) == len(paid), "a key of the export comes twice"
    return found


def bare(reference: str) -> str:
    return reference.rpartition("/")[2]


def answer_in_file(row: dict[str, str]) -> tuple:
    """(question, what was answered) of a row."""
    if row["answer_code"]:
        return row["link_id"], row["answer_system"], row["answer_code"]
    if row["answer_number"]:
        return row["link_id"], Decimal(row["answer_number"])
    return row["link_id"], row["answer_string"]


def answers_in(items: list[dict[str, Any]]) -> Iterator[tuple]:
    """The same of a response's items, nested ones too."""
    for item in items:
        for answer in item.get("answer", []):
            if coding := answer.get("valueCoding"):
                yield item["linkId"], coding["system"], coding["code"]
            elif "valueDecimal" in answer:
                yield item["linkId"], Decimal(str(answer["valueDecimal"]))
            else:
                yield item["linkId"], answer["valueString"]
            yield from answers_in(answer.get("item", []))
        yield from answers_in(item.get("item", []))


def responses_exported(practice: Path) -> dict[str, dict[str, Any]]:
    """Response by key: whose, which questionnaire, when, and its answers."""
    found: dict[str, dict[str, Any]] = {}
    for row in export(practice, "prapare_answers.csv"):
        response = found.setdefault(row["response_id"], row | {"answers": Counter()})
        response["answers"][answer_in_file(row)] += 1
    return found


PERSONS = {
    "PractitionerRole/obstetrician-losch-sallie": "Practitioner/losch-sallie",
    "PractitionerRole/generalpractitioner-guthridge-jarred": "Practitioner/guthridge-jarred",
}
"""The roles that stand for a person, as the practice says."""


def tasks_predicted(practice: Path) -> dict[str, str | None]:
    """Requester of each task in the chart, None where nobody who can be one requested it."""
    practitioners = {f"Practitioner/{one['id']}" for one in reference(practice, "Practitioner")}
    lines = (practice / "inbox" / "tasks.ndjson").read_text(encoding="utf-8").splitlines()
    tasks = {task["id"]: task["requester"]["reference"] for task in map(json.loads, lines)}
    persons = {key: PERSONS.get(requester, requester) for key, requester in tasks.items()}
    return {key: person if person in practitioners else None for key, person in persons.items()}


# --- What happened ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(practice: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The practice's reference data and exports, loaded and imported."""
    home = tmp_path_factory.mktemp("practice") / "var"
    loaded = load(home, practice / "reference")
    assert loaded.returncode == SET_ASIDE, loaded.stderr
    assert "3 refused" in loaded.stderr  # the questionnaires that are drafts
    imported = run("chartferry", "--home", home, "--feeds", ROOT / "docs" / "examples", "import", practice / "inbox")
    assert imported.returncode == SET_ASIDE, imported.stdout + imported.stderr
    return home


@pytest.fixture(scope="module")
def chart(home) -> dict[str, dict[str, dict[str, Any]]]:
    """Resources of the service: type, then the key in the source."""
    with serving(home) as client:
        return {kind: {key_of(one): one for one in resources(client, kind)} for kind in LOADED}


def key_of(resource: dict[str, Any]) -> str:
    identifier = resource["identifier"]
    return str((identifier[0] if isinstance(identifier, list) else identifier)["value"])


@pytest.fixture(scope="module")
def rows(home) -> dict[str, dict[str, dict[str, Any]]]:
    """Published import rows: type, then the key in the source."""
    found: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in LOADED}
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as published:
        query = published.execute("SELECT * FROM import_row")
        names = [column[0] for column in query.description]
        for row in (dict(zip(names, values, strict=True)) for values in query.fetchall()):
            found[row["resource_type"]][row["source_key"]] = row
    return found


@pytest.fixture(scope="module")
def batches(home) -> dict[str, dict[str, Any]]:
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as published:
        query = published.execute("SELECT * FROM import_batch")
        names = [column[0] for column in query.description]
        return {row["file_name"]: row for row in (dict(zip(names, v, strict=True)) for v in query.fetchall())}


def test_every_payment_that_the_rules_allow_is_created_and_no_other(practice, chart, rows):
    """PAY-CREATE-04, PAY-CREATE-05, PAY-CREATE-06, PAY-25: to the row and the cent, in the order of the practice."""
    predicted = payments_predicted(practice)
    assert {key: row["state"] for key, row in rows["PaymentNotice"].items()} == {
        key: "created" if payment.created else "refused" for key, payment in predicted.items()
    }
    assert {
        key: (patient_paying(one), amount_of(one), claim_of(one)) for key, one in chart["PaymentNotice"].items()
    } == {
        key: (payment.patient, payment.amount, payment.claim) for key, payment in predicted.items() if payment.created
    }


def patient_paying(notice: dict[str, Any]) -> str:
    return bare(notice["request"]["reference"])


def amount_of(notice: dict[str, Any]) -> Decimal:
    return Decimal(str(notice["amount"]["value"]))


def claim_of(notice: dict[str, Any]) -> str | None:
    for extension in notice.get("extension", []):
        if extension["url"].endswith(COPAYMENT):
            return bare(extension["extension"][0]["valueReference"]["reference"])
    return None


def test_copayments_alone_take_a_balance_below_zero(practice):
    """PAY-CREATE-07: the prediction is no accident: this practice has both kinds, and refusals."""
    predicted = payments_predicted(practice).values()
    assert {bool(payment.claim) for payment in predicted if payment.created} == {True, False}
    assert not any(payment.claim for payment in predicted if not payment.created)
    assert any(not payment.created for payment in predicted)


def test_every_response_is_created_with_the_answers_of_the_export(practice, chart, rows):
    """FEED-FILE-08: no rule forbids one of them, and not an answer is lost."""
    exported = responses_exported(practice)
    assert {key: row["state"] for key, row in rows["QuestionnaireResponse"].items()} == dict.fromkeys(
        exported, "created"
    )
    assert set(chart["QuestionnaireResponse"]) == set(exported)
    for key, wanted in exported.items():
        response = chart["QuestionnaireResponse"][key]
        assert Counter(answers_in(response["item"])) == wanted["answers"]
        assert response["subject"]["reference"] == wanted["subject"]
        assert response["encounter"]["reference"] == wanted["encounter"]
        assert bare(response["questionnaire"]) == wanted["questionnaire"]
        assert datetime.fromisoformat(response["authored"]) == datetime.fromisoformat(wanted["authored"])


def test_tasks_that_a_person_requested_are_created_the_others_rejected_with_the_reason(practice, home, chart, rows):
    """TASK-16, FEED-FILE-05: a requester is a practitioner, or one of the roles that stand for one."""
    predicted = tasks_predicted(practice)
    created = {key: person for key, person in predicted.items() if person}
    assert {key: row["state"] for key, row in rows["Task"].items()} == dict.fromkeys(created, "created")
    assert {key: task["requester"]["reference"] for key, task in chart["Task"].items()} == created
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as published:
        reasons = published.execute(
            "SELECT source_key, expression, message FROM reject JOIN reject_reason USING (reject_id)"
            " WHERE source_key IN (SELECT unnest(?::VARCHAR[]))",
            [sorted(predicted)],
        ).fetchall()
    assert {key for key, _, _ in reasons} == set(predicted) - set(created)
    assert {expression for _, expression, _ in reasons} == {"Task.requester"}
    assert all(message for _, _, message in reasons)


def test_counts_and_sums_close(practice, batches):
    """REPORT-23: against the files, to the row and the cent."""
    predicted = payments_predicted(practice).values()
    transactions = export(practice, "claims_transactions.csv")
    billing = batches["claims_transactions.csv"]
    assert billing["not_taken"] == sum(row["TYPE"] != "PAYMENT" for row in transactions)
    assert billing["lines"] == len(transactions) + 1
    assert billing["records"] == billing["accepted"] == len(predicted)
    assert billing["created"] == sum(payment.created for payment in predicted)
    assert billing["refused"] == len(predicted) - billing["created"]
    assert billing["amount_received"] == sum(payment.amount for payment in predicted)
    assert billing["amount_created"] == sum(payment.amount for payment in predicted if payment.created)
    screening, tasks = batches["prapare_answers.csv"], tasks_predicted(practice)
    lines, responses = len(export(practice, "prapare_answers.csv")) + 1, len(responses_exported(practice))
    assert (screening["lines"], screening["records"], screening["created"]) == (lines, responses, responses)
    assert (lines, responses) == (1177, 56) or practice != PRACTICE
    orders = batches["tasks.ndjson"]
    persons = sum(person is not None for person in tasks.values())
    assert (orders["lines"], orders["created"], orders["rejected"]) == (len(tasks), persons, len(tasks) - persons)
    assert {batch["state"] for batch in batches.values()} == {"finished"}


def test_the_store_is_sound_afterwards(home):
    """Balances equal charges less payments, for every patient."""
    checked = called("check", "--store", home / "service.duckdb")
    assert (checked.exit_code, checked.output.splitlines()[-1].split(",")[0]) == (0, "nothing wrong")


def test_forty_questions_of_analysts_have_the_answers_that_the_rows_give(home: Path) -> None:
    """REPORT-03: of this practice too, whose rows nobody chose for them."""
    questions = asked((ROOT / "docs" / "analysts.md").read_text(encoding="utf-8"))
    tables, answered = Tables(home / "published" / "parquet"), 0
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as published:
        published.execute("SET TimeZone = 'UTC'")
        for (question, query), answer in zip(questions, ANSWERS, strict=True):
            found = published.execute(query).fetchall()
            assert same(found, answer(tables)), question
            answered += bool(found)
    assert answered > 20
