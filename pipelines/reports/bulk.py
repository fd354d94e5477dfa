"""Publish the resources read in bulk from the target: NDJSON files and a manifest in `<home>/bulk-publish/`.

The manifest follows `$bulk-publish`. The files hold whole resources, free text included; the practice serves them with
a web server of its own. File names change with each publication. The files of the previous publication stay, so that a
reader of its manifest still finds them.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import orjson

from fhir_service.paths import matching
from pipelines.home.files import locked, replace_whole, session, write_whole
from pipelines.home.scratch import throwaway_folder
from pipelines.reports.publication import PublicationError, error_sentence
from pipelines.reports.sweep import FILES, held_sweep

FOLDER = "bulk-publish"
AT_ONCE = 1_000
THERE = "SELECT body FROM read_parquet($1) WHERE gone_at IS NULL ORDER BY report_id"


def publish_bulk(home: Path, target: str, address: str, published_at: datetime, types: Sequence[str]) -> Path:
    """Write the last read resources of these types, and the manifest; return the manifest's path.

    address: the URL of the folder, as its readers see it. Raises `PublicationError`.
    """
    folder = home / FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    manifest = folder / "manifest.json"
    with locked(folder / ".lock"), held_sweep(home, target) as last:
        before = {each["url"].rpartition("/")[2] for each in _output(manifest)}
        _remove_left(folder, before)
        stamp = f"{published_at:%Y%m%dT%H%M%S%f}"
        output: list[dict[str, Any]] = []
        try:
            with throwaway_folder(home) as scratch, session(scratch / "spill") as db:
                for name in types:
                    file = folder / f"{name}-{stamp}.ndjson"
                    count = _write(db, last.path.with_name(FILES[name][0]), file)
                    output.append({"type": name, "url": f"{address.rstrip('/')}/{file.name}", "count": count})
        except duckdb.Error as error:  # the error's text may hold values
            raise PublicationError(error_sentence(error, folder)) from None
        said: dict[str, Any] = {
            "transactionTime": published_at.isoformat(),
            "request": f"{address.rstrip('/')}/$bulk-publish",
        }
        said |= {"requiresAccessToken": True, "output": output, "error": []}
        write_whole(manifest, orjson.dumps(said, option=orjson.OPT_INDENT_2))
        _remove_left(folder, before | {each["url"].rpartition("/")[2] for each in output})
    return manifest


def _remove_left(folder: Path, kept: Collection[str]) -> None:
    """Remove the files that no manifest names.

    Also called before writing: on a full disk the files of failed tries would pile up.
    """
    for file in (*matching(folder, "*.part"), *matching(folder, "*.ndjson")):
        if file.name not in kept:
            file.unlink()


def _output(manifest: Path) -> list[dict[str, str]]:
    try:
        found: list[dict[str, str]] = orjson.loads(manifest.read_bytes())["output"]
    except FileNotFoundError:
        return []
    return found


def _write(db: duckdb.DuckDBPyConnection, swept: Path, file: Path) -> int:
    """Write the resources of a sweep, one a line; return their number."""
    part, count = file.with_suffix(".part"), 0
    with part.open("wb") as out:
        found = db.execute(THERE, [str(swept)])
        while rows := found.fetchmany(AT_ONCE):
            out.writelines(body.encode() + b"\n" for (body,) in rows)
            count += len(rows)
    replace_whole(part, file)
    return count
