"""Two files of one delivery: joined by a key, what has no partner said, and nothing guessed where keys are doubled."""

import json

import pytest

from pipelines.cli import run
from pipelines.feeds.files.catalog import FeedError, load_feed
from pipelines.feeds.reading import joined
from pipelines.home.batch import UnreadableFile
from tests.support.archives import zipped
from tests.support.exports import QUESTIONS
from tests.support.giving_back import one
from tests.support.validating import rejected, rows, validated

TRACKER = """
kind = "tasks"
files = ["items*", "tracker*.zip"]
one_row_per = "comment"
{more}
[join.comments]
files = "comments*"
on = { "id" = "item" }
one_row_per = "comments"
[columns]
task_id = "id"
description = "title"
status = { constant = "requested" }
requester_id = { constant = "d1" }
comment = "comments.body"
comment_author_id = { column = "comments.author", before = "dr-" }
"""
ITEMS = "id,title\n1,call back\n2,write\n3,wait\n"
COMMENTS = 'item,body,author\n1,"rang, twice",a\n3,so be it,b\n1,done,a\n'
TILL = """
kind = "payments"
files = ["till*"]
[join.people]
files = ["people*"]
on = { "who" = "number" }
[columns]
payment_id = "receipt"
patient_id = "people.id"
amount = "amount"
paid_on = "day"
"""
PAYMENTS = "receipt,who,amount,day\na,7,1.00,2026-03-01\nb,7,2.00,2026-03-01\nc,9,5.00,2026-03-01\n"
TWICE_THERE = (
    "t.zip: people.csv has the same number on lines 2 and 4; if each row of this file should become a row, set"
    ' one_row_per = "people" in the join'
)
TWICE_HERE = (
    "t.zip: items.csv has the same id on lines 2 and 5; with one_row_per in the join, each row of this file needs its"
    " own"
)
PEOPLE = "number,id\n7,p1\n8,p2\n"


def read(files, folder, feed=TRACKER, more="", name="tracker.zip"):
    return validated(zipped(files), folder, name, feed.replace("{more}", more))


def notes(found):
    return {
        row["key"]: [note["text"] for note in json.loads(row["body"]).get("note", [])]
        for row in rows(found, "accepted")
    }


def test_comments_beside_items_are_the_comments_of_their_tasks(tmp_path):
    """FEED-FILE-01: every line of both files is counted once."""
    found = read({"items.csv": ITEMS, "comments.csv": COMMENTS}, tmp_path)
    assert notes(found) == {"1": ["rang, twice", "done"], "2": [], "3": ["so be it"]}
    assert (found.lines, found.header, found.records, found.accepted) == (8, 2, 3, 3)
    assert found.unnamed_columns == []
    assert [each.message for each in found.noticed] == ["1 row of items.csv has no partner in comments.csv"]


def test_a_second_table_in_either_file_is_rejected_and_a_repeated_header_named(tmp_path):
    """LEDGER-25, FEED-FILE-01."""
    head, items = COMMENTS.splitlines(keepends=True)[0], ITEMS.splitlines(keepends=True)[0]
    found = read({"items.csv": ITEMS + items, "comments.csv": COMMENTS + "Deleted\n" + head + "2,not so,b\n"}, tmp_path)
    assert notes(found)["1"] == ["rang, twice", "done"]
    assert "2" not in notes(found)
    assert "line 5 is a title with the header again below it" in str(rejected(found))
    assert found.warnings["LEDGER-25"] == 2
    (tmp_path / "next").mkdir()
    found = read(
        {"items.csv": ITEMS + "Deleted\n" + items + "4,no more\n", "comments.csv": COMMENTS}, tmp_path / "next"
    )
    assert "4" not in notes(found)
    assert "is a title with the header again below it" in str(rejected(found))


@pytest.mark.alike
@pytest.mark.parametrize("is_second", [False, True])
def test_a_row_of_a_second_table_keeps_its_partner_and_can_be_put_in_again(is_second, home, target, practice):
    """LEDGER-25, CLI-CMD-05: the reject is as it was read, with the columns of both files."""
    (home / "feeds").mkdir()
    (home / "feeds" / "tracker.toml").write_text(TRACKER.replace("{more}", ""))
    items, comments = ITEMS, COMMENTS
    if is_second:
        comments += f"Branch North\n{COMMENTS.splitlines()[0]}\n2,later,b\n"
    else:
        items = items.replace("3,wait\n", f"Branch North\n{ITEMS.splitlines()[0]}\n3,wait\n")
    code, found = practice.take(zipped({"items.csv": items, "comments.csv": comments}), "tracker.zip")
    assert (code, found["batches"][0]["counts"]["created"]) == (3, 2)
    ending = ",2,write,2,later,b" if is_second else ",3,wait,3,so be it,b"
    header, *rejects = one(practice.export()).splitlines()
    [row] = [each for each in rejects if each.endswith(ending)]
    assert practice.take(f"{header}\n{row}\n", "again.csv")[0] == 0
    assert sorted(body["description"] for body in target.of("Task")) == ["call back", "wait", "write"]


