"""Copy a publication to another place: a version with all its files, and `latest.json`, which names the version.

Readers follow `latest.json`. It is swapped in one step after all files of a version are written, so that the last good
publication stays if anything fails. A version that `latest.json` no longer names is removed once it is a day old.
"""

import json
import logging
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fhir_service.paths import matching
from pipelines.home.deployment_owner import OWNER, deployment_of, own
from pipelines.home.files import link_or_copy, locked, sha256_of
from pipelines.home.scratch import throwaway_folder
from pipelines.home.stores import HeldObject, SomebodyElse, Store, StoreUnusable
from pipelines.reports.newer_load import LOCK
from pipelines.reports.publication import Publication
from pipelines.reports.publication_folder import BESIDE

log = logging.getLogger("chartferry.copies")
LATEST = "latest.json"
ANOTHER = f"another deployment publishes there ({OWNER}): name a prefix of its own"
VERSION = re.compile(r"[0-9]{8}T[0-9]{12}Z-[0-9a-f]{12}")
KEPT_BEFORE = 2
KEPT_FOR = timedelta(days=1)
TRIES = 20


def copy_publication(store: Store, home: Path, published: Publication) -> str | None:
    """Copy a publication; return its version, or None if a newer one is already there. Raises StoreUnusable."""
    own(store, deployment_of(home), ANOTHER)
    with throwaway_folder(home) as folder:
        files = _as_they_are(published.path.parent, published.rows, folder)
        hashes = {name: sha256_of(path) for name, path in files.items()}
        sums = {name: {"size": path.stat().st_size, "sha256": hashes[name]} for name, path in sorted(files.items())}
        version = f"{published.published_at:%Y%m%dT%H%M%S%fZ}-{hashes['reports.duckdb'][:12]}"
        for name, path in files.items():
            store.put(f"{version}/{name}", path)
    about = {
        "version": version,
        "published_at": published.published_at.isoformat(),
        "target": published.target,
        "files": sums,
    }
    named = _make_latest(store, about)
    try:
        _remove_old(store, {version, *named}, datetime.now(UTC))
    except StoreUnusable as error:
        log.warning("the publication was copied; versions before it stay: %s", error)
    return version if version in named else None


def _as_they_are(published: Path, tables: Collection[str], folder: Path) -> dict[str, Path]:
    """Return the publication's files by name, linked into a folder, where the next publication cannot replace them."""
    (folder / "parquet").mkdir()
    with locked(published / LOCK):
        names = ["reports.duckdb", *BESIDE.values()]
        # Other programs may have put files of their own beside ours.
        names += [f"parquet/{path.name}" for path in matching(published, "parquet/*.parquet") if path.stem in tables]
        for name in names:
            link_or_copy(published / name, folder / name)
    return {name: folder / name for name in names}


def _make_latest(store: Store, about: Mapping[str, Any]) -> set[str]:
    """Swap `latest.json`, unless it names a newer publication; return the versions that it names afterwards."""
    for _ in range(TRIES):
        held = store.read(LATEST)
        said = _said(held)
        before = [said["version"], *said["before"]] if said else []
        if said and said["published_at"] > about["published_at"]:
            if said["published_at"] > datetime.now(UTC).isoformat():
                raise StoreUnusable(
                    f"{LATEST} there is of {said['published_at']}, a time in the future: remove it if a clock was wrong"
                )
            return set(before)
        kept = [each for each in before if each != about["version"]][:KEPT_BEFORE]
        try:
            store.swap(LATEST, json.dumps({**about, "before": kept}, indent=1).encode(), held)
        except SomebodyElse:
            continue
        return {about["version"], *kept}
    raise StoreUnusable(f"{LATEST} changed at each of {TRIES} tries: too many publish to one place")


def _said(held: HeldObject | None) -> dict[str, Any] | None:
    """Return the content of `latest.json`. Raises StoreUnusable if it is not one of ours."""
    if held is None:
        return None
    try:
        said = json.loads(held.content)
        before = [str(version) for version in said["before"]]
        return {"version": str(said["version"]), "published_at": str(said["published_at"]), "before": before}
    except (ValueError, KeyError, TypeError):
        raise StoreUnusable(f"{LATEST} there was not written by Chartferry: name another place, or remove it") from None


def _remove_old(store: Store, named: set[str], now: datetime) -> None:
    """Remove versions that `latest.json` no longer names, and the leftovers of killed publications."""
    written: dict[str, datetime] = {}
    ages = store.ages()
    for key, at in ages.items():
        version, inside, _ = key.partition("/")
        if inside and VERSION.fullmatch(version) and version not in named:
            written[version] = max(at, written.get(version, at))
    old = {version for version, at in written.items() if at < now - KEPT_FOR}
    store.remove([key for key in ages if key.partition("/")[0] in old])
