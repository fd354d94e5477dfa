"""A file that comes again is not read and checked a second time, if all that decides what it comes to is the same."""

import errno
import inspect
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from fhir_service.interface.site import Site
from pipelines.dagster import metadata
from pipelines.feeds.files.catalog import BUILTIN, Feed, FeedError, load_feed
from pipelines.home.batch import CONTROL, ReceivedFile, UnreadableFile
from pipelines.home.exits import SET_ASIDE
from pipelines.home.files import sha256_of
from pipelines.session.questionnaires import Snapshot
from pipelines.validation import earlier
from pipelines.validation.checking import check_records
from pipelines.validation.mapping import map_file
from pipelines.validation.outcome import ValidationResult, read_from, told_as
from pipelines.validation.stage import validate
from tests.support.exports import payments
from tests.support.golden import CASES, GOLDEN, NOW, SITE, databases, file_and_feed, questionnaires

TABLES = ("accepted", "rejects", "skipped", "warnings")
EDITS = "file feed crosswalk questionnaires control strict site words known_as name program nothing".split()
DECIDE = {"received", "feed", "snapshot", "site", "strict", "known_as", "words", "before", "people", "only"}
READS = "pipelines.validation.stage.map_file"
DO_NOT = {"folder", "progress", "processes"}


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier, "LARGE", 0)
    monkeypatch.setattr(earlier, "program_hash", lambda _: "this program")


@dataclass
class World:
    """Everything that decides the result of a file. seen: how many files were read."""

    folder: Path
    given: dict[str, Any]
    snapshot: Snapshot = field(default_factory=questionnaires)
    name: str = ""
    times: int = 0
    seen: int = 0

    @classmethod
    def of(cls, case: str, tmp_path: Path) -> "World":
        """The world of a golden folder, its feed in a file of its own."""
        folder = Path(shutil.copytree(GOLDEN / case / "input", tmp_path / "input"))
        file, feed = file_and_feed(folder)
        if feed.builtin:
            shutil.copyfile(BUILTIN / f"{feed.name}.toml", folder / f"{feed.name}.toml")
        return cls(folder, {"site": SITE, "strict": True, "words": {}, "known_as": {}}, name=file.name)

    @property
    def file(self) -> Path:
        return next(path for path in self.folder.iterdir() if path.name == self.name)

    @property
    def feed(self) -> Feed:
        return load_feed(next(self.folder.glob("*.toml")))

    def run(self, folder: Path, **more: Any) -> ValidationResult:
        """A run over the file, which comes later than at the last time."""
        self.times += 1
        (asked := folder.parent / f"databases-{self.times}").mkdir(parents=True)
        at, size = NOW + timedelta(hours=self.times), self.file.stat().st_size
        received = ReceivedFile("batch-0", sha256_of(self.file), self.file, self.name, size, at)
        feed = self.feed

        def reads(*given: Any) -> Any:
            self.seen += 1
            return map_file(*given)

        with patch.dict(os.environ, databases(self.folder, asked)), patch(READS, reads):
            return validate(received, feed, self.snapshot, folder=folder, **self.given, **more)

    def edit(self, what: str, chance: Random) -> None:
        getattr(self, f"_edit_{what}")(chance)

    def _edit_nothing(self, _: Random) -> None:
        pass

    def _edit_file(self, chance: Random) -> None:
        lines = self.file.read_bytes().splitlines(keepends=True)
        place, other = (chance.randrange(len(lines)) for _ in "12")
        match chance.randrange(4):
            case 0:
                lines.pop(place)
            case 1:
                lines.insert(place, lines[other])
            case 2:
                lines[place], lines[other] = lines[other], lines[place]
            case _:
                lines[place] = lines[place].replace(b"1", b"2", 1)
        self.file.write_bytes(b"".join(lines))

    def _edit_feed(self, chance: Random) -> None:
        path = next(self.folder.glob("*.toml"))
        text = path.read_text()
        if chance.random() < 0.5:
            self._put_in_another_order(path, text, chance)
            return
        name, value = chance.choice([("timezone", '"Asia/Tokyo"'), ("max_rejects", "1"), ("source", '"other"')])
        kept = [line for line in text.splitlines() if not line.startswith(f"{name} ")]
        path.write_text("\n".join([f"{name} = {value}", *kept]))

    def _put_in_another_order(self, path: Path, text: str, chance: Random) -> None:
        """The lines of one table, where they are a feed still."""
        parts = re.split(r"(?m)^(?=\[)", text)
        place = chance.randrange(len(parts))
        heading, *lines = parts[place].rstrip("\n").split("\n")
        chance.shuffle(lines)
        parts[place] = "\n".join([heading, *lines, ""])
        path.write_text("".join(parts))
        try:
            load_feed(path)
        except FeedError:  # a line went on in the next one
            path.write_text(text)

    def _edit_crosswalk(self, chance: Random) -> None:
        others = sorted({*self.folder.iterdir()} - {self.file, *self.folder.glob("*.toml"), self._control})
        for path in others:
            path.write_bytes(path.read_bytes().replace(b"p1" if chance.random() < 0.5 else b"p2", b"p7"))

    def _edit_questionnaires(self, chance: Random) -> None:
        known = dict(self.snapshot.questionnaires)
        if len(known) > 1:
            known.pop(chance.choice(sorted(known)))
        canonicals = {name: f"http://forms.test/{chance.randrange(3)}" for name in known}
        self.snapshot = Snapshot(known, canonicals)

    @property
    def _control(self) -> Path:
        return self.file.with_name(self.name + CONTROL)

    def _edit_control(self, chance: Random) -> None:
        self._control.write_text(json.dumps({"rows": chance.randrange(9), "amount": "12.30"}))

    def _edit_strict(self, _: Random) -> None:
        self.given["strict"] = not self.given["strict"]

    def _edit_site(self, chance: Random) -> None:
        self.given["site"] = Site("http://chart.test", chance.choice("ab"), chance.choice("cd"))

    def _edit_words(self, chance: Random) -> None:
        self.given["words"] = {'"payment":{}': f'"payment":{{"display":"{chance.randrange(3)}"}}'}

    def _edit_known_as(self, chance: Random) -> None:
        lines = self.file.read_bytes().decode("latin-1").splitlines()
        self.given["known_as"] = {chance.choice(lines).split(",")[0]: f"old-{chance.randrange(3)}"}

    def _edit_name(self, chance: Random) -> None:
        name, file, control = f"{chance.choice('ab')}-{self.name}"[-40:], self.file, self._control
        file.rename(file.with_name(name))
        if control.exists():
            control.rename(control.with_name(name + CONTROL))
        self.name = name

    def _edit_program(self, chance: Random) -> None:
        version = str(chance.random())
        patch.object(earlier, "program_hash", lambda _: version).start()


