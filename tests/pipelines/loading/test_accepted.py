"""Accepted rows as a load reads them: their times are texts of the ledger."""

from datetime import UTC, datetime, timedelta
from random import Random

import pyarrow as pa

from pipelines.home import arrow
from pipelines.ledger.lease import utc_text
from pipelines.loading.accepted import utc_texts
from pipelines.validation.tables import TIME

BEGINS = datetime(1970, 1, 1, tzinfo=UTC)


def text_of(moment: datetime) -> str:
    return f"{moment.isoformat(timespec='microseconds').removesuffix('+00:00')}Z"


def test_times_are_the_texts_that_the_ledger_writes() -> None:
    chance = Random(5)
    spans = [chance.randrange(-62_135_596_800 * 10**6, 253_402_300_800 * 10**6) for _ in range(2_000)]
    micros = [0, -1, 999_999, *spans]
    found = utc_texts(arrow.column([*micros, None], TIME))
    assert found == [*(text_of(BEGINS + timedelta(microseconds=each)) for each in micros), None]
    assert found[0] == utc_text(BEGINS)
    seconds = pa.array([0, None, 1_700_000_000], pa.timestamp("s", "UTC"))
    assert utc_texts(seconds) == ["1970-01-01T00:00:00.000000Z", None, "2023-11-14T22:13:20.000000Z"]
