"""Validation beyond the golden folders: files whose rows cannot be told apart, totals, limits, hashes."""

import gzip
import json
import random
import re
from pathlib import Path

import pytest

from fhir_service.interface.site import Site
from pipelines.feeds.reading.packed import contents
from pipelines.home.batch import UnreadableFile
from pipelines.validation import grouping
from tests.support.validating import PAYMENTS as HEADER
from tests.support.validating import rows, validated

UNREADABLE = {
    "empty": (b"", "is empty"),
    "only blank lines": (b"\n\n", "is empty"),
    "UTF-16": (HEADER.encode("utf-16"), "UTF-16"),
    **{
        f"{order} without a mark": (
            text.encode(order),
            "UTF-16 without a byte order mark; export it as UTF-8, or say enc",
        )
        for order in ("utf-16-le", "utf-16-be")
        for text in (HEADER + "k1,p1,1.00,2024-01-01,\n",)
    },
    "Greek in UTF-16": (
        ("\u03b1\u03b2\u03b3\u03b4;17;2,50\n" * 40).encode("utf-16-le"),
        "UTF-16 without a byte order mark",
    ),
    "a JSON array named CSV": (b'[{"payment_id": "k1"}]', "the file is a JSON array"),
    "a workbook": (b"PK\x03\x04" + bytes(50), "workbook"),
    "binary": (bytes(range(8)) * 2 + b"text" * 16, "binary"),
    "another header": (b"id,who,what\n1,2,3\n", "lacks payment_id, patient_id, amount, paid_on"),
    "a semicolon CSV": (HEADER.replace(",", ";").encode(), "lacks payment_id"),
    "a column twice": (b"amount," + HEADER.encode(), "amount more than once"),
    "a header in another encoding": ("payment_id,pätient\n".encode("latin-1"), "encoding"),
    "an open quote over 2 MiB of text": (
        HEADER.encode() + b'a,p1,"1.00\n' + (b"text" * 20 + b"\n") * 30_000,
        "never closed",
    ),
    "packed twice": (gzip.compress(gzip.compress(HEADER.encode())), "packed twice; unpack it once"),
    "another archive": (b"BZh91AY&SY" + bytes(range(60)), "an archive; unpack it"),
    "a database": (b"SQLite format 3\0" + bytes(80), "a database or data file"),
    "a web page": (b"\n<!DOCTYPE html><html><body>Session expired</body></html>\n", "a web page"),
    "XML": (b'<?xml version="1.0"?>\n<rows/>\n', "the file is XML"),
    "HL7": (b"MSH|^~\\&|A|B\rPID|1\r", "the file is an HL7 message"),
    "X12": (b"ISA*00*  ~GS*HP~", "the file is an X12 file"),
    "a NUL in the header": (
        HEADER.replace("amount", "am\0ount").encode(),
        "the header has a NUL character; export the file again as text",
    ),
    "an endless line": (HEADER.encode() + b"x" * (3 << 20), "longer than 2 MiB"),
    "endless columns": (
        HEADER.strip().encode() + b",c" * 100_000 + b"\n",
        "the header has 100,005 columns, more than 100,000; check that it is the right file",
    ),
    "cut gzip": (gzip.compress(HEADER.encode() * 10_000)[:-20], "gzip"),
    "damaged gzip": (b"\x1f\x8b\x08\x00" + b"x" * 40, "gzip"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_file_whose_rows_cannot_be_separated_ends_with_one_sentence(case: str, tmp_path: Path) -> None:
    """FEED-FILE-02."""
    content, fragment = UNREADABLE[case]
    with pytest.raises(UnreadableFile) as error:
        validated(content, tmp_path)
    sentence = str(error.value)
    assert sentence.startswith("payments.csv: ")
    assert fragment in sentence
    assert "\n" not in sentence
    assert not list((tmp_path / "run-1").glob("*"))


def test_the_message_about_a_false_gz_file_says_what_it_really_is(tmp_path: Path) -> None:
    """FEED-FILE-01."""
    for content, fragment in (
        (random.Random(7).randbytes(5_000), "payments.csv.gz, which is not gzip data: the file is binary"),
        (b"no gzip", "payments.csv.gz, which is not gzip data: the header lacks payment_id"),
        (gzip.compress(bytes(5_000)), "the file has zero bytes instead of rows"),
        (gzip.compress(b"PK\x03\x04" + bytes(60)), "the file is a workbook (.xlsx, .ods) or a zip archive"),
    ):
        with pytest.raises(UnreadableFile, match=re.escape(fragment)):
            validated(content, tmp_path, "payments.csv.gz")
    plain = tmp_path / "till"
    plain.write_bytes(b"no gzip")
    assert [each.name for each in contents(plain, "TILL.CSV.GZ").files] == ["TILL.CSV.GZ, which is not gzip data"]


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"", "is empty"),
        (b'{\n"a": 1\n}\n', "over several lines"),
        *(
            (
                array,
                r"the file is a JSON array; set format = .json. in the feed file, or export the rows as NDJSON or CSV$",
            )
            for array in (
                b'[\n{"a": 1}\n]\n',
                b'\xef\xbb\xbf[{"a": 1},\n{"a": 2}]',
                b'[{"a": 1}]',
                b" [ ]\n",
                b'[{"a": "' + b"x" * (3 << 20) + b'"}]',
            )
        ),
    ],
)
def test_a_text_that_is_not_ndjson_ends_with_one_sentence(content: bytes, fragment: str, tmp_path: Path) -> None:
    """FEED-FILE-04."""
    with pytest.raises(UnreadableFile, match=fragment):
        validated(content, tmp_path, "payments.ndjson")


