"""The inputs of the published tables, as temporary tables: the target's resources, and the files of batches."""

from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import duckdb
import pyarrow as pa

from fhir_service.interface.datatypes import ID_PATTERN
from fhir_service.paths import matching
from pipelines.feeds.terms.rulebook import rules
from pipelines.home import arrow
from pipelines.home.spill import is_whole
from pipelines.ledger.manifests import is_of_another
from pipelines.reports.former_forms import checked_by, forms_in
from pipelines.reports.results import RESULT
from pipelines.reports.scores import scores_of_home
from pipelines.reports.service_data import CHARGES, stage_told
from pipelines.reports.sweep import FILES, OVERLAP, QUESTIONNAIRE, Sweep, known_in, whole_readings
from pipelines.reports.tables import VIEWED, staging_selects
from pipelines.reports.words import named_in, rows_of

MACROS = (
    # A sum of absurd amounts may have more digits than DECIMAL(18, 2). It is then NULL, since any number would be
    # wrong.
    """CREATE TEMP MACRO in_dollars(amount) AS CASE WHEN amount BETWEEN -9999999999999999.99 AND 9999999999999999.99
        THEN amount::DECIMAL(18, 2) END""",
    "CREATE TEMP MACRO dollars(cents) AS in_dollars(cents::DECIMAL(19, 0) * 0.01::DECIMAL(3, 2))",
    # A date, a month or a year alone is the start of that UTC day, month or year. FHIR's years have four digits;
    # other moments, such as `infinity`, would also break readers.
    """CREATE TEMP MACRO moment(said) AS list_filter([try_cast(
        CASE WHEN NOT regexp_matches(said, '^[0-9]{4}(-|$)') THEN NULL
            WHEN length(said) = 4 THEN said || '-01-01' WHEN length(said) = 7 THEN said || '-01' ELSE said END
            AS TIMESTAMPTZ)],
        lambda each: each BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00')[1]""",
    # NaN, or a number too large for a double, which the client passes on as a text, would break sums and readers.
    "CREATE TEMP MACRO finite(number) AS CASE WHEN isfinite(number) THEN number END",
    """CREATE TEMP MACRO reference_id(reference, kind) AS
        nullif(regexp_extract(reference, '(?:^|/)' || kind || '/([^/]+)', 1), '')""",
    """CREATE TEMP MACRO reference_ids(refs, kind) AS list_filter(
        list_transform(coalesce(refs, []), lambda each: reference_id(each.reference, kind)),
        lambda id: id IS NOT NULL)""",
    # A bound of a range without unit and code is in the value's unit. If both have a code, the codes are compared,
    # else the units. A code that is compared with a unit must be spelled like it.
    """CREATE TEMP MACRO is_of_unit(bound, quantity) AS CASE
        WHEN struct_extract(bound, 'code') IS NOT NULL AND struct_extract(quantity, 'code') IS NOT NULL
            THEN struct_extract(bound, 'code') = struct_extract(quantity, 'code')
        WHEN struct_extract(bound, 'unit') IS NOT NULL AND struct_extract(quantity, 'unit') IS NOT NULL
            THEN struct_extract(bound, 'unit') = struct_extract(quantity, 'unit')
        ELSE coalesce(struct_extract(bound, 'code'), struct_extract(bound, 'unit'), '')
            IN ('', coalesce(struct_extract(quantity, 'code'), struct_extract(quantity, 'unit'), '')) END""",
)

FREE_TEXT = {
    True: "CREATE TEMP MACRO free_text(said) AS said",
    False: "CREATE TEMP MACRO free_text(said) AS NULL::VARCHAR",
}
"""The macro that returns an answer's free text or hides it, by the setting publish_free_text."""
SENDING_TIMES = {
    True: "CREATE TEMP MACRO sending_time(sent_at) AS sent_at",
    False: "CREATE TEMP MACRO sending_time(sent_at) AS NULL::TIMESTAMPTZ",
}
"""The macro that returns the time of sending, for records without a time of their own, or hides it."""


READ = {relation: resource_type for resource_type, relation in VIEWED.items()} | {"read_claims": "Claim"}
"""The relations that staging reads, with the type of their resources, which were read from the target."""
RULE = pa.schema([(name, pa.string()) for name in ("rule_id", "sentence", "basis", "advice")])
NAMING = (
    # FHIR ids only: `said` is a text of other systems, which may say anything.
    f"""CREATE TEMP MACRO fhir_id(said) AS CASE WHEN regexp_full_match(said, '{ID_PATTERN}') THEN said END""",
    # The address of other versions in `known_address`, for a response that names a questionnaire with its version.
    """CREATE TEMP MACRO other_version_of(said) AS
        CASE WHEN contains(said, '|') THEN split_part(said, '|', 1) || '|' END""",
    # own, other: the questionnaires of the address and of `other_version_of`. is_one: true if exactly one has the
    # latter. The address comes first, then the place at the target.
    """CREATE TEMP MACRO questionnaire_of(said, own, other, is_one) AS coalesce(own, CASE WHEN is_one THEN other END,
        fhir_id(reference_id(split_part(said, '|', 1), 'Questionnaire')), other)""",
)
"""Macros for the questionnaire that a response names."""