@pytest.fixture(autouse=True)
def unpatched() -> Iterator[None]:
    yield
    patch.stopall()


def found_in(world: World, folder: Path, **more: Any) -> Any:
    """All that a run found: its counts and its tables, row for row, or why the file cannot be read."""
    try:
        found = world.run(folder, **more)
    except UnreadableFile as error:
        return str(error)
    counts = {each.name: getattr(found, each.name) for each in fields(found) if each.name not in ("folder", "found_in")}
    paths = ((name, folder / f"{name}.parquet") for name in TABLES)
    tables = {name: pq.read_table(path).to_pylist() for name, path in paths if path.exists()}
    answers = folder / "answers.parquet"
    said = sorted(map(str, pq.read_table(answers).to_pylist())) if answers.exists() else None
    return counts, tables, said


def rejects_of(found: Any, chance: Random) -> dict[int, str]:
    """Some lines of rejects, and of other records, each with the rejects that its record answers."""
    if isinstance(found, str):
        return {}
    lines = [row["line"] for name in ("rejects", "rejects", "accepted", "skipped") for row in found[1][name]]
    some = chance.sample(lines, min(len(lines), chance.choice((0, 0, 1, 2))))
    return {line: " ".join(f"reject-{line}-{number}" for number in range(chance.randint(1, 2))) for line in some}


@pytest.mark.parametrize("seed", range(2 * len(CASES)))
def test_a_run_after_any_edits_finds_what_one_that_knows_no_other_finds(seed: int, tmp_path: Path) -> None:
    """FEED-FILE-09, LEDGER-01: over generated edits of all that decides, and of nothing. The second of two runs of one
    basis reads no file."""
    chance = Random(seed)
    world, batch = World.of(CASES[seed * 5 % len(CASES)], tmp_path), tmp_path / "batch-0"
    before = dict[int, str]()
    for number in range(6):
        alone = found_in(world, tmp_path / "alone" / f"{number}" / "run-1", before=before)
        assert found_in(world, batch / f"run-{number}", before=before) == alone
        seen = world.seen
        assert found_in(world, batch / f"run-{number}-2", before=before) == alone
        assert (world.seen == seen) == can_be_known(world, alone, before)
        before = rejects_of(alone, chance)
        world.edit(chance.choice(EDITS), chance)


