-- Makes sent_response from the bodies that the import made ready to send (relation sent: batch_id, line, run,
-- resource_type, body): a row for each response, as the run of its record's outcome made it, else the last run of its
-- file. named_id is the questionnaire that it names. If that has former forms (known_form), questionnaire_id is the one
-- form of the contents that the response may name, else the form that the run checked it by (checked_form), else the
-- one that was there from the run's beginning to the row's end; empty if that is not known.
WITH given AS (
    SELECT
        sent.batch_id,
        sent.line,
        sent.run,
        ledger_run.started_at,
        ledger_record.finished_at,
        questionnaire_of(sent.body ->> '$.questionnaire') AS named_id,
        named_of(sent.body ->> '$.questionnaire') AS named,
        is_other_version(sent.body ->> '$.questionnaire') AS is_other_version,
        answered_items(sent.body) AS answered
    FROM sent
    LEFT JOIN ledger_run
        ON
            sent.batch_id = ledger_run.batch_id AND sent.run = ledger_run.run
            AND ledger_run.target IN (SELECT this_publication.target FROM this_publication)
    LEFT JOIN ledger_record
        ON
            sent.batch_id = ledger_record.batch_id AND sent.line = ledger_record.line
            AND ledger_record.target IN (SELECT this_publication.target FROM this_publication)
    WHERE sent.resource_type = 'QuestionnaireResponse'
    QUALIFY
        row_number() OVER (
            PARTITION BY sent.batch_id, sent.line
            ORDER BY
                ledger_record.finished_at >= ledger_run.started_at
                AND coalesce(ledger_record.finished_at <= ledger_run.finished_at, TRUE) DESC NULLS LAST,
                sent.run DESC
        ) = 1
),

candidate AS (
    SELECT
        given.batch_id,
        given.line,
        form.form_id,
        coalesce(checked_form.content = form.content, FALSE) AS is_checked,
        given.is_other_version IS NULL
        AND coalesce(given.started_at >= form.from_at, form.from_at IS NULL)
        AND coalesce(given.finished_at <= form.seen_at, form.seen_at IS NULL) AS is_timely
    FROM given
    INNER JOIN known_form AS form ON given.named = form.named
    LEFT JOIN checked_form
        ON
            given.batch_id = checked_form.batch_id
            AND given.run = checked_form.run
            AND given.named_id = checked_form.questionnaire_id
),

known AS (
    SELECT
        batch_id,
        line,
        CASE
            WHEN count(DISTINCT form_id) = 1 THEN any_value(form_id)
            WHEN count(DISTINCT form_id) FILTER (WHERE is_checked) = 1 THEN any_value(form_id) FILTER (WHERE is_checked)
            WHEN count(DISTINCT form_id) FILTER (WHERE is_timely) = 1 THEN any_value(form_id) FILTER (WHERE is_timely)
        END AS form_id
    FROM candidate
    GROUP BY batch_id, line
)

SELECT
    given.batch_id,
    given.line,
    given.named_id,
    CASE
        WHEN given.named_id IN (SELECT known_form.questionnaire_id FROM known_form) THEN known.form_id
        WHEN coalesce(given.is_other_version, TRUE) THEN given.named_id
    END AS questionnaire_id,
    given.answered
FROM given
LEFT JOIN known ON given.batch_id = known.batch_id AND given.line = known.line
