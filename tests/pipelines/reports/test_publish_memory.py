"""A publication gets as much memory as its tables need, up to the memory that is available."""

from pathlib import Path

import duckdb
import pytest

from pipelines.reports.publication import OutOfMemory, PublicationError
from pipelines.reports.publication_folder import built, most_memory
from tests.support.publishing import World

SHORT = "the tables could not be built: this machine has not enough memory for them"


def test_tables_that_a_limit_does_not_do_for_are_built_with_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPORT-04: 320,000 payments were published now and then, and a million never."""
    monkeypatch.setattr("pipelines.reports.publication_folder.MEMORY", 1)
    with duckdb.connect(world.publish().path, read_only=True) as db:
        assert db.sql("SELECT count(*) FROM diagnostic_report").fetchall() == [(6,)]
    assert not list((world.home / "published").glob(".reports.*"))


def test_a_publication_that_exceeds_the_memory_fails_and_replaces_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPORT-04"""
    before = world.publish().path.read_bytes()
    monkeypatch.setattr("pipelines.reports.publication_folder.MEMORY", 1)
    monkeypatch.setattr("pipelines.reports.publication_folder.most_memory", lambda: 3)
    with pytest.raises(PublicationError, match=SHORT):
        world.publish()
    assert (world.home / "published" / "reports.duckdb").read_bytes() == before


@pytest.mark.parametrize(
    ("records", "fails", "tried"),
    [
        (0, 0, [160]),
        (0, 3, [160, 640, 2560, 5000]),
        (400_000, 0, [160]),
        (1_000_000, 1, [640, 2560]),
        (10**8, 0, [5000]),
    ],
)
def test_the_memory_limit_of_a_publication_begins_by_the_number_of_records_and_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int, fails: int, tried: list[int]
) -> None:
    """REPORT-04"""
    monkeypatch.setattr("pipelines.reports.publication_folder.most_memory", lambda: 5000)
    limits = list[int]()

    def build(_: Path, megabytes: int) -> str:
        limits.append(megabytes)
        if len(limits) <= fails:
            raise OutOfMemory(SHORT)
        return "built"

    class Counted:
        def read(self, _: object) -> list[tuple[int]]:
            return [(records,)]

    assert built(tmp_path, Counted(), build) == "built"  # type: ignore[arg-type]
    assert limits == tried


def test_the_memory_limit_of_a_container_bounds_that_of_a_publication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = most_memory()
    for text, most in (("2000000000\n", 1000), ("max\n", whole), ("", whole)):
        (tmp_path / "memory.max").write_text(text)
        monkeypatch.setattr("pipelines.reports.publication_folder.CONTAINER", tmp_path / "memory.max")
        assert most_memory() == most