CONTAINED = f"""
    SELECT report_id || '#' || id AS report_id, content_hash,
        json_merge_patch(json_object('subject', subject), one, json_object('id', report_id || '#' || id))::VARCHAR
            AS body,
        first_seen_at, changed_at, changes, gone_at
    FROM (SELECT *, one ->> '$.id' AS id FROM (
        SELECT *, body -> '$.subject' AS subject, unnest(json_extract(body, '$.contained[*]')) AS one,
            json_extract_string(body, '$.result[*].reference') AS named
        FROM sweep WHERE gone_at IS NULL AND contains(body, '"contained":[')))
    WHERE one ->> '$.resourceType' = 'Observation' AND regexp_full_match(id, '{ID_PATTERN}')
        AND list_contains(named, '#' || id)
    QUALIFY row_number() OVER (PARTITION BY report_id, id ORDER BY one::VARCHAR) = 1"""
"""Results contained in their report. The id is `<report>#<result>`; a result without a patient has the report's."""


OF_TARGET = """
    SELECT batch_id FROM ledger_batch SEMI JOIN this_publication USING (target)
    WHERE resource_type IN ('Task', 'QuestionnaireResponse', 'PaymentNotice') ORDER BY batch_id"""
ANSWERS_OF_TARGET = """
    SELECT batch_id FROM ledger_batch SEMI JOIN this_publication USING (target)
    WHERE resource_type = 'QuestionnaireResponse' AND EXISTS (FROM known_form)"""
SENT = """
    SELECT batch_id, folder, run, line, key, content_hash, resource_type, body
    FROM (
        SELECT line, key, content_hash, body, parse_path(filename)[-2] AS folder,
            parse_path(filename)[-3] AS batch_id, regexp_extract(folder, '[0-9]+')::BIGINT AS run
        FROM read_parquet($1, filename = true)
    )
    JOIN ledger_batch USING (batch_id) SEMI JOIN this_publication USING (target)"""
WITHOUT_AN_END = """
    SELECT batch_id FROM ledger_batch SEMI JOIN this_publication USING (target)
    WHERE resource_type = 'PaymentNotice' AND state <> 'finished' ORDER BY batch_id"""
READY = """
    SELECT parse_path(filename)[-3] AS batch_id, regexp_extract(parse_path(filename)[-2], '[0-9]+')::BIGINT AS run,
        line, key AS source_key, patient_id, source_at, dollars(amount_cents) AS amount
    FROM read_parquet($1, filename = true)"""
NOTHING_READY = """SELECT NULL::VARCHAR AS batch_id, NULL::BIGINT AS run, NULL::BIGINT AS line,
    NULL::VARCHAR AS source_key, NULL::VARCHAR AS patient_id,
    NULL::TIMESTAMPTZ AS source_at, NULL::DECIMAL(18, 2) AS amount WHERE false"""
WARNED = """
    SELECT parse_path(filename)[-3] AS batch_id, regexp_extract(parse_path(filename)[-2], '[0-9]+')::BIGINT AS run,
        line, rule_id, coalesce(expression, "column") AS expression, message
    FROM read_parquet($1, filename = true)"""
NOTHING_WARNED = """SELECT NULL::VARCHAR AS batch_id, NULL::BIGINT AS run, NULL::BIGINT AS line,
    NULL::VARCHAR AS rule_id, NULL::VARCHAR AS expression, NULL::VARCHAR AS message WHERE false"""
NOTHING_SENT = """SELECT NULL::VARCHAR AS batch_id, NULL::VARCHAR AS folder, NULL::BIGINT AS run,
    NULL::BIGINT AS line, NULL::VARCHAR AS key, NULL::VARCHAR AS content_hash, NULL::VARCHAR AS resource_type,
    NULL::JSON AS body WHERE false"""