def test_bytes_of_another_encoding_and_a_nul_reject_their_rows_alone(tmp_path: Path) -> None:
    """FEED-FILE-02, FEED-FILE-09."""
    good = b"c,p1,1.00,2024-01-01,\n"
    found = validated(HEADER.encode() + b"a\xe4,p1,1.00,2024-01-01,\nb\0,p1,1.00,2024-01-01,\n" + good, tmp_path)
    assert [row["line"] for row in rows(found, "accepted")] == [4]
    assert [(row["line"], row["stage"], row["record"][:6]) for row in rows(found, "rejects")] == [
        (2, "parse", "a\\udce4"[:6]),
        (3, "parse", "b\0,p1,"),
    ]


def test_a_row_that_a_quote_runs_through_may_have_bytes_of_another_encoding(tmp_path: Path) -> None:
    """FEED-FILE-02, FEED-FILE-09."""
    text = b'a,"call,requested,d1\nb,c\xe4ll,requested,d1\nback",requested,d1\nc,call,requested,d1\n'
    found = validated(b"task_id,description,status,requester_id\n" + text, tmp_path, "tasks.csv")
    assert [row["line"] for row in rows(found, "accepted")] == [5]
    assert [(row["line"], row["lines"], row["stage"]) for row in rows(found, "rejects")] == [(2, 3, "parse")]
    assert "bytes that are not in the file's encoding" in rows(found, "rejects")[0]["reasons"][0]["message"]


@pytest.mark.parametrize("escape", ["\\ud800", "\\uDFFF", "\\ud83d\\ud83d"])
def test_half_of_a_character_rejects_its_row_alone(escape: str, tmp_path: Path) -> None:
    """FEED-FILE-04, FEED-FILE-09."""
    row = '{"payment_id": "%s", "patient_id": "p1", "amount": 1, "paid_on": "2024-01-01"}\n'
    found = validated(row % escape + row % "\\ud83d\\ude00", tmp_path, "payments.ndjson")
    assert [row["key"] for row in rows(found, "accepted")] == ["😀"]
    (reject,) = rows(found, "rejects")
    assert (reject["line"], reject["stage"]) == (1, "parse")
    assert reject["reasons"][0]["message"].startswith("a text has half of a character")


ANSWERS = """kind = "answers"
files = ["*"]
[columns]
response_id = { column = "form", before = "F-" }
patient_id = "who"
questionnaire = "paper"
question = "asked"
answer_text = "said"
"""
BROKEN_ROWS = {
    "a row with more fields": (
        "answers.csv",
        "form,who,paper,asked,said\n1,p1,q,a,yes\n1,p1,q,b,yes, no\n2,p1,q,a,no\n",
    ),
    "a wrong quote": ("answers.csv", 'form,who,paper,asked,said\n1,p1,q,a,yes\n1,p1,q,b,"a" b\n2,p1,q,a,no\n'),
    "a line that is no JSON": (
        "answers.ndjson",
        """{"form": 1, "who": "p1", "paper": "q", "asked": "a", "said": "yes"}
{"form": 1, "who": "p1", "paper": "q", "asked": "b", "said": "no",}
{"form": 2, "who": "p1", "paper": "q", "asked": "a", "said": "no"}
""",
    ),
    "an object with a name twice": (
        "answers.ndjson",
        """{"form": "1", "who": "p1", "paper": "q", "asked": "a", "said": "yes"}
{"form" :"1", "who": "p1", "paper": "q", "asked": "b", "said": "no", "said": "yes"}
{"form": "2", "who": "p1", "paper": "q", "asked": "a", "said": "no"}
""",
    ),
}


