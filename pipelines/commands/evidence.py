"""The command `evidence`: the page and the JSON by which a migration is signed off."""

import os
from datetime import datetime
from typing import TYPE_CHECKING

import click

from pipelines.commands.common import AtTarget, NameArgument, Work, with_target

if TYPE_CHECKING:
    from pipelines.evidence.written import Evidence
    from pipelines.session.session import Session


@click.command(short_help="Writes the page for signing off a migration, and its JSON.")
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), metavar="DATE", help="Files received since this UTC day.")
@click.option("--batch", "-b", type=NameArgument(), help="Only this batch.")
@click.option(
    "--sample",
    "size",
    type=click.IntRange(1, 200),
    default=10,
    show_default=True,
    help="Number of records of each feed to compare by hand.",
)
@click.option("--seed", type=NameArgument(), help="Seed of the sample: one seed gives one sample. [default: random]")
@click.option(
    "--chart",
    metavar="ADDRESS",
    help="The address that the page shows for the target, and that its links lead to. "
    "[default: the target's address; for the bundled service, where it runs or where `chartferry up` would serve it]",
)
@with_target
def evidence(
    at: AtTarget, since: datetime | None, batch: str | None, size: int, seed: str | None, chart: str | None
) -> int:
    """Gathers the proof of an import, to be signed off, in evidence/ of the home: a page and its JSON.

    Export, ledger and target are counted by feed and day, to the cent. The page also has the records that were set
    aside, a random sample to check by hand, hashes, versions, and the result of verify.
    """
    from pipelines.session.bundled import STORE, running

    day = f"{since:%Y-%m-%d}" if since else None
    # Looked up before the command starts a service of its own, which ends with it.
    served = running(at.home / STORE)

    def load() -> Work:
        from pipelines.commands.up import SERVICE_PORT
        from pipelines.evidence.evidence import EvidenceSubject, make_evidence

        def work(session: "Session") -> "Evidence":
            port = os.environ.get("CHARTFERRY_SERVICE_PORT") or SERVICE_PORT
            own = served or f"http://127.0.0.1:{port}" if session.connection.bundled else session.connection.base_url
            return make_evidence(session, EvidenceSubject.of(day, batch, size, seed, chart or own))

        return work

    return at.answer(load)
