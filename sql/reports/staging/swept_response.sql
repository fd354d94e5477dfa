-- Makes swept_response from the responses that the target shows (relation read_responses: report_id, which is the id of
-- the QuestionnaireResponse, body, first_seen_at, gone_at): a row for each, those that count no longer included.
-- named_id is the questionnaire that it names. If that has former forms (known_form) and the response names no version,
-- questionnaire_id is the form that was there from its authored time until it was first read; empty if that is not
-- known.
WITH given AS (
    SELECT
        report_id AS response_id,
        gone_at IS NULL AND coalesce(body ->> '$.status', '') IN ('completed', 'amended') AS counts,
        reference_id(body ->> '$.subject.reference', 'Patient') AS patient_id,
        questionnaire_of(body ->> '$.questionnaire') AS named_id,
        moment(body ->> '$.authored') AS authored_at,
        least(first_seen_at, moment(body ->> '$.meta.lastUpdated')) AS stored_at,
        answered_items(body) AS answered
    FROM read_responses
),

known AS (
    SELECT
        given.response_id,
        CASE WHEN count(DISTINCT form.form_id) = 1 THEN any_value(form.form_id) END AS form_id
    FROM given
    INNER JOIN known_form AS form
        ON
            given.named_id = form.questionnaire_id
            AND coalesce(given.authored_at >= form.from_at, form.from_at IS NULL)
            AND coalesce(given.stored_at <= form.seen_at, form.seen_at IS NULL)
    GROUP BY given.response_id
)

SELECT
    given.response_id,
    given.counts,
    given.patient_id,
    split_part(given.named_id, '~', 1) AS named_id,
    CASE
        WHEN given.named_id IN (SELECT known_form.questionnaire_id FROM known_form) THEN known.form_id
        WHEN NOT ends_with(given.named_id, '~') THEN replace(given.named_id, '~0', '')
    END AS questionnaire_id,
    given.authored_at,
    given.answered
FROM given
LEFT JOIN known ON given.response_id = known.response_id