@pytest.mark.parametrize("case", BROKEN_ROWS)
def test_no_response_goes_on_without_a_row_that_could_not_be_read(case: str, tmp_path: Path) -> None:
    """FEED-FILE-02, FEED-FILE-04: whatever the key is made of, the whole response of that row is one reject."""
    name, content = BROKEN_ROWS[case]
    found = validated(content, tmp_path, name, ANSWERS)
    rejects = rows(found, "rejects")
    assert [(row["key"], row["lines"], row["stage"]) for row in rejects] == [("F-1", 2, "parse"), ("F-2", 1, "rule")]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_of_every_system_are_taken(end: str, tmp_path: Path) -> None:
    """FEED-FILE-02."""
    text = (HEADER + 'a,p1,1.00,2024-01-01,\n"b",p1,"2.00",2024-01-01,').replace("\n", end)
    found = validated(text, tmp_path)
    assert [(row["line"], row["key"]) for row in rows(found, "accepted")] == [(2, "a"), (3, "b")]


def test_a_gzip_file_reads_like_its_content(tmp_path: Path) -> None:
    """FEED-FILE-01."""
    found = validated(gzip.compress((HEADER + "a,p1,1.00,2024-01-01,\n").encode()), tmp_path, "payments.csv.gz")
    assert (found.records, found.accepted, found.amount_accepted) == (1, 1, 100)


def test_a_header_alone_is_a_file_without_records(tmp_path: Path) -> None:
    """FEED-FILE-02."""
    found = validated(HEADER, tmp_path)
    assert (found.lines, found.header, found.records) == (1, 1, 0)


def test_payments_are_sent_by_date_then_line_across_chunks(tmp_path: Path) -> None:
    """FEED-PAY-04."""
    days = [f"2024-01-{day:02}" for day in range(28, 0, -1)]
    lines = [f"k{number},p1,1.00,{days[number % 28]},\n" for number in range(12_000)]
    found = validated(HEADER + "".join(lines), tmp_path)
    sent = rows(found, "accepted")
    assert [row["position"] for row in sent] == list(range(12_000))
    order = [(row["source_at"], row["line"]) for row in sent]
    assert order == sorted(order)


