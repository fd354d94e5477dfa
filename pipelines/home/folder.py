"""The state folder itself: check its owner, and close it to others."""

import os
from pathlib import Path

from pipelines.home.exits import ExplainedError

OURS = {"inbox", "feeds", "batches", "published", "dagster", "reference", "ledger.db", "service.duckdb", "hash.key"}
"""Names of which any one shows that a folder is a home."""
REFERENCE_NOTE = "service.duckdb.reference.json"
"""The file that lists the reference data in the bundled store, written when a load has ended."""


class BadHome(ExplainedError):
    """The folder cannot be a home. The text is one sentence with advice."""


def make_private(home: Path) -> None:
    """Make the home, or close an existing home to others. An open folder with other contents is refused."""
    if "?" in str(home.absolute()):
        raise BadHome(f"{home}: cannot be a home: DuckDB takes a ? for the end of a file's path; name another (--home)")
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise BadHome(f"{home}: is a file, or a link that leads nowhere: name a folder (--home)") from None
    except OSError as error:
        raise BadHome(f"{home}: cannot be made ({error.strerror}): name another folder (--home)") from None
    about = home.stat()
    if os.geteuid() not in (0, about.st_uid):
        raise BadHome(f"{home}: belongs to another user: a home is one user's; name a folder of your own (--home)")
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        raise BadHome(f"{home}: cannot be written: name another folder (--home), or make it writable for its owner")
    if about.st_mode & 0o077:
        held = {path.name for path in home.iterdir()}
        if held and not held & OURS:
            raise BadHome(
                f"{home}: holds other things and is open to others: name a folder of its own (--home), or close it "
                "(chmod 700) if it is to be the home"
            )
        home.chmod(0o700)
