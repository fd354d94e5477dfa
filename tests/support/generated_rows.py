"""An independent reader of generated files, by Python's `csv` and `json`, without code of ours."""

import csv
import io
import json
import re
import unicodedata
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from unicodedata import category

from tests.support.generated_files import GeneratedFile

KEYS = {"payments": "payment_id", "answers": "response_id", "tasks": "task_id", "mood": "form", "till": "Beleg"}
UNPRINTED = {"Zs", "Zl", "Zp", "Cc", "Cf"}
"""Unicode categories of blanks, controls and formats."""
UNSEEN = " \t\r\n\v\f\x1a\u00a0"
NOW = datetime(2026, 12, 1, tzinfo=UTC)


def physical_lines(text: str) -> list[str]:
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def rows_by_line(file: GeneratedFile) -> dict[int, dict[str, Any]]:
    """Return the rows of a sound file by their first lines."""
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
    """True if the feed reads this row as a record, and it is not a trailer."""
    return row.get("Art", "Z") == "Z" and row.get("Beleg") != "Summe"


def row_alone(file: GeneratedFile, text: str) -> dict[str, Any]:
    """Return the row in a text that holds just this row."""
    if file.form == "ndjson":
        found: dict[str, Any] = json.loads(text, parse_float=Decimal)
        return found
    [cells] = csv.reader(io.StringIO(text, newline=""), delimiter=file.delimiter)
    return dict(zip(file.header, cells, strict=True))


def same_key(text: object) -> str:
    """Return a key in normal form: without outer blanks and quotes, with single spaces within."""
    plain = " ".join(unicodedata.normalize("NFC", str(text)).split())
    while plain and unicodedata.category(plain[0]) in ("Cf", "Zs"):
        plain = plain[1:]
    while plain and unicodedata.category(plain[-1]) in ("Cf", "Zs"):
        plain = plain[:-1]
    return same_key(quoted[1]) if (quoted := re.fullmatch(r'"([^"\\]*)"', plain)) else plain


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
    """Return the content of a row in the terms of a body. A cell of blanks and invisible characters is empty."""
    got = {name: cell for name, cell in row.items() if cell is not None and set(map(category, str(cell))) - UNPRINTED}
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
    """Return the content of an accepted body in the terms of rows: for answers, one for each item."""
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
    """True if a body and a row have the same content. In rows, ids may lack their type, codes may have blanks."""
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
