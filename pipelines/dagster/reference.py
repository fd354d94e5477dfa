"""Reference data of the bundled service: files in `<home>/reference` are loaded before any import continues.

A note in the home lists the loaded files by hash, with the label of the load, which the store keeps too. So a file is
loaded once. If the store is replaced or restored from an older copy, the labels differ and all files are loaded again.
"""

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg

from pipelines.dagster import metadata
from pipelines.dagster.names import AGAIN, DagsterNames
from pipelines.dagster.run_resource import RESOURCE_KEY, workplace_of
from pipelines.home.batch import printable_name
from pipelines.home.counted import listed
from pipelines.home.files import sha256_of, write_whole
from pipelines.home.folder import REFERENCE_NOTE
from pipelines.home.reference_files import reference_files
from pipelines.runs.manifest import software_version
from pipelines.session.bundled import STORE, label_of, load_reference

GROUP = "reference"
JOB = "load_reference"
REFUSED = f"{STORE}.refused.ndjson"
NO_TYPE = "(none)"
NAMED = 20
COUNTS = ("created", "unchanged", "updated", "refused", "unresolved")

TAKEN_IN = "every_reference_record_was_taken"


@dataclass(frozen=True)
class LoadedFile:
    """A file when it was loaded. refused: True if some of its records were refused; the next load takes it again."""

    size: int
    modified: int
    sha256: str
    refused: bool = False


def looks_new(home: Path) -> list[Path]:
    """Return the files whose size or time of modification differs from the loaded one. Reads no content."""
    noted = {name: (each.size, each.modified) for name, each in _noted(home).items()}
    found = ((path, path.stat()) for path in reference_files(home / GROUP))
    return [path for path, about in found if (about.st_size, about.st_mtime_ns) != noted.get(path.name)]


def named_files(files: Sequence[Path]) -> str:
    """Return the names of the first files, as text."""
    return ", ".join(printable_name(path.name) for path in files[:NAMED])


def _noted(home: Path) -> dict[str, LoadedFile]:
    """Return the files that were loaded into the present store, by name; empty if the store has another label."""
    try:
        said = json.loads((home / REFERENCE_NOTE).read_bytes())
        if said["label"] != label_of(home / STORE):
            return {}
        return {name: LoadedFile(*each) for name, each in said["files"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _note(home: Path, label: str | None, before: Mapping[str, LoadedFile], loaded: Mapping[str, LoadedFile]) -> None:
    files = {name: [each.size, each.modified, each.sha256, each.refused] for name, each in {**before, **loaded}.items()}
    write_whole(home / REFERENCE_NOTE, json.dumps({"label": label, "files": files}).encode())


def reference_asset(names: DagsterNames) -> dg.AssetsDefinition:
    taken_in = dg.AssetCheckSpec(
        TAKEN_IN,
        asset=names.reference,
        description="No reference record was refused. If this fails, it is a warning: the file that the metadata names "
        "has the refused records.",
    )

    @dg.asset(
        key=names.reference,
        group_name=GROUP,
        owners=["team:data-engineering"],
        kinds={"file", "fhir"},
        code_version=software_version(),
        description="Patients, practitioners, claims, questionnaires and reports of the bundled service, from the "
        "NDJSON files in `reference`. The files stay where they are, and are loaded again only when they have changed.",
        required_resource_keys={RESOURCE_KEY},
        check_specs=[taken_in],
        retry_policy=AGAIN,
        metadata={"dagster/column_schema": metadata.schema(_COLUMNS)},
    )
    def loaded(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        with workplace_of(context) as place:
            counts, files = load_waiting(place.home, place.environ)
            where = refused_at(place.home / REFUSED) if _refused(place.home, _noted(place.home)) else []
            refused = sum(row["refused"] for row in counts) if counts else len(where)
            yield dg.MaterializeResult(
                metadata=_about(place.home, counts, files, refused), check_results=[_taken_in(refused, where)]
            )

    return loaded


_COLUMNS = [
    ("type", "string", "The type of the resources."),
    ("created", "int", "Resources that are new."),
    ("unchanged", "int", "Resources that the store had already."),
    ("updated", "int", "Resources that have changed."),
    ("refused", "int", "Resources that cannot be used."),
    ("unresolved", "int", "References to resources that are missing."),
]


def load_waiting(home: Path, environ: Mapping[str, str]) -> tuple[list[dict[str, Any]], list[Path]]:
    """Load new and changed files; return the counts by type, and the files that were loaded.

    If there are any, files with refused records are loaded again with them. A file with a new time and its old content
    is not loaded. Raises TargetUnusable.
    """
    before, seen = _noted(home), {path: _as_it_is(path) for path in looks_new(home)}
    hashes = {name: each.sha256 for name, each in before.items()}
    touched = {path.name for path, each in seen.items() if each.sha256 and each.sha256 == hashes.get(path.name)}
    files = [path for path in seen if path.name not in touched]
    if files:
        again = [path for path in _refused(home, before) if path not in files]
        seen |= {path: _as_it_is(path) for path in again}
        files += again
    label, counts = label_of(home / STORE), list[dict[str, Any]]()
    if files:
        label = secrets.token_hex(8)
        counts = load_reference(home / STORE, sorted(files), environ, home / REFUSED, label)["counts"]
    refused = {name for name, _ in refused_at(home / REFUSED)} if any(row["refused"] for row in counts) else set()
    refused |= {name for name in touched if before[name].refused and home / GROUP / name not in files}
    loaded = {path.name: replace(each, refused=path.name in refused) for path, each in seen.items()}
    if loaded:
        _note(home, label, before, loaded)
    return counts, files


def _as_it_is(path: Path) -> LoadedFile:
    """Return the present state of a file. The hash is empty if the file cannot be read; the load then refuses it."""
    about = path.stat()
    try:
        return LoadedFile(about.st_size, about.st_mtime_ns, sha256_of(path))
    except OSError:
        return LoadedFile(about.st_size, about.st_mtime_ns, "")


def _refused(home: Path, noted: Mapping[str, LoadedFile]) -> list[Path]:
    """Return the files with records that the store lacks."""
    return [path for path in reference_files(home / GROUP) if path.name in noted and noted[path.name].refused]


def refused_at(path: Path) -> list[tuple[str, int]]:
    """Return file name and line number of each record that a load refused."""
    with path.open(encoding="utf-8") as lines:
        found = map(json.loads, lines)
        return [(Path(each["file"]).name, each["line"]) for each in found]


def _about(home: Path, counts: Sequence[dict[str, Any]], files: Sequence[Path], refused: int) -> metadata.Metadata:
    about: metadata.Metadata = {
        metadata.ROWS: sum(row[name] for row in counts for name in COUNTS[:3]),
        "files": len(files),
        **{name: sum(row[name] for row in counts) for name in COUNTS},
        "by_type": metadata.table(
            _COLUMNS, [[row["type"] or NO_TYPE, *(row[name] for name in COUNTS)] for row in counts]
        ),
    }
    return {**about, "refused_file": dg.MetadataValue.path(str(home / REFUSED))} if refused else about


def _taken_in(refused: int, where: Sequence[tuple[str, int]]) -> dg.AssetCheckResult:
    lines = listed([f"{printable_name(name)} line {line}" for name, line in where], NAMED)
    return dg.AssetCheckResult(
        passed=refused == 0,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"refused: {lines}; {REFUSED} has the reasons" if where else None,
        metadata={"records_refused": refused},
    )
