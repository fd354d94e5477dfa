"""Former forms: the questions of a questionnaire before the target replaced its content under the same id.

Answers given before the change belong to the former form. A former form that asked something else is a questionnaire of
its own in the tables, `<id>~<n>`. A response belongs to the form that it was checked by, or else to the form that was
at the target when the response was made.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from fhir_service.interface.checking import check
from fhir_service.interface.json_text import Malformed, parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from fhir_service.paths import exists
from pipelines.home import arrow
from pipelines.ledger.manifests import runs_in
from pipelines.reports.forms import NO_QUESTION, SIGN, AskedQuestion, ask_alike, content_name, with_options
from pipelines.reports.scores import ScoreFile, counted_in, score_files
from pipelines.reports.sweep import BEFORE
from pipelines.reports.words import ADDRESSES, addresses_of, canonical_of, rows_of

TEXT, TIME = pa.string(), pa.timestamp("us", "UTC")
KNOWN = pa.schema([("questionnaire_id", TEXT), *((f"{name}_at", TIME) for name in ("first_seen", "changed", "gone"))])
FORM = pa.schema(
    [
        *((name, TEXT) for name in ("named", "questionnaire_id", "form_id", "content")),
        *((f"{name}_at", TIME) for name in ("from", "seen")),
    ]
)
CHECKED = pa.schema([("batch_id", TEXT), ("run", pa.int64()), ("questionnaire_id", TEXT), ("content", TEXT)])
PRESENT = "report_id, body, epoch_us(first_seen_at), epoch_us(changed_at), epoch_us(gone_at)"
FORMER = """
    SELECT DISTINCT report_id, body, epoch_us(from_at), epoch_us(seen_at), epoch_us(until_at)
    FROM read_parquet($1) ORDER BY report_id, epoch_us(until_at)"""


class FormContent(NamedTuple):
    """A content of a questionnaire, and when it surely was at the target, in microseconds.

    until: the time when another content was found.
    """

    questionnaire_id: str
    body: str
    since: int | None
    seen: int | None
    until: int | None = None


class Forms(NamedTuple):
    """The questionnaires of the tables, former forms among them.

    * bodies: id and JSON.
    * known: when each was first seen, changed and gone.
    * form: each content of a questionnaire with former forms: the form of its responses, and when the content surely
      was at the target. It has one row by the questionnaire's id and, if it has a version, one by its url and version.
    * address: the names by which responses refer to each.
    """

    bodies: Sequence[tuple[str, str]]
    known: pa.Table
    form: pa.Table
    address: pa.Table


def forms_in(db: duckdb.DuckDBPyConnection, folder: Path, swept: duckdb.DuckDBPyRelation, home: Path) -> Forms:
    """Return the questionnaires that the target has or had.

    folder: the folder of the sweep. swept: the questionnaires that it found. home: has the score files; contents that a
    score counts differently are different forms. Raises `BrokenTable` for a broken rule of a score.
    """
    files = score_files(home)
    present = swept.project(PRESENT).order("report_id").fetchall()
    bodies = [(name, body) for name, body, *_ in present]
    times = [(name, *moments) for name, _, *moments in present]
    former = _former(db, folder / BEFORE)
    was = [(each.questionnaire_id, each.body) for each in reversed(former)]
    # A former address still leads to its questionnaire, unless another questionnaire has it now.
    address, form = addresses_of(was) | addresses_of(bodies), list[tuple[Any, ...]]()
    addresses = _addresses(address, [*bodies, *was])
    for name, body, first_seen, changed, _ in present:
        contents = [each for each in former if each.questionnaire_id == name]
        numbered = list(_numbered([*contents, FormContent(name, body, changed, None)], files))
        apart = [(form_id, content) for form_id, content in numbered if form_id != name]
        bodies += {form_id: content.body for form_id, content in apart}.items()
        times += {form_id: (form_id, each.since, None, each.until) for form_id, each in apart}.values()
        if apart:
            form += _rows(numbered, first_seen, address)
    tables = (arrow.table_of_rows(*each) for each in ((times, KNOWN), (form, FORM), (addresses, ADDRESSES)))
    return Forms(bodies, *tables)


def _former(db: duckdb.DuckDBPyConnection, path: Path) -> list[FormContent]:
    rows = db.execute(FORMER, [str(path)]).fetchall() if exists(path) else []
    return [FormContent(*row) for row in rows]


def _addresses(address: Mapping[str, str], bodies: Iterable[tuple[str, str]]) -> list[tuple[str, str, bool]]:
    """Return the rows of `ADDRESSES`: one for each address, including `<url>|` for versions that are not known."""
    of_url: dict[str, set[str]] = {}
    for name, body in bodies:
        if url := canonical_of(body)[0]:
            of_url.setdefault(url, set()).add(name)
    others = {f"{url}|": (address[url], len(names) == 1) for url, names in of_url.items()}
    # An odd url `form|` wins over the row for other versions of the url `form`.
    found = others | {each: (name, True) for each, name in address.items()}
    return [(each, *about) for each, about in found.items()]


def _numbered(contents: Sequence[FormContent], files: Sequence[ScoreFile]) -> Iterator[tuple[str, FormContent]]:
    """Yield each content with the id of its form, the present content last. Contents that ask alike are one form.

    A form has the number of its first content, so that a number never changes. The present form has the questionnaire's
    id.
    """
    found: list[_Questions] = []
    forms: dict[int, list[_Questions]] = {}
    numbers: list[int] = []
    for questions in _asked(contents, files):
        if questions not in found:
            found.append(questions)
        alike = (number for number, others in forms.items() if all(map(questions.is_asked_as, others)))
        number = next(alike, found.index(questions) + 1)
        forms.setdefault(number, []).append(questions)
        numbers.append(number)
    for number, content in zip(numbers, contents, strict=True):
        name = content.questionnaire_id
        yield name if number == numbers[-1] else f"{name}{SIGN}{number}", content


class _Questions(NamedTuple):
    """The questions of a content, and the linkIds that a score file counts."""

    asked: Sequence[AskedQuestion]
    counted: frozenset[str]

    def is_asked_as(self, other: "_Questions") -> bool:
        return self == other or (self.counted == other.counted and ask_alike(other.asked, self.asked))


def _asked(contents: Sequence[FormContent], files: Sequence[ScoreFile]) -> list[_Questions]:
    """Return the questions of each content."""
    tables = rows_of((str(place), content.body) for place, content in enumerate(contents))
    questionnaires, questions, options = (each.to_pylist() for each in tables)
    of_question = ("questionnaire_id", "link_id", "text", "type", "repeats", "code_system", "code")
    of_option = ("questionnaire_id", "link_id", "system", "code", "display", "declared_value")
    asked = [[each[name] for name in of_question] for each in questions if each["type"] not in NO_QUESTION]
    found = with_options(asked, ([each[name] for name in of_option] for each in options))
    own = {"questionnaire_id": contents[-1].questionnaire_id}
    read = [
        (each | own, [question for question in questions if question["questionnaire_id"] == each["questionnaire_id"]])
        for each in questionnaires
    ]
    counted = counted_in(files, read)
    return [_Questions(found.get(str(place), ()), each) for place, each in enumerate(counted)]


def _rows(
    numbered: Sequence[tuple[str, FormContent]], first_seen: int, address: Mapping[str, str]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of `FORM`. The first content has no start, since responses may be older than the first sweep."""
    for place, (form_id, each) in enumerate(numbered):
        is_first = place == 0 and each.since is not None and each.since <= first_seen
        row = each.questionnaire_id, form_id, _name_of(each.body), None if is_first else each.since, each.seen
        yield each.questionnaire_id, *row
        version = "|".join(filter(None, canonical_of(each.body)))
        if "|" in version and address.get(version) == each.questionnaire_id:
            yield version, *row


def _name_of(body: str) -> str | None:
    """Return the short name of a content; None if the interface cannot read the content."""
    try:
        model = check(RESOURCES["Questionnaire"], parse_json(body), Site(), needs=()).model
    except Malformed:
        return None
    return content_name(model) if model else None


def checked_by(batches: Path, target: str, ids: Iterable[str]) -> pa.Table:
    """Return one row for each questionnaire content that a run checked answers by. ids: those of the batches."""
    rows = list[tuple[Any, ...]]()
    for batch_id in ids:
        for run, _, manifest in runs_in(batches / batch_id, target):
            named = manifest.get("questionnaires")
            rows += (
                ((batch_id, run, name, str(said)) for name, said in named.items()) if isinstance(named, dict) else ()
            )
    return arrow.table_of_rows(rows, CHECKED)