def test_the_order_of_questions_in_a_feed_is_that_of_items(tmp_path: Path) -> None:
    """Which the feed's hash leaves out."""
    world = World.of("wide_answers", tmp_path)
    path = next(world.folder.glob("*.toml"))
    before, hash_before = found_in(world, tmp_path / "batch" / "run-1"), world.feed.hash
    lines = path.read_text().splitlines()
    last = lines.pop()
    lines.insert(lines.index("[questions]") + 1, last)
    path.write_text("\n".join(lines))
    alone = found_in(world, tmp_path / "alone" / "run-1")
    assert found_in(world, tmp_path / "batch" / "run-2") == alone
    assert (alone != before, world.feed.hash == hash_before) == (True, True)


def can_be_known(world: World, found: Any, before: dict[int, str]) -> bool:
    if world.feed.asks or isinstance(found, str):
        return False
    begin = {row["line"] for name in ("accepted", "rejects") for row in found[1][name]}
    return not before or (begin >= before.keys() and not world.feed.file.join)


def test_the_time_of_receipt_does_not_change_the_accepted_rows(tmp_path: Path) -> None:
    """PAY-05: `created` of a payment is the moment of its first attempt, which its body gets when it is sent."""
    world = World.of("payments_csv", tmp_path)
    first, second = (world.run(tmp_path / name / "run-1").folder / "accepted.parquet" for name in "ab")
    assert world.seen == 2
    assert first.read_bytes() == second.read_bytes()
    assert not any('"created"' in body for body in pq.read_table(first)["body"].to_pylist())


@pytest.mark.parametrize("damaged", [*(f"{name}.parquet" for name in TABLES), earlier.FOUND])
@pytest.mark.parametrize("how", ["changed", "cut", "gone"])
def test_a_damaged_earlier_result_is_not_reused(damaged: str, how: str, tmp_path: Path) -> None:
    world = World.of("scored", tmp_path)
    alone = found_in(world, tmp_path / "batch" / "run-1")
    path = tmp_path / "batch" / "run-1" / damaged
    if not path.exists():
        pytest.skip("this file has no such table")
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) * (how == "changed") + content[middle + 1 :])
    assert found_in(world, tmp_path / "batch" / "run-2") == alone
    assert world.seen == 2
    assert found_in(world, tmp_path / "batch" / "run-3") == alone
    assert world.seen == 2, "taken over from the second"


def test_a_run_whose_lines_begin_no_record_is_looked_at_once(tmp_path: Path) -> None:
    """Of all runs of its basis, one: its tables may be large. Nor is another kept."""
    world = World.of("payments_csv", tmp_path)
    batch = tmp_path / "batch"
    found_in(world, batch / "run-1")
    shutil.copytree(batch / "run-1", batch / "run-2")
    before = {99: "reject-99-0"}
    alone = found_in(world, tmp_path / "alone" / "run-1", before=before)
    with patch.object(earlier, "_copied", side_effect=earlier._copied) as copied:
        assert found_in(world, batch / "run-3", before=before) == alone
    assert copied.call_count == 1
    assert not (batch / "run-3" / earlier.FOUND).exists()


def test_a_full_disk_keeps_nothing_and_the_file_is_checked_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World.of("payments_csv", tmp_path)
    alone = found_in(world, tmp_path / "alone" / "run-1")

    def fills(final: Path, content: bytes) -> None:
        final.with_name(f"{final.name}.part").write_bytes(content[:9])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(earlier, "write_whole", fills)
    assert found_in(world, tmp_path / "batch" / "run-1") == alone
    assert not [*(tmp_path / "batch" / "run-1").glob(f"{earlier.FOUND}*")]


def test_a_dry_run_neither_hashes_nor_keeps_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is no run's, and has none beside it."""
    world = World.of("payments_csv", tmp_path)
    monkeypatch.setattr(earlier.ValidationBasis, "hash", lambda _: pytest.fail("it is hashed"))
    assert world.run(tmp_path / "batch" / "run").accepted
    assert not [*tmp_path.rglob(earlier.FOUND)]


