-- Makes swept_response from the responses that the target shows (relation read_responses: report_id, which is the id of
-- the QuestionnaireResponse, body, first_seen_at, gone_at): a row for each, those that count no longer included.
-- named_id is the questionnaire that it names. If that has former forms (known_form), questionnaire_id is the one form
-- of the contents that the response may name, else the form that was there from its authored time until it was first
-- read; empty if that is not known.
WITH given AS (
    SELECT
        report_id AS response_id,
        gone_at IS NULL AND coalesce(body ->> '$.status', '') IN ('completed', 'amended') AS counts,
        reference_id(body ->> '$.subject.reference', 'Patient') AS patient_id,
        questionnaire_of(body ->> '$.questionnaire') AS named_id,
        named_of(body ->> '$.questionnaire') AS named,
        is_other_version(body ->> '$.questionnaire') AS is_other_version,
        moment(body ->> '$.authored') AS authored_at,
        least(first_seen_at, moment(body ->> '$.meta.lastUpdated')) AS stored_at,
        answered_items(body) AS answered
    FROM read_responses
),

candidate AS (
    SELECT
        given.response_id,
        form.form_id,
        given.is_other_version IS NULL
        AND coalesce(given.authored_at >= form.from_at, form.from_at IS NULL)
        AND coalesce(given.stored_at <= form.seen_at, form.seen_at IS NULL) AS is_timely
    FROM given
    INNER JOIN known_form AS form ON given.named = form.named
),

known AS (
    SELECT
        response_id,
        CASE
            WHEN count(DISTINCT form_id) = 1 THEN any_value(form_id)
            WHEN count(DISTINCT form_id) FILTER (WHERE is_timely) = 1 THEN any_value(form_id) FILTER (WHERE is_timely)
        END AS form_id
    FROM candidate
    GROUP BY response_id
)

SELECT
    given.response_id,
    given.counts,
    given.patient_id,
    given.named_id,
    CASE
        WHEN given.named_id IN (SELECT known_form.questionnaire_id FROM known_form) THEN known.form_id
        WHEN coalesce(given.is_other_version, TRUE) THEN given.named_id
    END AS questionnaire_id,
    given.authored_at,
    given.answered
FROM given
LEFT JOIN known ON given.response_id = known.response_id
