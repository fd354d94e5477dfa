"""Laws that hold for any file: hundreds of them drawn from seeds, validated alone and imported whole.

An independent reader, Python's `csv` and `json` with no code of ours, says what the rows of a file are.
"""

import csv
import gzip
import io
import json
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from fhir_service.interface.resources.questionnaire import Questionnaire
from fhir_service.interface.site import Site
from pipelines.feeds.files.catalog import Catalog, load_feeds
from pipelines.feeds.reading import chunks as reading
from pipelines.home.batch import Received, Unreadable
from pipelines.session.questionnaires import Snapshot
from pipelines.validation import grouping
from pipelines.validation.checking import check_records
from pipelines.validation.outcome import Validated
from pipelines.validation.stage import validate
from tests.pipelines.generated_files import FORM, MARKER, NOBODY, TOML, FileMaker, GeneratedFile
from tests.support.commands import totals_close
from tests.support.ledgers import read_ledger

NOW = datetime(2026, 12, 1, tzinfo=UTC)
SNAPSHOT = Snapshot.of([Questionnaire.model_validate(FORM)])
KEYS = {"payments": "payment_id", "answers": "response_id", "tasks": "task_id", "mood": "form", "till": "Beleg"}
UNSEEN = " \t\r\n\v\f\x1a\u00a0"

# --- An independent reader ------------------------------------------------------------------------


def physical_lines(text: str) -> list[str]:
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def rows_by_line(file: GeneratedFile) -> dict[int, dict[str, Any]]:
    """The rows of a sound file by the line that each begins on."""
    if file.form == "ndjson":
        lines = enumerate(physical_lines(file.text), 1)
        return {number: json.loads(line, parse_float=Decimal) for number, line in lines if line.strip()}
    found, before = {}, 0
    reader = csv.reader(io.StringIO(file.text, newline=""), delimiter=file.delimiter)
    for cells in reader:
        if any(cells) and before >= header_lines(file):
            found[before + 1] = dict(zip(file.header, cells, strict=True))
        before = reader.line_num
    return found


def header_lines(file: GeneratedFile) -> int:
    return 0 if file.form == "ndjson" else 3 if file.kind == "till" else 1


def is_taken(row: dict[str, Any]) -> bool:
    """True if the feed takes such a row, and it is no trailer."""
    return row.get("Art", "Z") == "Z" and row.get("Beleg") != "Summe"


def row_alone(file: GeneratedFile, text: str) -> dict[str, Any]:
    """What the lines of one row say, read without the others."""
    if file.form == "ndjson":
        found: dict[str, Any] = json.loads(text, parse_float=Decimal)
        return found
    [cells] = csv.reader(io.StringIO(text, newline=""), delimiter=file.delimiter)
    return dict(zip(file.header, cells, strict=True))


def same_key(text: object) -> str:
    """A key without blanks around it, with one space for those within, in one form."""
    plain = " ".join(unicodedata.normalize("NFC", str(text)).split())
    while plain and unicodedata.category(plain[0]) in ("Cf", "Zs"):
        plain = plain[1:]
    while plain and unicodedata.category(plain[-1]) in ("Cf", "Zs"):
        plain = plain[:-1]
    return plain


def cents_of(file: GeneratedFile, cell: object) -> Decimal:
    text = str(cell).strip()
    if file.kind == "till":
        text = text.replace("€", "").strip().replace(".", "").replace(",", ".")
    return Decimal(text.removesuffix("+").strip()) * 100