def test_tasks_are_sent_in_the_order_of_the_file_and_repeats_are_found_across_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FEED-FILE-05, LEDGER-13: alternating rows, whole resources and unreadable lines, with repeated keys."""
    monkeypatch.setattr(grouping, "ROWS", 7)
    row = {"description": "Call", "status": "requested", "requester_id": "d1"}
    resource: dict[str, object] = {"resourceType": "Task", "intent": "unknown", "description": "Call"}
    resource |= {"status": "requested", "requester": {"reference": "Practitioner/d1"}}
    forms = ({"task_id": "r{}", **row}, {"id": "w{}", **resource}, {"task_id": "again", **row})
    wanted = [
        json.dumps(forms[line % 4]).replace("{}", str(line)) if line % 4 < 3 else "{cut" for line in range(1, 101)
    ]
    wanted[98:] = [json.dumps({"task_id": "r4", **row, "status": "completed"})] * 2
    found = validated("\n".join(wanted), tmp_path, "tasks.ndjson")
    accepted, skipped, rejects = (rows(found, name) for name in ("accepted", "skipped", "rejects"))
    lines = [row["line"] for row in accepted]
    assert lines == sorted(lines)
    assert [row["line"] for row in accepted if row["key"] == "again"] == [2]
    assert [(row["line"], row["first_line"]) for row in skipped] == [(line, 2) for line in range(6, 99, 4)]
    assert [row["line"] for row in rejects] == sorted([*range(3, 99, 4), 99, 100, 4])
    assert {reason["rule_id"] for row in rejects[-2:] for reason in row["reasons"]} == {"LEDGER-13"}


def test_the_content_hash_is_that_of_the_record_and_not_of_clock_target_or_file(tmp_path: Path) -> None:
    """LEDGER-12."""
    hashes = []
    texts = {"payments.csv": HEADER + "a,p1,1.50,2024-01-01T01:00:00+01:00,\n"}
    texts["payments.ndjson"] = (
        '{"payment_id": "a", "patient_id": "Patient/p1", "amount": 1.5, "paid_on": "2024-01-01T00:00Z"}\n'
    )
    for number, (name, text) in enumerate(texts.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = validated(text, folder, name, site=Site(f"http://host{number}", "other"))
        hashes.append(rows(found, "accepted")[0]["content_hash"])
    assert len(set(hashes)) == 1


def test_labels_without_a_text_are_no_labels(tmp_path: Path) -> None:
    """FEED-TASK-04, LEDGER-13: in any notation."""
    task: dict[str, object] = {"task_id": "a", "description": "Call", "status": "requested", "requester_id": "d1"}
    tasks = [task, *(task | {"labels": none} for none in ("", [], " ; ", [" "], None))]
    found = validated("".join(json.dumps(each) + "\n" for each in tasks), tmp_path, "tasks.ndjson")
    (accepted,) = rows(found, "accepted")
    assert (accepted["line"], found.skipped) == (1, 5)
    (tmp_path / "2").mkdir()
    found = validated(json.dumps(tasks[2]), tmp_path / "2", "tasks.ndjson")
    (again,) = rows(found, "accepted")
    assert again["content_hash"] == accepted["content_hash"]


@pytest.mark.parametrize(
    ("control", "sentence"),
    [
        ('{"rows": 2, "amount": "3.50"}', None),
        ('{"rows": 3}', "payments.csv.control.json says 3 rows, the file has 2"),
        ('{"amount": "3.49"}', "payments.csv.control.json says a different amount than the rows of the file have"),
        (
            '{"rows": 2, "amuont": "9.99"}',
            "payments.csv.control.json has a total with a wrong name; did you mean amount?",
        ),
        ("[]", 'payments.csv.control.json is not a JSON object of the form {"rows": 1, "amount": "0.00"}'),
    ],
)
def test_control_totals_are_compared(control: str, sentence: str | None, tmp_path: Path) -> None:
    """LEDGER-14."""
    (tmp_path / "payments.csv.control.json").write_text(control)
    found = validated(HEADER + "a,p1,1.00,2024-01-01,\nb,p1,2.50,2024-01-01,\n", tmp_path)
    assert found.control_mismatch == found.stop == sentence


@pytest.mark.parametrize(("limit", "stops"), [("1", False), ("0", True), ("0.5", False), ("0.4", True)])
def test_more_rejects_than_the_feed_allows_stop_the_file(limit: str, stops: bool, tmp_path: Path) -> None:
    """FEED-FILE-08: the sentence says why they were rejected."""
    toml = f"""
name = "till"
kind = "payments"
files = ["*.csv"]
max_rejects = {limit}
[columns]
payment_id = "payment_id"
patient_id = "patient_id"
amount = "amount"
paid_on = "paid_on"
"""
    found = validated(HEADER + "a,p1,1.00,2024-01-01,\nb,p1,x,2024-01-01,\n", tmp_path, toml=toml)
    sentence = "1 of 2 records are rejected, the feed till allows 0; most often for FEED-FILE-09 (1)"
    assert found.stop == (sentence if stops else None)


def test_cents_with_three_digits_behind_their_sign_could_be_a_thousand_times_as_much(tmp_path: Path) -> None:
    """FEED-FILE-09: a scale makes no amount of such a text; amounts that the scale itself makes are unambiguous."""
    toml = """
name = "till"
kind = "payments"
files = ["*.csv"]
[columns]
payment_id = "payment_id"
patient_id = "patient_id"
amount = { column = "amount", scale = 0.01 }
paid_on = "paid_on"
"""
    text = HEADER + "".join(
        f"{n},p1,{cents},2024-01-01,\n" for n, cents in enumerate(("1.500", "1234.0", "500", "1500"))
    )
    found = validated(text, tmp_path, toml=toml)
    assert [row["line"] for row in rows(found, "rejects")] == [2]
    assert [row["amount_cents"] for row in rows(found, "accepted")] == [1234, 500, 1500]


@pytest.mark.parametrize(
    ("amount", "taken"),
    [
        ('"amount"', {"number 12.340": 1234}),
        ('{ column = "amount", scale = 10 }', {"number 12.340": 12_340}),
        ('{ first = ["paid", "amount"] }', {"number 12.340": 1234}),
        ('{ column = "amount", values = { "12.340" = "7" } }', {"number 12.340": 700, "text 12.340": 700}),
        ('{ column = "in words", values = { twelve = "12.340" } }', {}),
    ],
)
def test_a_number_of_json_has_no_thousands_where_a_text_may(amount: str, taken: dict[str, int], tmp_path: Path) -> None:
    """FEED-FILE-09, FEED-PAY-03: nor has one of Parquet. A key keeps all digits, like those of earlier loads."""
    toml = f"""