def test_objects_are_joined_as_tables_are(tmp_path):
    """FEED-FILE-04"""
    items = "".join(json.dumps({"id": n, "title": "x"}) + "\n" for n in (1, 2))
    comments = json.dumps([{"item": 2, "body": "é", "author": "a"}, {"item": "2", "body": "b", "author": "a"}])
    found = read({"items.ndjson": items, "comments.json": comments}, tmp_path)
    assert notes(found) == {"1": [], "2": ["é", "b"]}


def test_a_row_that_is_lost_without_its_partner_is_rejected_and_can_be_put_in_again(home, target, practice):
    """CLI-CMD-04, CLI-CMD-05, JOIN-PARTNERS"""
    (home / "feeds").mkdir()
    (home / "feeds" / "tracker.toml").write_text(TRACKER.replace("{more}", ""))
    files = {"items.csv": ITEMS, "comments.csv": COMMENTS + "4,lost,a\n"}
    code, found = practice.take(zipped(files), "tracker.zip")
    assert (code, found["batches"][0]["counts"]["rejected"]) == (3, 1)
    assert found["batches"][0]["warnings"] == {"JOIN-PARTNERS": 2}
    exported = one(practice.export())
    header, row = exported.splitlines()
    assert header == "_reject_id,_reasons,id,title,comments.item,comments.body,comments.author"
    assert "comments.csv, line 5: no row of items.csv has this id" in row
    assert practice.take(exported.replace(",,,4,lost", ",4,new,4,lost"), "corrected.csv")[0] == 0
    assert sorted(body["description"] for body in target.of("Task")) == ["call back", "new", "wait", "write"]


def test_a_table_of_people_beside_payments_gives_each_its_patient(tmp_path):
    """A person without a payment is nobody's loss; a payment without its person is."""
    found = read({"till.csv": PAYMENTS, "people.csv": PEOPLE}, tmp_path, TILL, name="till.zip")
    assert [row["key"] for row in rows(found, "accepted")] == ["a", "b"]
    assert [said for *_, said in rejected(found)] == ["till.csv, line 4: the column is required and empty here"]
    assert (found.lines, found.header, found.not_taken) == (7, 2, 1)
    assert sorted(each.message for each in found.noticed) == [
        "1 row of people.csv has no partner in till.csv",
        "1 row of till.csv has no partner in people.csv",
    ]


@pytest.mark.parametrize(
    ("files", "feed", "said"),
    [
        (
            {"till.csv": PAYMENTS, "people.csv": PEOPLE + "7,p3\n"},
            TILL,
            TWICE_THERE,
        ),
        (
            {"items.csv": ITEMS + "1,again\n", "comments.csv": COMMENTS},
            TRACKER,
            TWICE_HERE,
        ),
        (
            {"items.csv": ITEMS, "notes.csv": COMMENTS},
            TRACKER,
            "t.zip: there is no comments* in it, which the feed joins; put both files into one zip archive",
        ),
        (
            {"items.csv": ITEMS, "comments.csv": "it,body,author\n"},
            TRACKER,
            "t.zip: comments.csv has no column item, by which the feed joins it; it has it, body, author",
        ),
        (
            {"items.csv": ITEMS, "comments.ndjson": '{"item": 1}\n'},
            TRACKER,
            (
                "t.zip: one of the two joined files is a table, and the other holds objects;"
                " export both as tables or both as objects"
            ),
        ),
    ],
)
def test_files_that_cannot_be_joined_are_reported_in_one_sentence(files, feed, said, tmp_path):
    with pytest.raises(UnreadableFile) as error:
        read(files, tmp_path, feed, name="t.zip")
    assert str(error.value) == said


def test_a_file_without_its_partner_says_so(tmp_path):
    with pytest.raises(
        UnreadableFile, match=r"^items\.csv: there is no comments\* in it, which the feed joins; put both files"
    ):
        validated(ITEMS, tmp_path, "items.csv", TRACKER.replace("{more}", ""))


def test_a_second_file_beyond_the_bound_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(joined, "MOST_HELD", 10)
    with pytest.raises(UnreadableFile, match=r"comments\.csv is too large to be the second file of a join"):
        read({"items.csv": ITEMS, "comments.csv": COMMENTS}, tmp_path)


def test_the_second_file_may_be_written_otherwise(tmp_path):
    feed = TRACKER.replace("[columns]", 'delimiter = ";"\nencoding = "cp1252"\n[columns]').replace("{more}", "")
    content = zipped({"items.csv": ITEMS, "comments.csv": "item;body;author\n2;für;a\n".encode("cp1252")})
    assert notes(validated(content, tmp_path, "tracker.zip", feed))["2"] == ["für"]


def test_a_row_that_cannot_be_read_takes_its_task_with_it(tmp_path):
    """A task without one of its comments would not be whole."""
    found = read({"items.csv": ITEMS, "comments.csv": COMMENTS + "2,too,many,fields\n"}, tmp_path)
    assert sorted(notes(found)) == ["1", "3"]
    assert len(rejected(found)) == 1


