"""The digests that a store's process keeps in memory: a set, however it came about."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fhir_service.service import Service
from fhir_service.settings import Settings
from fhir_service.store.dialect import RowQuery
from fhir_service.store.digests import Digests
from fhir_service.store.tables import SIDES, digest

numbers = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), max_size=20)


@given(numbers, st.lists(numbers, max_size=6), numbers)
def test_digests_find_exactly_the_numbers_that_were_added(
    stored: list[int], added: list[list[int]], asked: list[int]
) -> None:
    """EXTRA-COND-07: whatever the sizes in which they were added."""
    held, digests = set(stored), Digests(stored)
    for some in added:
        digests.add(some)
        held |= set(some)
    assert digests.among(asked) == [number for number in asked if number in held]


def test_a_digest_is_the_one_that_stores_hold() -> None:
    """EXTRA-COND-07: another one would not find what was stored before."""
    assert [digest(""), digest("k1"), digest("Größe 7")] == [
        -1970711489451281740,
        -7358982157571636960,
        3370815746820307467,
    ]


def test_identifiers_are_found_in_the_process_that_stored_them_and_in_the_next(tmp_path: Path) -> None:
    """EXTRA-COND-07: those asked for before they were there too."""
    settings = Settings(str(tmp_path / "s.duckdb"))
    table = SIDES["Task", "identifier"]

    def asked(service: Service, code: str) -> list[Any]:
        def ask(connection: Any) -> list[Any]:
            query = RowQuery(table, "code", [code, "another"], ("seq", "code"))
            return service.store.dialect.among(connection, query)

        return service.writer.transact(ask)

    service = Service.open(settings)
    assert asked(service, "t1") == []
    row = (7, "urn:test", "t1", digest("t1"))
    columns = ("seq", "system", "code", "digest")
    service.writer.transact(lambda connection: service.store.dialect.append(connection, [(table, [row], columns)]))
    assert asked(service, "t1") == [(7, "t1")]
    service.close()
    service = Service.open(settings)
    assert asked(service, "t1") == [(7, "t1")]
    service.close()
