"""Take over the findings of an earlier run on a batch's file, if everything that decides them is unchanged.

So a large file that comes again, or whose load was cut off, is not read and checked a second time.
"""

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fhir_service.paths import exists, matching
from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.terms.columns import BuilderContext
from pipelines.home import arrow, spill
from pipelines.home.batch import ReceivedFile, control_of
from pipelines.home.files import sha256_of, write_whole
from pipelines.validation.content import sha
from pipelines.validation.outcome import ValidationResult, read_from, told_as
from pipelines.validation.program_hash import program_hash
from pipelines.validation.tables import ANSWERS

RUNS = "run-*"
"""The folders of a batch's runs."""
FOUND = "found.json"
"""The file in a run's folder with its basis, its counts, and the hashes of its tables."""
LARGE = 4 << 20
"""Bytes of a file from which on findings are kept. A smaller file is soon read and checked again."""
BEGINNING = ("accepted.parquet", "rejects.parquet")
"""The tables with the first lines of records."""
TABLES = (*BEGINNING, "skipped.parquet", "warnings.parquet")
MADE = (*TABLES, "answers.parquet", FOUND)


class ValidationBasis(NamedTuple):
    """Everything that decides the findings on a file, except rejects that its records answer, and except its time."""

    received: ReceivedFile
    feed: Feed
    around: BuilderContext
    strict: bool
    known_as: Mapping[str, str]

    def hash(self) -> str | None:
        """Return a hash of the basis.

        Return None for a small file, for a feed that asks databases or the target, and if a part cannot be read or is
        being changed.
        """
        with suppress(OSError):
            return self._hash()
        return None

    def _hash(self) -> str | None:
        received, feed, (site, questionnaires, _, words) = self.received, self.feed, self.around
        program = program_hash(feed.file.timezone) if received.size >= LARGE and not feed.asks else None
        if program is None:
            return None
        file = received.path_in_batch
        control = control_of(file)
        decides = [
            program,
            [received.batch_id, received.sha256, received.size, received.file_name, file.name, sha256_of(file)],
            sha256_of(control) if exists(control) else None,
            [feed.name, feed.source, feed.hash, feed.path.name, feed.builtin, self.strict],
            feed.file.model_dump_json(by_alias=True),  # the feed's hash leaves out the order of its tables
            [site.base_url, site.vendor, site.customer],
            [[name, each.model_dump_json()] for name, each in questionnaires.questionnaires.items()],
            [[*questionnaires.canonicals.items()], [*words.items()], sorted(self.known_as.items())],
        ]
        return sha(json.dumps(decides))


class EarlierRuns:
    """The earlier runs of a batch, for a new run with its tables in `folder`."""

    def __init__(self, folder: Path, basis: ValidationBasis) -> None:
        self._folder, self._basis = folder, basis
        self._hash = basis.hash() if folder.match(RUNS) else None  # a dry run has no others

    def found(self, answers: Mapping[int, str]) -> ValidationResult | None:
        """Copy the tables of a run with this basis into the folder, and return its findings.

        answers: by first line of a record, the rejects that it answers. Return None, and leave nothing in the folder,
        if there is no such run, if it is damaged, or if no record begins on one of these lines.
        """
        if self._hash is None or (answers and self._basis.feed.file.join):  # joined records may have other lines
            return None
        for path in matching(self._folder.parent, f"{RUNS}/{FOUND}"):
            with suppress(OSError, ValueError, KeyError, TypeError, pa.ArrowException):
                kept = json.loads(path.read_bytes())
                hashed, tables, told = json.loads(kept["said"])
                is_whole = kept["sha256"] == sha(kept["said"]) and hashed == self._hash
                if is_whole and _copied(path.parent, self._folder, tables):
                    if _answered(self._folder, answers):
                        shutil.copyfile(path, self._folder / FOUND)
                        return read_from(self._folder, {**told, "found_in": path.parent.name})
                    self._hash = None  # no other run of this basis has such lines, and one is kept
            for name in MADE:
                (self._folder / name).unlink(missing_ok=True)
            if self._hash is None:
                break
        return None

    def keep(self, found: ValidationResult) -> None:
        """Keep the findings, once the tables are complete and before anything is added to them. Keep nothing if the
        basis has changed meanwhile, or if the disk is full: the file is checked to its end all the same.
        """
        if self._hash and self._hash == self._basis.hash():
            try:
                there = (name for name in TABLES if exists(self._folder / name))
                hashes = {name: sha256_of(self._folder / name) for name in there}
                said = json.dumps([self._hash, hashes, told_as(found)])
                write_whole(self._folder / FOUND, json.dumps({"said": said, "sha256": sha(said)}).encode())
            except OSError:
                with suppress(OSError):
                    (self._folder / f"{FOUND}.part").unlink()


def _copied(earlier: Path, folder: Path, tables: Mapping[str, str]) -> bool:
    """Copy tables; return False if one has changed."""
    for name, sha256 in tables.items():
        shutil.copyfile(earlier / name, folder / name)
        if sha256_of(folder / name) != sha256:
            return False
    return True


def _answered(folder: Path, answers: Mapping[int, str]) -> bool:
    """Write which records answer rejects, if any do; return False if no record begins on one of the lines."""
    if not answers:
        return True
    lines = arrow.column([*answers], pa.int64())
    every = (pq.read_table(folder / name, columns=["line"]).column("line") for name in BEGINNING)
    begin = {line for some in every for line in some.filter(pc.is_in(some, lines)).to_pylist()}
    with spill.ParquetWriter(folder / "answers.parquet", ANSWERS) as out:
        for line, names in answers.items():
            for name in dict.fromkeys(names.split()):
                out.add(line, name)
    return begin == answers.keys()