def stage_files(db: duckdb.DuckDBPyConnection, sweep: Sweep, home: Path, with_patients: bool) -> list[str]:
    """Stage the inputs of the SQL that are files: swept reports, words, records ready to send, and warnings.

    The relations of `READ` stay registered, since views read the bodies themselves. Returns remarks for readers of the
    table `score`. Raises `BrokenTable` for a rule of a score.
    """
    batches = home / "batches"
    for name, ids, of_files, nothing in (
        ("sent", OF_TARGET, SENT, NOTHING_SENT),
        ("ready", WITHOUT_AN_END, READY, NOTHING_READY),
    ):
        of_batches = [batches / row[0] for row in db.execute(ids).fetchall()]
        files = _files_of_runs(of_batches, "accepted.parquet", sweep.target)
        db.register(name, db.sql(of_files, params=[files]) if files else db.sql(nothing))
    warned = _files_of_runs(matching(batches, "*-*"), "warnings.parquet", sweep.target)
    db.register("warned", db.sql(WARNED, params=[warned]) if warned else db.sql(NOTHING_WARNED))
    for name, resource_type in READ.items():
        found = known_in(db, sweep.path.with_name(FILES[resource_type][0]))
        db.register(name, found.union(db.sql(CONTAINED)) if resource_type == RESULT else found)
    db.execute("CREATE TEMP TABLE whole_reading (resource_type VARCHAR, began_at TIMESTAMPTZ, shows_until TIMESTAMPTZ)")
    for resource_type, began_at in whole_readings(sweep.path.parent):
        # Bind the time as a text, since DuckDB looks for pandas if a datetime is bound. The overlap is subtracted
        # because a target's search may show a change later than the change's time.
        row = [resource_type, began_at.isoformat(), (began_at - OVERLAP).isoformat()]
        db.execute("INSERT INTO whole_reading VALUES (?, ?, ?)", row)
    stage_told(db, sweep.path.parent, with_patients)
    remarks = _stage_words(db, sweep.path.parent, home)
    _stage_checks(db, batches, sweep.target)
    for macro in NAMING:
        db.execute(macro)
    for name, select in staging_selects().items():
        db.execute(f"CREATE TEMP TABLE {name} AS {select}")
    db.unregister("sent")
    db.unregister("ready")
    db.unregister(CHARGES)
    return remarks


def _stage_words(db: duckdb.DuckDBPyConnection, folder: Path, home: Path) -> list[str]:
    """Stage names, rules, scores, and the questionnaires that the target has or had, as `known_<what>`.

    Returns remarks for readers of scores.
    """
    forms = forms_in(db, folder, known_in(db, folder / FILES[QUESTIONNAIRE][0]), home)
    questionnaires, questions, options = rows_of(forms.bodies)
    db.register("swept", forms.known)
    db.register("rows", questionnaires)
    db.execute("CREATE TEMP TABLE known_questionnaire AS FROM rows INNER JOIN swept USING (questionnaire_id)")
    db.unregister("rows")
    db.unregister("swept")
    staged = {"question": questions, "option": options, "name": named_in(folder), "rule": _rules()}
    staged |= {"address": forms.address, "form": forms.form}
    met, remarks = scores_of_home(home, questionnaires, questions, options)
    staged |= {"score": met.score, "score_item": met.item, "score_value": met.value, "score_band": met.band}
    for name, table in staged.items():
        db.register("rows", table)
        db.execute(f"CREATE TEMP TABLE known_{name} AS SELECT * FROM rows")
        db.unregister("rows")
    return remarks


def _stage_checks(db: duckdb.DuckDBPyConnection, batches: Path, target: str) -> None:
    """Stage as `checked_form` the contents that runs checked answers by, if they are known contents of a form.

    Other contents are older than the first sweep, or another version of this program named them.
    """
    ids = [batch_id for (batch_id,) in db.execute(ANSWERS_OF_TARGET).fetchall()]
    db.register("rows", checked_by(batches, target, ids))
    db.execute("CREATE TEMP TABLE checked_form AS FROM rows SEMI JOIN known_form USING (questionnaire_id, content)")
    db.unregister("rows")


def _rules() -> pa.Table:
    rows = [(rule_id, entry.sentence, entry.basis, entry.do) for rule_id, entry in rules().items()]
    return arrow.table_of_rows(rows, RULE)


def _files_of_runs(batches: Iterable[Path], name: str, target: str) -> list[str]:
    """Return the complete files of this name in the runs' folders, without runs for another target."""
    paths = (path for batch in batches for path in matching(batch, f"run-*/{name}"))
    return [str(path) for path in paths if not is_of_another(path.parent, target) and is_whole(path)]


def stage_publication(db: duckdb.DuckDBPyConnection, sweep: Sweep, published_at: str) -> None:
    db.execute(
        """CREATE TEMP TABLE this_publication AS SELECT
            ?::TIMESTAMPTZ AS published_at, ?::VARCHAR AS target, ?::BIGINT AS reports_total,
            (SELECT count(*) FROM ledger_batch) AS batches, ?::VARCHAR AS software_version""",
        [published_at, sweep.target, sweep.total, version("chartferry")],
    )
