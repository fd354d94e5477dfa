"""Sentences on the present rows of published tables, without which readers would misunderstand the rows."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import duckdb

from pipelines.home.counted import counted, word_for
from pipelines.ledger.states import MADE, in_sql
from pipelines.reports.publication import said_at
from pipelines.reports.readings import RESULTS, unread, unread_of
from pipelines.reports.sweep import last_read
from pipelines.reports.tables import ReportTable

RESULT = "diagnostic_report_result"
STATES = """
    SELECT count(*) FILTER (state = 'other patient'), count(*) FILTER (state = 'not read'), count(*)
    FROM diagnostic_report_result"""
IMPORTED = {
    "payment": ("PaymentNotice", "read_payments", "payments", ""),
    "payment_reconciliation": ("PaymentNotice", "read_payments", "payments", ""),
    "task": ("Task", "read_tasks", "tasks", ""),
    "questionnaire_response": ("QuestionnaireResponse", "read_responses", "responses", ", and are left out"),
}
"""By table of imported records: the type, the relation of those at the target, a noun, and the sentence's end."""
NOW_AND_THEN = {"read_payments": ("PaymentNotice", "Payments"), "read_tasks": ("Task", "Tasks")}
"""The types that imports do not read anew, since there may be millions: by relation, the type and a word."""
GONE = f"""
    SELECT count(*), in_dollars(sum(amount)), any_value(began_at)
    FROM ledger_record
    INNER JOIN whole_reading USING (resource_type)
    SEMI JOIN this_publication USING (target)
    ANTI JOIN (SELECT report_id AS resource_id FROM {{there}} WHERE gone_at IS NULL) USING (resource_id)
    WHERE resource_type = $1 AND state IN ({in_sql(MADE)})
        AND finished_at < shows_until"""
"""Count the records that a later whole reading of their type did not find.

The reading began an hour or more after the records were made, adopted or changed. A reading that broke off is not
whole. A type that cannot be searched has no reading.
"""
UNDO_LEFT = f"""
    SELECT count(*)
    FROM ledger_record
    SEMI JOIN this_publication USING (target)
    SEMI JOIN (FROM ledger_former WHERE fate = 'standing') AS begun
        USING (target, resource_type, source, key, batch_id, resource_id)
    WHERE resource_type = $1 AND state IN ({in_sql(MADE)})"""
"""Count the records that an undo may or may not have taken back."""

NOT_THERE = ("is not at the target", "are not at the target")
NOT_READ = ("was not read", "were not read")


def remarked_tables(db: duckdb.DuckDBPyConnection, tables: Sequence[ReportTable], folder: Path) -> list[ReportTable]:
    """Return the built tables with remarks on their rows, and on their parts that could not be read.

    tables: each after the tables that it reads. folder: the target's sweep folder.
    """
    parts = unread(folder)
    of = unread_of(tables, parts)
    return [
        replace(
            each,
            as_of=_as_of(each, folder),
            remarks=(*each.remarks, *_remarks(db, each.name, RESULTS not in parts), *of[each.name]),
        )
        for each in tables
    ]


def _as_of(table: ReportTable, folder: Path) -> str:
    """Return a sentence on when the target's payments or tasks in a table were last read; empty for other tables."""
    sentences = []
    for resource_type, noun in (NOW_AND_THEN[name] for name in table.inputs if name in NOW_AND_THEN):
        at = last_read(folder, resource_type)
        read = f"last read on {said_at(at)}" if at else "not read yet"
        sentences.append(f"{noun} of the target were {read}.")
    return " ".join(sentences)


def _remarks(db: duckdb.DuckDBPyConnection, name: str, results_are_read: bool) -> Iterator[str]:
    if name == RESULT:
        yield from _of_results(db, results_are_read)
    if name in IMPORTED:
        yield from _of_gone(db, *IMPORTED[name])
        yield from _of_undo(db, *IMPORTED[name])


def _of_results(db: duckdb.DuckDBPyConnection, are_read: bool) -> Iterator[str]:
    """Yield a sentence on results of another patient than their report's, and on results that were not found.

    are_read: True if the target was asked for all results, so that it does not have those that were not read.
    """
    [(others, lost, named)] = db.execute(STATES).fetchall()
    of_others = f"{counted(others, 'is', 'are')} of another patient than {word_for(others, 'its', 'their')} report's"
    found = [of_others] if others else []
    if 0 < lost < named:  # else the target shows no Observations
        found.append(counted(lost, *(NOT_THERE if are_read else NOT_READ)))
    if found:
        results = counted(named, "result that reports name", "results that reports name")
        yield f"Of {results}, {' and '.join(found)}: the column state says which."


def _of_gone(
    db: duckdb.DuckDBPyConnection, resource_type: str, relation: str, noun: str, and_now: str
) -> Iterator[str]:
    """Yield a sentence on resources that the import made or adopted, and that a later whole reading did not find."""
    [(gone, amount, at)] = db.execute(GONE.format(there=relation), [resource_type]).fetchall()
    if gone:
        sum_of = f" ({amount:,} US dollars)" if amount is not None else ""
        were = word_for(gone, "was", "were")
        yield (
            f"Of the {noun} that the import made or adopted, {gone:,}{sum_of} {were} not at the target when all of its "
            f"{noun} were read on {said_at(at)}{and_now}: `chartferry verify` names them."
        )


def _of_undo(db: duckdb.DuckDBPyConnection, resource_type: str, _: str, noun: str, __: str) -> Iterator[str]:
    """Yield a sentence on resources in a table that an interrupted undo may have taken back."""
    [(left,)] = db.execute(UNDO_LEFT, [resource_type]).fetchall()
    if left:
        yield (
            f"Of the {noun} that the import made or adopted, {left:,} may have been taken back by an undo that was cut "
            "off: `chartferry status` names its batch."
        )