name = "till"
kind = "payments"
files = ["*.ndjson"]
[columns]
payment_id = {{ join = ["payment_id", "amount"] }}
patient_id = "patient_id"
amount = {amount}
paid_on = "paid_on"
"""
    row = {"patient_id": "p1", "in words": "twelve", "paid_on": "2026-03-01"}
    text = "".join(
        json.dumps({"payment_id": name, "amount": "?", **row}).replace('"?"', number) + "\n"
        for name, number in (("text", '"12.340"'), ("number", "12.340"))
    )
    found = validated(text, tmp_path, "till.ndjson", toml)
    assert {row["key"]: row["amount_cents"] for row in rows(found, "accepted")} == taken


def test_an_amount_is_the_same_content_however_a_number_is_written(tmp_path: Path) -> None:
    """FEED-FILE-09: the record keeps the content hash that it had in earlier versions."""
    text = "".join(
        f'{{"payment_id": "k", "patient_id": "p1", "amount": {number}, "paid_on": "2026-03-01"}}\n'
        for number in ("12.34", "12.340", "12.3400")
    )
    found = validated(text, tmp_path, "payments.ndjson")
    assert [row["line"] for row in rows(found, "accepted")] == [1]
    assert (found.rejected, found.records) == (0, 3)


def test_a_decided_rule_only_warns_towards_a_target_that_is_not_ours(tmp_path: Path) -> None:
    """LEDGER-16."""
    text = HEADER + "a,p1,0,2024-01-01,\n"
    assert validated(text, tmp_path).rejected == 1
    found = validated(text, tmp_path, strict=False)
    assert (found.accepted, dict(found.warnings)) == (1, {"PAY-25": 1})


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("whole", [False, True], ids=["columns", "resource"])
def test_every_accepted_payment_is_in_a_total(whole: bool, strict: bool, tmp_path: Path) -> None:
    """LEDGER-16, PAY-26, PAY-28: what is not in whole cents is a reject towards any target."""
    amounts = ("10.00", "10.005", "0.001", "12345678.905", "1000.0", "1" + "0" * 30)
    if whole:
        body = '{"resourceType": "PaymentNotice", "id": "k%d", "status": "active", "created": "2026-03-01", '
        body += '"request": {"reference": "Patient/p1"}, "payment": {}, "recipient": {}, "amount": {"value": %s}}\n'
        text, name = "".join(body % each for each in enumerate(amounts)), "payments.ndjson"
    else:
        text, name = (
            HEADER + "".join(f"k{at},p1,{each},2026-03-01,\n" for at, each in enumerate(amounts)),
            "payments.csv",
        )
    found = validated(text, tmp_path, name, strict=strict)
    accepted = [row["amount_cents"] for row in rows(found, "accepted")]
    assert len(accepted) == 2
    assert sum(accepted) == found.amount_accepted
    assert len(accepted) + found.rejected == len(amounts)


def test_long_texts_are_in_their_rows_again_once_these_are_sorted(tmp_path: Path) -> None:
    """FEED-FILE-09: during the sort they are kept in another place, for accepted rows and rejects."""
    texts = {f"k{number}": f"{number} " + "é" * (3_000 * (number % 3)) + "." for number in range(40)}
    lines = "".join(f"{name},{text},requested,d1\n" for name, text in reversed(texts.items()))
    long = "x" * 5_000
    content = f"task_id,description,status,requester_id\n{lines}bad,{long},nope,d1\nragged,{long}\n"
    found = validated(content, tmp_path, "tasks.csv")
    assert {row["key"]: json.loads(row["body"])["description"] for row in rows(found, "accepted")} == texts
    assert [(row["line"], long in row["record"]) for row in rows(found, "rejects")] == [(42, True), (43, True)]
    assert not (found.folder / ".spill").exists()
