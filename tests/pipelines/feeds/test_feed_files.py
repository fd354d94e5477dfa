"""Feed files: how they match files, what in them is wrong, and what their hash tells."""

from pathlib import Path

import pytest

from pipelines.feeds.files.catalog import FeedError, load_feed, load_feeds
from pipelines.feeds.files.describe import describe, describe_taken

DOCS = Path(__file__).parents[3] / "docs" / "examples"
MINIMAL = """
name = "till"
kind = "payments"
files = ["till*.csv"]
[columns]
payment_id = "ID"
patient_id = "PATIENT"
amount = "AMOUNT"
paid_on = "DATE"
"""


def written(folder: Path, text: str, name: str = "till.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_folder_that_cannot_be_read_is_an_error_and_one_that_is_not_there_has_no_feeds(tmp_path: Path) -> None:
    """FEED-FILE-08: which exports its feeds take is not known."""
    assert load_feeds([tmp_path / "none"]).feeds == load_feeds().feeds
    (tmp_path / "feeds").write_text("no folder")
    with pytest.raises(FeedError, match=r"/feeds: cannot be read: Not a directory$"):
        load_feeds([tmp_path / "feeds"])


@pytest.mark.parametrize(
    ("file_name", "feed"),
    [
        ("payments.csv", "payments"),
        ("payments-2024-05.ndjson.gz", "payments"),
        ("answers_may.csv.gz", "answers"),
        ("tasks.ndjson", "tasks"),
        ("payments.xlsx", None),
        ("old-payments.csv", None),
        ("payments.csv.control.json", None),
    ],
)
def test_the_built_in_feeds_take_files_by_name(file_name: str, feed: str | None) -> None:
    """FEED-FILE-01."""
    found = load_feeds().match(file_name)
    assert (found and found.name) == feed


def test_built_in_feeds_are_read_once_in_a_process_and_those_of_a_user_each_time(tmp_path: Path) -> None:
    """Each look of a sensor asks for all of them."""
    path = written(tmp_path, MINIMAL)
    before = load_feeds([tmp_path])
    path.write_text(MINIMAL.replace("AMOUNT", "PAID"))
    after = load_feeds([tmp_path])
    for name in ("payments", "answers", "tasks"):
        assert after.named(name) is before.named(name)
    assert [feed.hash for feed in after.feeds[:1]] != [feed.hash for feed in before.feeds[:1]]


def test_a_feed_of_the_user_wins_over_a_built_in_one(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    written(tmp_path, MINIMAL.replace("till*.csv", "payments*.csv"))
    found = load_feeds([tmp_path]).match("payments.csv")
    assert found
    assert (found.name, found.source, found.resource) == ("till", "till", "PaymentNotice")


def test_two_feeds_that_take_one_file_are_an_error_that_names_both(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    written(tmp_path, MINIMAL)
    written(tmp_path, MINIMAL.replace('"till"', '"till2"'), "till2.toml")
    with pytest.raises(FeedError, match=r"^till\.toml and till2\.toml: files: both take till-1\.csv; change one"):
        load_feeds([tmp_path]).match("till-1.csv")


def test_two_feed_names_that_are_equal_to_dagster_are_an_error_that_names_both(tmp_path: Path) -> None:
    """FEED-FILE-08: no page of Dagster would open with them."""
    written(tmp_path, MINIMAL.replace('"till"', '"till-2"').replace("till*", "a*"), "a.toml")
    written(tmp_path, MINIMAL.replace('"till"', '"till_2"').replace("till*", "b*"), "b.toml")
    with pytest.raises(FeedError, match=r"^b\.toml: name: till_2 and till-2 of a\.toml differ only in"):
        load_feeds([tmp_path])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[columns]", "[columns"), "till.toml: the file is not valid TOML"),
        (('kind = "payments"', 'kind = "money"'), "till.toml: kind: "),
        (('files = ["till*.csv"]', ""), "till.toml: files: required, but missing"),
        (
            ('files = ["till*.csv"]', 'files = ["t"]\ncolour = "red"'),
            "till.toml: colour: unknown key; possible here: name, source, kind, files, ",
        ),
        (('amount = "AMOUNT"', ""), "till.toml: columns.amount: required for payments"),
        (
            ('amount = "AMOUNT"', 'amount = "AMOUNT"\nprice = "P"'),
            "till.toml: columns.price: payments have no",
        ),
        (('"AMOUNT"', "{ scale = 0.01 }"), "till.toml: columns.amount: needs exactly one of column"),
        (
            ('"AMOUNT"', '{ column = "A", when = { B = 1 } }'),
            "till.toml: columns.amount.when.B: must be a text, a list",
        ),
        (('"AMOUNT"', '{ column = "A", first = ["B"] }'), "till.toml: columns.amount: needs exactly one of column"),
        (
            ('"AMOUNT"', '{ column = "A", otherwise = "x" }'),
            "till.toml: columns.amount: otherwise is only allowed with",
        ),
        (("[columns]", 'timezone = "Mars/Olympus"\n[columns]'), "till.toml: timezone: not a time zone"),
        (("[columns]", 'encoding = "utf-9"\n[columns]'), "till.toml: encoding: not an encoding"),
        (
            ("[columns]", 'changed = "update"\n[columns]'),
            "till.toml: the file: changed: for payments it must",
        ),
        (
            ("[columns]", 'notes = "patient-day"\n[columns]'),
            "till.toml: the file: notes: only for kind = 'answers'",
        ),
        (("[columns]", 'notes = "day"\n[columns]'), "till.toml: notes: "),
        (
            ("[columns]", 'format = "ndjson"\n[take]\n"a..b" = "x"\n[columns]'),
            "till.toml: take.a..b: a..b is not a path",
        ),
        (
            ('"PATIENT"', '{ column = "P", crosswalk = { file = "none.csv", from = "a", to = "b" } }'),
            "till.toml: crosswalk none.csv: cannot be read: No such file",
        ),
    ],
)
def test_a_mistake_in_a_feed_file_is_named_by_file_and_key(
    change: tuple[str, str], message: str, tmp_path: Path
) -> None:
    """FEED-FILE-08."""
    assert change[0] in MINIMAL
    with pytest.raises(FeedError) as error:
        load_feed(written(tmp_path, MINIMAL.replace(*change)))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_crosswalk_that_translates_a_value_in_two_ways_is_an_error(tmp_path: Path) -> None:
    """FEED-FILE-06."""
    (tmp_path / "w.csv").write_text("a,b\n1,p1\n1,p2\n")
    text = MINIMAL.replace('"PATIENT"', '{ column = "P", crosswalk = { file = "w.csv", from = "a", to = "b" } }')
    with pytest.raises(
        FeedError,
        match=r"^till\.toml: crosswalk w\.csv: line 3: the value has another translation on an earlier line; "
        r"keep one of them \(line 7\)$",
    ):
        load_feed(written(tmp_path, text))


def test_the_hash_of_a_feed_changes_only_with_what_a_row_becomes(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    (tmp_path / "w.csv").write_text("a,b\n1,p1\n")
    walked = MINIMAL.replace('"PATIENT"', '{ column = "P", crosswalk = { file = "w.csv", from = "a", to = "b" } }')
    before = load_feed(written(tmp_path, walked)).hash
    assert load_feed(written(tmp_path, "# a remark\n" + walked)).hash == before
    assert load_feed(written(tmp_path, walked.replace("AMOUNT", "SUM"))).hash != before
    (tmp_path / "w.csv").write_text("a,b\n1,p2\n")
    assert load_feed(written(tmp_path, walked)).hash != before


def test_the_feed_files_of_the_documentation_are_sound() -> None:
    """FEED-FILE-08."""
    assert {feed.name for feed in load_feeds([DOCS]).feeds} >= {"billing", "screening", "orders", "payments"}


def test_a_feed_is_described_in_words() -> None:
    """FEED-FILE-08."""
    feed = load_feed(DOCS / "claims_transactions.toml")
    assert describe_taken(feed) == "TYPE is PAYMENT"
    assert list(describe(feed))[-1] == (
        "claim_id",
        "PaymentNotice.extension",
        "CLAIMID, only when METHOD is COPAY",
    )


def test_a_feed_file_that_cannot_be_used_stops_every_import_before_a_file_is_touched(chartferry, home, target) -> None:
    """FEED-FILE-08: the built-in feed does not take what may be another's."""
    (home / "feeds").mkdir()
    (home / "feeds" / "till.toml").write_text("files = [")
    export = home / "inbox" / "payments.csv"
    export.write_text("payment_id,patient_id,amount,paid_on\na,p1,1.00,2024-05-01\n")
    code, _, err = chartferry("import")
    assert code == 4
    assert "chartferry: till.toml: the file is not valid TOML: " in err
    assert export.exists()
    assert not target.of("PaymentNotice")
