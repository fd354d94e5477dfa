"""Rows of a part that the worker before was sending: it sends no more, but may write answers down yet."""

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.home import arrow
from pipelines.home.spill import batches
from pipelines.ledger.doubts import doubt_sent
from pipelines.loading.accepted import ROWS_A_LOOK
from pipelines.loading.load import Load


def doubt_left_sending(load: Load) -> None:
    """Put these rows of the load's part in doubt."""
    sending = load.ledger.sending(*load.of)
    keys, found = arrow.column([*sending], pa.string()), list[tuple[str, int]]()
    for some in batches(load.batch.folder / "accepted.parquet", ROWS_A_LOOK, ["key", "lane"]) if sending else ():
        rows = some.filter(pc.is_in(some.column("key"), keys))
        here = load.batch.part.only(rows) if load.batch.part else rows
        found += [(key, sending[key]) for key in here.column("key").to_pylist()]
    if found:
        doubt_sent(load.ledger, load.lease, load.source, load.resource, found)
