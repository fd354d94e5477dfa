-- Makes swept_response from the responses that the target shows (relation read_responses: report_id, which is the id of
-- the QuestionnaireResponse, body, first_seen_at, gone_at): a row for each, those that count no longer included.
-- named_id is the questionnaire that it names. If that has former forms (known_form), questionnaire_id is the one form
-- of the contents that the response may name, else the form that was there from its authored time until it was first
-- read; empty if that is not known.
-- A body is parsed once: DuckDB holds 2,048 parsed bodies at once for each function that reads them.
WITH shaped AS (
    SELECT
        report_id,
        first_seen_at,
        gone_at,
        json_transform(body, '{
            "status": "VARCHAR",
            "subject": {"reference": "VARCHAR"},
            "questionnaire": "VARCHAR",
            "authored": "VARCHAR",
            "meta": {"lastUpdated": "VARCHAR"}
        }') AS response
    FROM read_responses
),

given AS (
    SELECT
        report_id AS response_id,
        gone_at IS NULL AND coalesce(response.status, '') IN ('completed', 'amended') AS counts,
        reference_id(response.subject.reference, 'Patient') AS patient_id,
        response.questionnaire AS said,
        moment(response.authored) AS authored_at,
        least(first_seen_at, moment(response.meta.lastupdated)) AS stored_at
    FROM shaped
),

naming AS (
    SELECT
        given.*,
        questionnaire_of(given.said, own.questionnaire_id, other.questionnaire_id, other.is_one) AS named_id,
        CASE WHEN given.said IN (SELECT known_form.named FROM known_form) THEN given.said ELSE named_id END AS named,
        CASE WHEN own.address IS NULL THEN other.is_one END AS is_other_version
    FROM given
    LEFT JOIN known_address AS own ON given.said = own.address
    LEFT JOIN known_address AS other ON other_version_of(given.said) = other.address
),

candidate AS (
    SELECT
        naming.response_id,
        form.form_id,
        naming.is_other_version IS NULL
        AND coalesce(naming.authored_at >= form.from_at, form.from_at IS NULL)
        AND coalesce(naming.stored_at <= form.seen_at, form.seen_at IS NULL) AS is_timely
    FROM naming
    INNER JOIN known_form AS form ON naming.named = form.named
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
    naming.response_id,
    naming.counts,
    naming.patient_id,
    naming.named_id,
    CASE
        WHEN naming.named_id IN (SELECT known_form.questionnaire_id FROM known_form) THEN known.form_id
        WHEN coalesce(naming.is_other_version, TRUE) THEN naming.named_id
    END AS questionnaire_id,
    naming.authored_at
FROM naming
LEFT JOIN known ON naming.response_id = known.response_id
