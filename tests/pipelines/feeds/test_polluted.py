"""Polluted exports: each record is right or rejected with its line, or the file is refused. No misreading is silent."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.feeds.drafting.draft import draft
from pipelines.feeds.files.catalog import Feed, FeedError, load_feed
from pipelines.home.batch import UnreadableFile
from tests.support.polluted import WAYS, corpus
from tests.support.polluted_tables import FEED, Polluted
from tests.support.validating import rows, validated

SEEDS = 11
NOW = datetime(2024, 6, 1, tzinfo=UTC)
RIGHT, REJECTED, REFUSED, ASKED = "right", "rejected with its line", "refused", "asked in the draft"
WARNED = "taken, and its line named in a warning"


def outcome(polluted: Polluted, feed: Feed, folder: Path) -> tuple[str, str]:
    """The end of an export, and the sentence of a refusal; `misread: ...` where something is wrong unsaid."""
    try:
        found = validated(polluted.content, folder, "till.csv", feed, processes=1)
    except UnreadableFile as error:
        return REFUSED, str(error)
    rejects = rows(found, "rejects")
    warned = pq.read_table(found.folder / "warnings.parquet")["line"].to_pylist() if found.warnings else []
    said = [(row["line"], row["line"] + row["lines"] - 1) for row in rejects]
    accepted = {row["key"]: row for row in rows(found, "accepted")}
    for key, row in accepted.items():
        if (wrong := _misread(key, row, polluted)) and row["line"] in warned:
            return WARNED, ""
        if wrong:
            return f"misread: {wrong}", ""
    for key, paid in polluted.truth.items():
        if key not in accepted and not any(first <= paid.lines[1] and paid.lines[0] <= last for first, last in said):
            return f"misread: {key} is lost", ""
    return (REJECTED if rejects else RIGHT), "; ".join(row["reasons"][0]["message"] for row in rejects)


def _misread(key: str, row: dict[str, object], polluted: Polluted) -> str:
    """Return in what an accepted record differs from the export."""
    paid = polluted.truth.get(key)
    if paid is None:
        return "a record that is none"
    body = json.loads(str(row["body"]))
    found = (body["request"]["reference"].rpartition("/")[2], row["amount_cents"], str(row["source_at"])[:10])
    return "" if found == (paid.patient, paid.cents, paid.day) else "other values"


def plain_feed(folder: Path, polluted: Polluted) -> Feed:
    (folder / "till.toml").write_text(polluted.keys + FEED)
    return load_feed(folder / "till.toml")


def drafted(polluted: Polluted, folder: Path) -> tuple[str, str]:
    """Return the result of an export by its own draft. A wrong guess that the draft asks about is no misreading."""
    path = folder / "till.csv"
    path.write_bytes(polluted.content)
    try:
        text = draft(path)
        (folder / "draft.toml").write_text(text)
        feed = load_feed(folder / "draft.toml")
    except UnreadableFile as error:
        return REFUSED, str(error)
    except FeedError as error:
        return ASKED, str(error)
    found, said = outcome(polluted, feed, folder)
    ways = ("encoding", "delimiter", "header", "dates", "decimal", "thousands", "amount", "# DECIDE")
    asked = any(line.startswith(ways) and "DECIDE" in line for line in text.splitlines())
    return (ASKED, said) if found.startswith("misread") and asked else (found, said)


@pytest.mark.parametrize(("seeds", "every"), [(1, 6), pytest.param(SEEDS, 1, marks=pytest.mark.long)])
def test_no_polluted_export_is_misread_unsaid(seeds: int, every: int, tmp_path: Path) -> None:
    """FEED-FILE-02, FEED-FILE-08, FEED-FILE-09: by a plain feed and by the export's own draft."""
    table, wrong = tabled(seeds, tmp_path, every)
    assert wrong == []
    assert table["plain", RIGHT]
    assert table["draft", RIGHT] * every > table["plain", RIGHT]


def tabled(seeds: int, folder: Path, every: int = 1) -> tuple[Counter[tuple[str, str]], list[str]]:
    """How exports end, by feed; and those that are misread, or refused without the key that mends them.

    every: of the exports, how many there are to one that is read by its own draft too.
    """
    counts: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    for number, polluted in enumerate(corpus(seeds)):
        inner = folder / str(number)
        inner.mkdir()
        found, said = outcome(polluted, plain_feed(inner, polluted), inner)
        unnamed = polluted.mends and found in (REFUSED, REJECTED) and polluted.mends not in said
        if found.startswith("misread") or unnamed:
            wrong.append(f"{polluted.kind}: {found} {said if unnamed else ''}")
        counts["plain", found] += 1
        if number % every:
            continue
        (inner / "d").mkdir()
        found, _ = drafted(polluted, inner / "d")
        if found.startswith("misread"):
            wrong.append(f"{polluted.kind}, by its draft: {found}")
        counts["draft", found] += 1
    return counts, wrong


def test_the_ways_are_so_many_that_the_whole_has_500_exports() -> None:
    """FEED-FILE-02."""
    assert len(WAYS) * SEEDS >= 500
