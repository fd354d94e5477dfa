-- Makes swept_report, which the report tables read, from the sweep's Parquet (relation sweep: report_id, body, changes,
-- first_seen_at, changed_at, gone_at).
-- Bodies of present reports are read as JSON only here; an element of another shape than the interface's becomes empty.
-- A result within the report has the id of the report, # and its own. What is named several times counts once.
-- Names of fields are in lower case, since DuckDB ignores case.
WITH shaped AS (
    SELECT
        report_id,
        changes,
        first_seen_at,
        changed_at,
        json_transform(body, '{
            "status": "VARCHAR",
            "category": [{"coding": [{"system": "VARCHAR", "code": "VARCHAR", "display": "VARCHAR"}]}],
            "code": {"coding": [{"system": "VARCHAR", "code": "VARCHAR", "display": "VARCHAR"}], "text": "VARCHAR"},
            "subject": {"reference": "VARCHAR"},
            "encounter": {"reference": "VARCHAR"},
            "effectiveDateTime": "VARCHAR",
            "issued": "VARCHAR",
            "performer": [{"reference": "VARCHAR"}],
            "result": [{"reference": "VARCHAR"}],
            "presentedForm": [{"url": "VARCHAR"}]
        }') AS report
    FROM sweep
    WHERE gone_at IS NULL
)

SELECT
    report_id,
    changes,
    first_seen_at,
    changed_at,
    report.status,
    flatten(list_transform(coalesce(report.category, []), LAMBDA each: coalesce(each.coding, []))) AS categories,
    coalesce(report.code.coding, []) AS codes,
    report.code.text AS code_text,
    reference_id(report.subject.reference, 'Patient') AS patient_id,
    reference_id(report.encounter.reference, 'Encounter') AS encounter_id,
    moment(report.effectivedatetime) AS effective_at,
    contains(report.effectivedatetime, 'T') AND contains(report.issued, 'T') AS times_are_whole,
    moment(report.issued) AS issued_at,
    list_distinct(reference_ids(report.performer, 'Practitioner')) AS performer_ids,
    list_distinct(list_concat(
        reference_ids(report.result, 'Observation'),
        list_transform(
            list_filter(
                coalesce(report.result, []),
                LAMBDA each: regexp_full_match(each.reference, '#[A-Za-z0-9.-]{1,64}')
            ),
            LAMBDA each: report_id || each.reference
        )
    )) AS result_ids,
    len(coalesce(report.presentedform, [])) AS document_count
FROM shaped