def test_the_run_that_checked_the_file_is_named(tmp_path: Path) -> None:
    world = World.of("payments_csv", tmp_path)
    first, second = (world.run(tmp_path / "batch" / f"run-{number}") for number in "12")
    assert (first.found_in, second.found_in) == (None, "run-1")
    told = told_as(second)
    assert read_from(second.folder, told).found_in == "run-1"
    del told["found_in"]
    assert read_from(second.folder, told).found_in is None, "of an older version"
    shown = [metadata.of_validated("payments.csv", each, 1.0, money=False) for each in (first, second)]
    assert [each.get("found_in") for each in shown] == [None, "run-1"]
    assert ["records_per_second" in each for each in shown] == [True, False]


def test_a_basis_that_changed_meanwhile_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.of("payments_csv", tmp_path)

    def checks(*given: Any) -> None:
        check_records(*given)
        world.edit("control", Random(1))

    monkeypatch.setattr("pipelines.validation.stage.check_records", checks)
    found_in(world, tmp_path / "batch" / "run-1")
    assert not (tmp_path / "batch" / "run-1" / earlier.FOUND).exists()


def test_a_small_file_and_one_that_answers_rejects_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World.of("payments_csv", tmp_path)
    monkeypatch.setattr(earlier, "LARGE", world.file.stat().st_size + 1)
    world.run(tmp_path / "batch" / "run-1")
    assert not (tmp_path / "batch" / "run-1" / earlier.FOUND).exists()
    monkeypatch.setattr(earlier, "LARGE", 0)
    world.file.write_text("_reject_id,payment_id,patient_id,amount,paid_on\n0123456789abcdef,k1,p1,1.00,2026-03-01\n")
    world.run(tmp_path / "batch" / "run-2")
    assert not (tmp_path / "batch" / "run-2" / earlier.FOUND).exists()


def test_all_that_validating_is_given_is_part_of_the_basis_or_decides_nothing() -> None:
    """Whoever gives it more has to say here which of the two that is."""
    assert {*inspect.signature(validate).parameters} == DECIDE | DO_NOT
    of_file = {"batch_id", "sha256", "path_in_batch", "file_name", "size"}
    assert {each.name for each in fields(ReceivedFile)} == of_file | {"received_at"}
    assert {each.name for each in fields(Feed)} == {"file", "path", "builtin", "tables", "hash", "environ"}
    assert {each.name for each in fields(Site)} == {"base_url", "vendor", "customer"}
    assert vars(Snapshot()).keys() == {"questionnaires", "canonicals"}


def test_a_file_that_comes_again_is_read_once_and_a_purge_leaves_nothing_of_it(home, target, asked, chartferry) -> None:
    """FEED-FILE-09, CLI-CMD-19: its rows are where they were, rejects stay open, and counts are those of the first."""
    rows = [("k1", "p1", "1.00"), ("k2", "p1", "x"), ("k3", "p2", "2.00")]
    payments(home, *rows)
    first = asked("import")["batches"][0]
    payments(home, *rows)
    with patch(READS, side_effect=AssertionError("it is read again")):
        code, out, said = chartferry("import")
    assert "run-1 found it; it was not checked again" in said
    again = json.loads(chartferry("status", first["batch_id"], "--json")[1])["manifest"]
    assert f"{first['batch_id']}: not checked again; its records and rejects are those that its run-1 found" in out
    assert (code, first["found_in"], again["found_in"]) == (SET_ASIDE, None, "run-1")
    assert [each.get("created") for each in (first["counts"], again["counts"])] == [2, 0]
    assert again["counts"]["unchanged"] == 2
    same = "lines header records accepted rejected amount_received amount_accepted".split()
    assert [first["counts"][name] for name in same] == [again["counts"][name] for name in same]
    sent = target.of("PaymentNotice")
    assert sorted(body["amount"]["value"] for body in sent) == [1.0, 2.0]
    assert all("created" in body for body in sent)
    [reject] = json.loads(chartferry("status", first["batch_id"], "--json")[1])["batches"][0]["rejects"]
    chartferry("rejects", "discard", "--why", "none", reject["reject_id"])
    assert [*home.rglob(earlier.FOUND)]
    assert chartferry("purge", first["batch_id"])[0] == 0
    assert not [*home.rglob(earlier.FOUND)]
