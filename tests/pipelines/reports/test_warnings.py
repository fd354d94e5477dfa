"""Warnings are published with line, rule and element."""

import duckdb
import pytest

from tests.support.publishing import publish_nothing, publish_only

pytestmark = pytest.mark.publishes

ZERO = "payment_id,patient_id,amount,paid_on\nk1,p1,1.00,2026-03-01\nk2,p1,0.00,2026-03-01\n,p1,0.00,2026-03-01\n"
ASKED = "SELECT line, rule_id, expression FROM import_warning ORDER BY ALL"


@pytest.fixture(autouse=True)
def other_make(target):
    """A target that is no service of ours: decided rules warn."""
    target.additions = False


@pytest.fixture
def few(monkeypatch):
    """The tables that most tests look at, and those that these name."""
    publish_only(monkeypatch, "import_warning")


@pytest.fixture
def published(home):
    def rows(query):
        with duckdb.connect(home / "published" / "reports.duckdb", read_only=True) as connection:
            return connection.execute(query).fetchall()

    return rows


def test_each_warning_is_a_row_with_its_line_rule_and_element(home, target, asked, few, published):
    """PAY-25, CLI-IMPORT-03: a decided rule warns of a row towards a target of another make, rejected ones included."""
    (home / "inbox" / "payments.csv").write_text(ZERO)
    [batch] = asked("import")["batches"]
    assert (batch["counts"]["created"], batch["counts"]["rejected"]) == (2, 1)
    assert batch["warnings"] == {"PAY-25": 2}
    assert published(ASKED) == [
        (3, "PAY-25", "PaymentNotice.amount.value"),
        (4, "PAY-25", "PaymentNotice.amount.value"),
    ]
    assert published("SELECT DISTINCT batch_id, run FROM import_warning") == [(batch["batch_id"], 1)]


def test_a_warning_is_one_row_however_often_its_file_is_imported_and_stays_when_the_source_goes(
    home, asked, chartferry, few, published, tmp_path
):
    """CLI-CMD-16."""
    file = tmp_path / "payments.csv"
    file.write_text(ZERO.replace("\n,p1,0.00,2026-03-01", ""))
    for _ in range(2):
        [batch] = asked("import", file)["batches"]
    assert published("SELECT line, run FROM import_warning") == [(3, 2)]
    assert chartferry("purge", batch["batch_id"])[0] == 0
    assert chartferry("reports")[0] == 0
    assert published("SELECT line, run FROM import_warning") == [(3, 2)]


def test_a_file_without_warnings_leaves_no_file_of_them(home, asked, few, published):
    (home / "inbox" / "payments.csv").write_text(ZERO.replace("0.00", "2.00"))
    asked("import")
    assert not list(home.glob("batches/*/run-*/warnings.parquet*"))
    assert published(ASKED) == []


@pytest.mark.alike
@pytest.mark.parametrize(
    "body",
    [b"PAR1", *(pytest.param(body, marks=pytest.mark.long) for body in (b"", b"\xff" * 80))],
    ids=["cut", "empty", "noise"],
)
@pytest.mark.parametrize("name", ["accepted.parquet", "warnings.parquet", "manifest.json"])
def test_a_damaged_file_of_a_run_keeps_no_table_from_being_published(
    home, asked, chartferry, published, monkeypatch, name, body
):
    """STATE-HOME-07: it tells nothing any more; what the ledger knows is there."""
    (home / "inbox" / "payments.csv").write_text(ZERO)
    (home / "inbox" / "tasks.csv").write_text(
        "task_id,patient_id,description,status,requester_id\nk1,p1,call,requested,a\n"
    )
    with monkeypatch.context() as patch:
        publish_nothing(patch)
        asked("import")
    publish_only(monkeypatch, "import_row", "import_run", "import_warning", "task", "payment")
    damaged = [path for path in home.glob(f"batches/*/run-1/{name}") if path.write_bytes(body) is not None]
    assert damaged
    assert chartferry("reports")[0] == 0
    assert published("SELECT count(*) FROM import_row") == [(3,)]


def test_warnings_of_imports_into_another_target_are_not_published(home, asked, few, published):
    (home / "inbox" / "payments.csv").write_text(ZERO)
    asked("import")
    [manifest] = home.glob("batches/*/run-1/manifest.json")
    manifest.write_text(manifest.read_text().replace('"target": "', '"target": "of-others-'))
    asked("import")
    assert published(ASKED) == []
