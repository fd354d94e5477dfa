-- Makes sent_response from the bodies that the import made ready to send (relation sent: batch_id, line, run,
-- resource_type, body): a row for each response, as the last run of its file made it. named_id is the questionnaire
-- that it names. If that has former forms (known_form) and the response names no version, questionnaire_id is the form
-- that the run checked it by (checked_form), else the one that was there from the run's beginning to the row's end;
-- empty if that is not known.
WITH given AS (
    SELECT
        batch_id,
        line,
        run,
        questionnaire_of(body ->> '$.questionnaire') AS named_id,
        answered_items(body) AS answered
    FROM sent
    WHERE resource_type = 'QuestionnaireResponse'
    QUALIFY row_number() OVER (PARTITION BY batch_id, line ORDER BY run DESC) = 1
),

known AS (
    SELECT
        given.batch_id,
        given.line,
        CASE WHEN count(DISTINCT form.form_id) = 1 THEN any_value(form.form_id) END AS form_id
    FROM given
    INNER JOIN known_form AS form ON given.named_id = form.questionnaire_id
    LEFT JOIN checked_form
        ON
            given.batch_id = checked_form.batch_id
            AND given.run = checked_form.run
            AND given.named_id = checked_form.questionnaire_id
    LEFT JOIN ledger_run
        ON
            given.batch_id = ledger_run.batch_id AND given.run = ledger_run.run
            AND ledger_run.target IN (SELECT this_publication.target FROM this_publication)
    LEFT JOIN ledger_record
        ON
            given.batch_id = ledger_record.batch_id AND given.line = ledger_record.line
            AND ledger_record.target IN (SELECT this_publication.target FROM this_publication)
    WHERE
        CASE
            WHEN checked_form.content IS NOT NULL THEN checked_form.content = form.content
            ELSE
                coalesce(ledger_run.started_at >= form.from_at, form.from_at IS NULL)
                AND coalesce(ledger_record.finished_at <= form.seen_at, form.seen_at IS NULL)
        END
    GROUP BY given.batch_id, given.line
)

SELECT
    given.batch_id,
    given.line,
    split_part(given.named_id, '~', 1) AS named_id,
    CASE
        WHEN given.named_id IN (SELECT known_form.questionnaire_id FROM known_form) THEN known.form_id
        WHEN NOT ends_with(given.named_id, '~') THEN replace(given.named_id, '~0', '')
    END AS questionnaire_id,
    given.answered
FROM given
LEFT JOIN known ON given.batch_id = known.batch_id AND given.line = known.line