def test_an_author_without_an_entry_is_one_reason_and_hides_none_of_another_row(tmp_path):
    """FEED-FILE-06, COMMON-38: the note lacks its author for that reason."""
    (tmp_path / "staff.csv").write_text("name,id\nb,d2\n")
    walk = 'crosswalk = { file = "staff.csv", from = "name", to = "id" }'
    feed = TRACKER.replace('before = "dr-"', walk)
    files = {"items.csv": ITEMS, "comments.csv": COMMENTS + "1,no author,\n"}
    (found,) = rows(read(files, tmp_path, feed), "rejects")
    assert [(each["rule_id"], each["message"].split(":")[0], each["column"]) for each in found["reasons"]] == [
        ("FEED-FILE-06", "comments.csv, line 2", "comments.author"),
        ("FEED-FILE-06", "comments.csv, line 4", "comments.author"),
        ("COMMON-38", "comments.csv, line 5", "comments.author"),
    ]


def test_a_sample_names_the_file_of_a_line(tmp_path, capsys):
    """FEED-FILE-08."""
    (tmp_path / "t.toml").write_text(TRACKER.replace("{more}", ""))
    (tmp_path / "tracker.zip").write_bytes(zipped({"items.csv": ITEMS, "comments.csv": COMMENTS}))
    assert run(["feeds", "check", str(tmp_path / "t.toml"), "--sample", str(tmp_path / "tracker.zip")]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if line.endswith(": taken")]
    assert shown[0] == "tracker.zip: comments.csv, line 2: taken"
    assert "tracker.zip: items.csv, line 3: taken" in shown


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (('one_row_per = "comments"', 'one_row_per = "items"'), "join.comments.one_row_per: must be 'comments'"),
        (("{more}", 'format = "xlsx"'), "join: only allowed with CSV, NDJSON or JSON"),
    ],
)
def test_an_impossible_join_is_named(changed, said, tmp_path):
    (tmp_path / "t.toml").write_text(TRACKER.replace(*changed).replace("{more}", ""))
    with pytest.raises(FeedError, match=said):
        load_feed(tmp_path / "t.toml")


PER_ROW = """
kind = "{kind}"
files = ["{first}*", "{packed}*.zip"]
[join.{second}]
files = "{second}*"
on = { {on} }
one_row_per = "{second}"
[columns]
"""


def per_row_of(second, columns, **more):
    """A feed with a record for each row of the second file."""
    made = PER_ROW
    for name, value in {"second": second, **more}.items():
        made = made.replace(f"{{{name}}}", value)
    return made + columns


RESPONSES = """
response_id = "response"
patient_id = "patient"
questionnaire = { constant = "q1" }
question = "answers.question"
answer_text = "answers.text"
"""
SURVEY = per_row_of("answers", RESPONSES, kind="answers", first="responses", packed="survey", on='"response" = "of"')


def test_answers_beside_responses_are_the_answers_of_each(home, target, asked):
    """FEED-FILE-01: an answer whose response is not there is a reject."""
    target.stored["q1"] = QUESTIONS
    (home / "feeds").mkdir(exist_ok=True)
    (home / "feeds/survey.toml").write_text(SURVEY)
    files = {
        "responses.csv": "response,patient\nr1,p1\nr2,p2\n",
        "answers.csv": "of,question,text\nr2,1,so so\nr1,1,fine\nr9,1,lost\n",
    }
    (home / "inbox/survey-march.zip").write_bytes(zipped(files))
    totals = asked("import")["totals"]
    assert (totals["created"], totals["rejected"]) == (2, 1)
    said = {
        body["subject"]["reference"]: body["item"][0]["answer"][0]["valueString"]
        for body in target.of("QuestionnaireResponse")
    }
    assert said == {"Patient/p1": "fine", "Patient/p2": "so so"}


OF_PROJECTS = """
task_id = "tasks.task"
description = "tasks.what"
status = { constant = "requested" }
requester_id = { constant = "d1" }
"""
TASKS = per_row_of("tasks", OF_PROJECTS, kind="tasks", first="projects", packed="tracker", on='"id" = "project"')


@pytest.mark.parametrize("repeat", ["call", "write"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_key_that_comes_twice_is_found_though_the_lines_of_joined_rows_are_in_no_order(repeat, order, tmp_path):
    """LEDGER-13: rows come in the order of the first file, with the lines of the second."""
    projects = ["p1", "p2", "p3"]
    tasks = ["t0,p3,call", f"t1,p2,{repeat}", "t1,p1,call"]
    files = {
        "projects.csv": "\n".join(["id", *projects[::order]]),
        "tasks.csv": "\n".join(["task,project,what", *tasks]),
    }
    found = validated(zipped(files), tmp_path, "tracker.zip", TASKS)
    accepted = {row["key"]: row["line"] for row in rows(found, "accepted")}
    told = [message for _, _, message in rejected(found)]
    if repeat == "call":
        assert accepted == {"t0": 2, "t1": 3}
        assert [(row["line"], row["first_line"]) for row in rows(found, "skipped")] == [(4, 3)]
    else:
        assert accepted == {"t0": 2}
        assert [message for message in told if "first on tasks.csv, line 3," in message] == told != []
        assert len(told) == 2
