"""A home with a questionnaire, and the rows of its pseudonymous publication."""

from pathlib import Path
from typing import Any

import duckdb

from pipelines.reports.pseudonymous import Study
from pipelines.reports.publish_pseudonymous import publish_pseudonymous
from pipelines.reports.sweep import kept_sweep
from tests.support.publishing import TARGET, World
from tests.support.responses_of_others import FORM

Tables = dict[str, list[dict[str, Any]]]
"""The rows of every table."""


def with_a_form(home: Path) -> World:
    """Make a home whose target has a questionnaire, and a practitioner with a name."""
    made = World(home)
    made.questionnaires = [FORM]
    made.names = {"Practitioner/d1": "Dr. Known"}
    return made


def publish(world: World, smallest: int = 10, study: str = "") -> Tables:
    """Publish pseudonymously; return the rows of every table."""
    done = publish_pseudonymous(world.home, world.ledger, kept_sweep(world.home, TARGET), Study(study, smallest))
    with duckdb.connect(done.path, read_only=True) as db:
        db.execute("SET TimeZone = 'UTC'")
        names = [name for (name,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        assert set(names) == set(done.rows) == {path.stem for path in done.path.parent.glob("parquet/*.parquet")}
        return {name: db.table(name).to_arrow_table().to_pylist() for name in names}
