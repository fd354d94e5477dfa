"""Laws of exported rejects: reading removes exactly the marks, and an unchanged export changes nothing."""

import csv
import json
import sqlite3
from contextlib import closing

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.corrections.rejects import export_home
from pipelines.feeds.reading.reject_marks import Columns, csv_lead, csv_text, marked_line, unmarked_line
from pipelines.runs.batch import import_file
from pipelines.session.opening import open_session
from pipelines.session.waiting_files import find_files
from tests.pipelines.corrections.test_rejects import built_in
from tests.support.fake_target import FakeTarget, serving
from tests.support.giving_back import HEADER

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


CELL = st.one_of(TEXT, st.sampled_from(['a"b', '"', "two\nlines", "c,d", "", " x ", "東京", "\r\n", "_reject_id", "'"]))


FEED = built_in("payments").file


@given(st.lists(CELL, min_size=1, max_size=5), CELL)
def test_reading_a_marked_csv_row_gives_the_mark_and_the_original_row(cells, said):
    names = [f"c{number}" for number in range(len(cells))]
    columns = Columns(["_reject_id", "_reasons", *names], FEED)
    raw = csv_text(cells, {"delimiter": ",", "quotechar": '"'}) + "\r\n"
    marked = csv_lead(("0123456789abcdef", said), FEED) + raw
    [read] = csv.reader([marked], strict=True)
    assert columns.off(read, marked) == ("0123456789abcdef", read[2:], raw)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)


@given(st.one_of(st.builds(json.dumps, JSON), st.builds(lambda j: json.dumps(j, ensure_ascii=False), JSON), TEXT))
def test_reading_a_marked_json_line_gives_the_mark_and_the_original_line(text):
    marked = marked_line(text, "0123456789abcdef", [{"rule": "R", "message": 'a "b"'}])
    assert json.loads(marked)["_reject_id"] == "0123456789abcdef"
    assert unmarked_line(marked) == ("0123456789abcdef", text.strip() + "\n")
    reordered = json.dumps(dict(reversed(json.loads(marked).items())), ensure_ascii=False)
    answered, own = unmarked_line(reordered)
    assert answered == "0123456789abcdef"
    assert own.strip() == text.strip() or json.loads(own) == json.loads(text)


ROW = st.fixed_dictionaries(
    {
        "payment_id": st.sampled_from(["k1", "k2", "k3", "k4", "", "k 5", "é,ß"]),
        "patient_id": st.sampled_from(["p1", "", "p/2", "東京"]),
        "amount": st.sampled_from(["1.00", "2.50", "1,00", "-1", "", "3.001"]),
        "paid_on": st.sampled_from(["2026-01-01", "yesterday", ""]),
        "claim_id": CELL,
    }
)


@settings(
    max_examples=max(3, settings().max_examples // 7),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=st.lists(ROW, min_size=1, max_size=8), cut=st.integers(0, 4))
def test_rejects_imported_as_they_were_exported_are_the_same_rejects_and_nothing_new(rows, cut, tmp_path_factory):
    """CLI-CMD-04, CLI-CMD-05, LEDGER-01: whatever the rows hold."""
    folder = tmp_path_factory.mktemp("law")
    home, inbox = folder / "home", folder / "home" / "inbox"
    inbox.mkdir(parents=True)
    written = [csv_text(list(row.values())[: 5 - cut if number == 1 else 5], {"delimiter": ",", "quotechar": '"'})
               for number, row in enumerate(rows)]  # fmt: skip
    (inbox / "payments.csv").write_bytes((HEADER + "\n".join(written)).encode())
    with serving(FakeTarget()) as target:
        target.valid_tokens.add("fixed")
        target.refuse = lambda body: body["amount"]["value"] == 2.5
        environ = {"FHIR_BASE_URL": target.url, "FHIR_TOKEN": "fixed"}
        bring_in(home, environ)
        first = rejects_of(home)
        stored = set(target.stored)
        for turn in range(1, 3):
            exported = export_home(home, environ, (), out=folder / f"out-{turn}")
            assert exported.left == []
            for path in exported.files:
                (inbox / "whatever").write_bytes(path.read_bytes())
                bring_in(home, environ)
            assert rejects_of(home) == {name: (state, tries + turn) for name, (state, tries) in first.items()}
            assert set(target.stored) == stored


def bring_in(home, environ):
    with open_session(home, environ) as session:
        files, unmatched = find_files([home / "inbox"], session.catalog, session.ledger)
        assert unmatched == []
        for waiting in files:
            assert import_file(session, waiting).state == "finished"


def rejects_of(home):
    with closing(sqlite3.connect(home / "ledger.db")) as ledger, ledger:
        rows = ledger.execute("SELECT reject_id, state, attempts FROM reject").fetchall()
    return {name: (state, attempts) for name, state, attempts in rows}