def instant_of(text: str) -> datetime:
    text = re.sub(r"\s+(?=Z|[+-]\d\d)", "", text.strip()).replace(",", ".")
    german = re.fullmatch(r"(\d\d?)\.(\d\d?)\.(\d{4})", text)
    found = datetime.fromisoformat("{2}-{1:0>2}-{0:0>2}".format(*german.groups()) if german else text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def said(file: GeneratedFile, row: dict[str, Any]) -> dict[str, Any]:
    """What a row says, in the words of a body."""
    got = {name: cell for name, cell in row.items() if cell not in ("", None)}
    if file.kind in ("payments", "till"):
        amount, patient, day = (
            ("amount", "patient_id", "paid_on") if file.kind == "payments" else ("Betrag", "Kartei", "Datum")
        )
        found = {"cents": cents_of(file, got[amount]), "patient": got[patient], "at": instant_of(got[day])}
        return found | {"claim": got.get("claim_id")}
    if file.kind == "tasks":
        names = ("description", "status", "patient_id", "requester_id", "comment")
        return {name: got.get(name) for name in names}
    columns = ("Q1", "Q2", "Q3") if file.kind == "mood" else ("answer_code", "answer_text", "answer_number")
    code, text, number = map(got.get, columns)
    return {"code": (code or "").strip() or None, "text": text, "number": number and Decimal(str(number).strip())}


def in_body(file: GeneratedFile, row: dict[str, Any]) -> list[dict[str, Any]]:
    """The same of an accepted record: of answers, one for each item."""
    body = json.loads(row["body"], parse_float=Decimal)
    if file.kind in ("payments", "till"):
        claims = [each["extension"][0]["valueReference"]["reference"] for each in body.get("extension", ())]
        assert body["amount"]["value"] * 100 == row["amount_cents"]
        patient = body["request"]["reference"]
        return [
            {
                "cents": row["amount_cents"],
                "patient": patient,
                "at": row["source_at"],
                "claim": next(iter(claims), None),
            }
        ]
    if file.kind == "tasks":
        return [
            {
                "description": body["description"],
                "status": body["status"],
                "patient_id": body.get("for", {}).get("reference"),
                "requester_id": body["requester"]["reference"],
                "comment": next((note["text"] for note in body.get("note", ())), None),
            }
        ]
    answers = [(item["linkId"], answer) for item in body["item"] for answer in item["answer"]]
    found = [
        {
            "code": got.get("valueCoding", {}).get("code"),
            "text": got.get("valueString"),
            "number": got.get("valueDecimal"),
        }
        for _, got in answers
    ]
    if file.kind == "answers":
        return found
    return [{name: next((each[name] for each in found if each[name] is not None), None) for name in found[0]}]


REFERENCES = {"patient": "Patient", "claim": "Claim", "patient_id": "Patient", "requester_id": "Practitioner"}


def like(body: dict[str, Any], row: dict[str, Any]) -> bool:
    """True if a body says what a row says: ids may lack their type there, codes and ids have blanks around them."""
    for name, there in body.items():
        wanted = row[name]
        if name in REFERENCES and wanted is not None:
            wanted = f"{wanted:f}" if isinstance(wanted, Decimal) else str(wanted).strip()
            wanted = wanted if "/" in wanted else f"{REFERENCES[name]}/{wanted}"
        if name == "status":
            wanted = wanted.strip()
        if there != wanted:
            return False
    return True


# --- Files, validated -----------------------------------------------------------------------------


class Mapped(NamedTuple):
    """A row as it was read: its first line, its number of lines, and its key."""

    line: int
    lines: int
    key: str | None


@dataclass
class Campaign:
    """Validates files one after another and looks at what came of each."""

    folder: Path
    catalog: Catalog
    mapped: list[Mapped] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def check(self, file: GeneratedFile) -> None:
        path, folder = self.folder / file.name, self.folder / f"run-{self.counts['files']}"
        path.write_bytes(file.data)
        feed = self.catalog.match(file.name)
        assert feed
        received = Received("b", "0" * 64, path, file.name, len(file.data), NOW)
        self.counts["files"] += 1
        try:
            found = validate(received, feed, SNAPSHOT, Site(), folder)
        except Unreadable as error:
            self.counts["unreadable"] += 1
            self.tells_of_no_cell(file, str(error))
            assert not list(folder.iterdir())
            return
        outcome = Outcome(file, found, self.mapped)
        outcome.every_row_is_counted_once()
        outcome.payments_are_sent_by_time_then_line()
        outcome.every_line_is_of_one_row()
        outcome.rejects_are_as_they_came()
        outcome.accepted_rows_say_what_their_lines_say()
        if file.sound:
            outcome.sound_rows_are_accepted()
        self.counts.update(accepted=found.accepted, rejected=found.rejected, skipped=found.skipped)

    @staticmethod
    def tells_of_no_cell(file: GeneratedFile, sentence: str) -> None:
        """A file that cannot be read is told in one sentence, and is none that another reader takes."""
        assert not file.sound or not file.records, sentence
        assert sentence.startswith(f"{file.name}: ")
        assert "\n" not in sentence
        assert MARKER not in sentence.casefold()


class Outcome:
    """What validation made of a file."""

    def __init__(self, file: GeneratedFile, found: Validated, mapped: list[Mapped]) -> None:
        self.file, self.found, self.mapped = file, found, sorted(mapped)
        self.accepted, self.skipped, self.rejects = (
            pq.read_table(found.folder / f"{name}.parquet").to_pylist() for name in ("accepted", "skipped", "rejects")
        )
        self.lines = physical_lines(file.text)
        self.grouped = file.kind == "answers"
        self.marked = "_reject_id" in file.text

    def every_row_is_counted_once(self) -> None:
        """Counts close, to the row, the line and the cent."""
        found, accepted, skipped, rejects = self.found, self.accepted, self.skipped, self.rejects
        assert found.lines == len(self.lines)
        assert (found.accepted, found.skipped) == (len(accepted) + len(skipped), len(skipped))
        assert (found.rejected, found.records) == (len(rejects), found.accepted + found.rejected)
        every = [*accepted, *skipped, *rejects]
        assert found.lines == found.header + found.not_taken + sum(row["lines"] for row in every)
        assert len({row["line"] for row in every}) == len(every)
        assert all(1 <= row["line"] <= found.lines for row in every)
        cents = [sum(row["amount_cents"] or 0 for row in rows) for rows in (accepted, skipped, rejects)]
        assert found.amount_received == sum(cents)
        assert (found.amount_accepted, found.amount_skipped) == (cents[0] + cents[1], cents[1])
        assert [row["position"] for row in accepted] == list(range(len(accepted)))
        keys = {row["key"]: row["line"] for row in accepted}
        assert len(keys) == len(accepted)
        assert all(row["first_line"] == keys[row["key"]] for row in skipped)

    def payments_are_sent_by_time_then_line(self) -> None:
        order = [(row["source_at"] is None, row["source_at"], row["line"]) for row in self.accepted]
        assert order == sorted(order) or self.file.kind not in ("payments", "till")

    def every_line_is_of_one_row(self) -> None:
        """Each physical line is of the header, of one row, or empty; each row is of one record."""
        owned: Counter[int] = Counter(line for row in self.mapped for line in range(row.line, row.line + row.lines))
        assert set(owned.values()) <= {1}
        assert set(owned) <= set(range(self.found.header + 1, len(self.lines) + 1))
        for number in set(range(self.found.header + 1, len(self.lines) + 1)) - set(owned):
            assert self.is_no_row(self.lines[number - 1]), f"line {number} is nowhere: {self.lines[number - 1]!r}"
        in_rows, in_records = Counter[Any](), Counter[Any]()
        for row in self.mapped:
            in_rows[row.key if self.grouped and row.key else row.line] += row.lines
        for one in [*self.accepted, *self.skipped, *self.rejects]:
            in_records[one["key"] if self.grouped and one["key"] else one["line"]] += one["lines"]
        assert in_rows == in_records

    def is_no_row(self, line: str) -> bool:
        """True if a line has nothing on it, repeats the header, or is one that its feed does not take."""
        if self.file.form == "ndjson":
            return not line.strip()
        nothing = UNSEEN + '"\ufeff' + self.file.delimiter
        before = next((place for place, each in enumerate(self.lines) if each.strip(nothing)), 0)
        header = {each.strip("\ufeff\r\n") for each in self.lines[: before + self.found.header]}
        return not line.strip(nothing) or line.strip("\ufeff\r\n") in header or self.file.kind == "till"

    def rejects_are_as_they_came(self) -> None:
        """A reject has the text of its lines, and a reason that names a line of it."""
        for reject in self.rejects:
            own = [
                row
                for row in self.mapped
                if row.line == reject["line"] or (self.grouped and row.key and row.key == reject["key"])
            ]
            text = "".join("".join(self.lines[row.line - 1 : row.line - 1 + row.lines]) for row in own)
            text = text.encode("utf-8", "backslashreplace").decode()
            if not self.marked:
                assert reject["record"].lstrip("\ufeff") == text.lstrip("\ufeff")
            assert reject["reasons"]
            lines = {line for row in own for line in range(row.line, row.line + row.lines)}
            assert all(reason["rule_id"] and reason["message"] for reason in reject["reasons"])
            assert all(reason["line"] is None or reason["line"] in lines for reason in reject["reasons"])

    def accepted_rows_say_what_their_lines_say(self) -> None:
        if self.marked or self.file.spoiled:
            return
        for one in self.accepted:
            own = [row for row in self.mapped if (row.key == one["key"] if self.grouped else row.line == one["line"])]
            texts = ["".join(self.lines[row.line - 1 : row.line - 1 + row.lines]) for row in own]
            rows = [row_alone(self.file, text) for text in texts]
            assert {same_key(row[KEYS[self.file.kind]]) for row in rows} == {one["key"]}
            if any("resourceType" in row for row in rows):
                continue
            wanted = [said(self.file, row) for row in rows]
            bodies = in_body(self.file, one)
            assert all(any(like(body, row) for row in wanted) for body in bodies), (one["body"], wanted)
            assert all(any(like(body, row) for body in bodies) for row in wanted), (one["body"], wanted)

    def sound_rows_are_accepted(self) -> None:
        """The rows are those that another reader finds; of sound ones each key is accepted once, or is told twice."""
        rows = rows_by_line(self.file)
        assert len(rows) == len(self.file.records) + (self.file.kind == "till")
        records = dict(zip(rows, self.file.records, strict=False))
        taken = [line for line, one in records.items() if is_taken(one.cells)]
        assert set(taken) <= {row.line for row in self.mapped} <= set(records)
        of_key: dict[str, list[int]] = {}
        for line in taken:
            of_key.setdefault(same_key(rows[line].get(KEYS[self.file.kind], "")), []).append(line)
        accepted = {row["line"] for row in self.accepted}
        one_row = "were read as one row"
        swallowed = {row["line"] for row in self.rejects if one_row in row["reasons"][0]["message"]}
        for lines in of_key.values():
            some = [records[line] for line in lines]
            repeats = len({one.cells.get("question") for one in some}) < len(some)
            if all(one.sound for one in some) and not swallowed & set(lines) and not (self.grouped and repeats):
                alike = self.grouped or all(one.cells == some[0].cells for one in some)
                assert accepted & set(lines) == ({lines[0]} if alike else set()), (lines, self.rejects)


@pytest.fixture
def campaign(tmp_path, monkeypatch) -> Campaign:
    for name, toml in TOML.items():
        (tmp_path / f"{name}.toml").write_text(toml)
    made = Campaign(tmp_path, load_feeds([tmp_path]))

    def noting(mapped, *rest):
        rows = pq.read_table(mapped, columns=list(Mapped._fields)).to_pylist()
        made.mapped = [Mapped(**row) for row in rows]
        return check_records(mapped, *rest)

    monkeypatch.setattr("pipelines.validation.stage.check_records", noting)
    return made


@pytest.mark.parametrize(
    ("seed", "files"), [(1, 90), *(pytest.param(seed, 400, marks=pytest.mark.long) for seed in range(11, 17))]
)
def test_each_row_of_a_generated_file_is_counted_once_and_read_as_others_read_it(
    seed, files, campaign, monkeypatch, capfd, caplog
):
    """FEED-FILE-02, FEED-FILE-03, FEED-FILE-04, FEED-FILE-09, FEED-PAY-03, FEED-PAY-04, LEDGER-13, LEDGER-19."""
    maker, dice = FileMaker(seed), Random(seed)
    for number in range(files):
        monkeypatch.setattr(reading, "CHUNK", dice.choice([2, 7, 2_000]))
        monkeypatch.setattr(grouping, "ROWS", dice.choice([3, 2_000]))
        file = maker.file()
        try:
            campaign.check(file)
        except BaseException as error:
            error.add_note(f"seed {seed}, file {number}, {file.name}: {file.data[:2_000]!r}")
            raise
    out, err = capfd.readouterr()
    assert (out, err, caplog.text) == ("", "", "")
    assert campaign.counts["accepted"] > files
    assert campaign.counts["rejected"] > files // 2
    assert 0 < campaign.counts["unreadable"] < files // 3


# --- Files, imported ------------------------------------------------------------------------------

TYPES = ("PaymentNotice", "QuestionnaireResponse", "Task")
RECORDS = """
    SELECT resource_type, key, state, resource_id, batch_id, line, patient_id, source_at, amount_cents FROM record
"""


class Imported(NamedTuple):
    """A record as the ledger has it."""

    resource_type: str
    key: str
    state: str
    resource_id: str | None
    batch_id: str
    line: int
    patient_id: str | None
    source_at: str | None
    amount_cents: int | None


class Practice:
    """A home into which generated files are imported, and what it and its target have then."""

    def __init__(self, home, target, chartferry) -> None:
        self.home, self.target, self.chartferry = home, target, chartferry
        self.printed: list[str] = []
        target.stored["q1"] = FORM
        target.refuse = lambda body: NOBODY in json.dumps(body)
        (home / "feeds").mkdir()
        for name, toml in TOML.items():
            (home / "feeds" / f"{name}.toml").write_text(toml)

    def run(self, *arguments: object) -> str:
        code, out, err = self.chartferry(*arguments)
        assert code in {0, 3, 4}, (code, out, err)
        self.printed += [out, err]
        return str(out)

    def take(self, files: dict[str, bytes]) -> dict[str, Any]:
        """Import files by their names; what the summary says."""
        for name, data in files.items():
            (self.home / "inbox" / name).write_bytes(data)
        summary: dict[str, Any] = json.loads(self.run("import", "--json"))
        for batch in summary["batches"]:
            batch["unnamed_columns"] = []  # of a file that was spoiled, any text may be its header
        self.printed[-2] = json.dumps(summary)
        totals_close({"batches": [each for each in summary["batches"] if each["state"] == "finished"]})
        return summary

    def ledger(self, query: str) -> list[tuple[Any, ...]]:
        with read_ledger(self.home) as ledger:
            return ledger.execute(query).fetchall()

    def records(self) -> list[Imported]:
        return [Imported(*row) for row in self.ledger(RECORDS)]

    def there(self) -> dict[str, dict[str, Any]]:
        """What was made at the target, in that order."""
        return {name: body for name, body in self.target.stored.items() if body["resourceType"] in TYPES}

    def open_rejects(self, where: str = "true") -> set[tuple[str, int]]:
        return set(self.ledger(f"SELECT batch_id, line FROM reject WHERE state = 'open' AND {where}"))

    # -- what is true

    def each_accepted_record_is_there_once(self) -> None:
        records, there = self.records(), self.there()
        made = [one for one in records if one.resource_id]
        assert {one.state for one in made} <= {"created"}
        assert {one.state for one in records} <= {"created", "refused"}
        assert sorted(one.resource_id or "" for one in made) == sorted(there)
        known = {(one.resource_type, one.key) for one in records}
        finished = {name for (name,) in self.ledger("SELECT batch_id FROM batch WHERE state = 'finished'")}
        for path in self.home.glob("batches/*/run-*/accepted.parquet"):
            rows = pq.read_table(path).to_pylist() if path.parts[-3] in finished else []
            assert {(json.loads(row["body"])["resourceType"], row["key"]) for row in rows} <= known

    def cents_agree(self) -> None:
        there = self.there()
        for one in self.records():
            if one.resource_id and one.resource_type == "PaymentNotice":
                assert one.amount_cents == cents_at_target(there[one.resource_id])
        found = json.loads(self.run("verify", "--json"))
        assert found["counts"] == {}
        total = sum(cents_at_target(each) for each in there.values() if each["resourceType"] == "PaymentNotice")
        assert found["ledger_cents"] == found["target_cents"] == total

    def payments_came_in_order(self) -> None:
        """Of each patient over all files: by the file that came first, in it by their time, then by line."""
        places = {name: place for place, name in enumerate(self.there())}
        received = dict(self.ledger("SELECT batch_id, received_at FROM batch"))
        paid = [one for one in self.records() if one.resource_type == "PaymentNotice" and one.resource_id]
        paid.sort(key=lambda one: one.patient_id or "")
        for _, some in groupby(paid, key=lambda one: one.patient_id):
            wanted = sorted(
                some,
                key=lambda one: (
                    received[one.batch_id],
                    instant_of(one.source_at) if one.source_at else NOW,
                    one.line,
                ),
            )
            came = [places[one.resource_id or ""] for one in wanted]
            assert came == sorted(came)

    def holds(self) -> None:
        self.each_accepted_record_is_there_once()
        self.cents_agree()

    def rejects_put_in_again_are_nothing_new(self, out: Path) -> None:
        """Each stays what it was. One that may have been misread is taken then, and a quote may cut one in several."""
        made, waiting, doubtful = self.there(), self.open_rejects(), self.open_rejects("content_hash IS NOT NULL")
        self.run("rejects", "export", "--out", out)
        self.take({path.name: path.read_bytes() for path in out.glob("*")})
        closed, more = waiting - self.open_rejects(), self.open_rejects() - waiting
        assert closed <= doubtful
        assert len(self.there()) - len(made) <= len(closed)
        for batch, line in more:
            [source] = self.home.glob(f"batches/{batch}/source/*")
            data = source.read_bytes()
            text = data if not data.startswith(b"\x1f\x8b") else gzip.decompress(data)
            lines = physical_lines(text.decode("utf-8-sig", "surrogateescape"))
            assert not re.match(r"\W*(?:_reject_id\W+)?[0-9a-f]{16}\b", lines[line - 1])

    def sound_payments_are_there(self, file: GeneratedFile) -> None:
        """Each payment of a sound file that another reader finds is at the target with its cents."""
        rows = rows_by_line(file)
        keys = Counter(same_key(row.get(KEYS[file.kind], "")) for row in rows.values())
        found = {one.key: one for one in self.records() if one.resource_type == "PaymentNotice"}
        for row, record in zip(rows.values(), file.records, strict=False):
            key = same_key(row.get(KEYS[file.kind], ""))
            if record.sound and keys[key] == 1 and is_taken(row):
                body = self.there()[found[key].resource_id or ""]
                assert cents_at_target(body) == cents_of(file, row["amount" if file.kind == "payments" else "Betrag"])


def cents_at_target(body: dict[str, Any]) -> Decimal:
    return Decimal(str(body["amount"]["value"])) * 100


@pytest.mark.parametrize(
    ("seed", "number"), [(4, 4), (5, 4), *(pytest.param(seed, 8, marks=pytest.mark.long) for seed in range(21, 51))]
)
def test_generated_files_are_imported_once_whatever_is_in_them(
    seed, number, home, target, chartferry, monkeypatch, caplog
):
    """LEDGER-01, LEDGER-02, LEDGER-03, FEED-PAY-03, FEED-PAY-04, CLI-CMD-04, CLI-CMD-05, CLI-CMD-17, STATE-HOME-07."""
    monkeypatch.setattr("pipelines.importing.closing.publish_into", lambda *_: None)
    target.additions = seed % 2 == 0
    practice, maker = Practice(home, target, chartferry), FileMaker(seed)
    files = [maker.file() for _ in range(number)]
    practice.take({file.name: file.data for file in files})
    practice.holds()
    practice.payments_came_in_order()
    for file in files:
        if file.sound and file.records and file.kind in ("payments", "till"):
            practice.sound_payments_are_there(file)
    made, waiting = practice.there(), practice.open_rejects()
    practice.take({file.name: file.data for file in files})
    practice.take({f"{file.kind}-again-{file.name}": file.data for file in files})
    assert (practice.there(), practice.open_rejects()) == (made, waiting)
    practice.rejects_put_in_again_are_nothing_new(home.parent / "out")
    practice.holds()
    assert MARKER not in "".join(practice.printed) + caplog.text
