-- Makes told_form from sent_response and swept_response: a row for each response. named_id is the questionnaire that it
-- names. If that has former forms (known_form), questionnaire_id is the one form of the contents that the response may
-- name, else the form that the run checked it by (checked_form), else the one that was there all the while: from the
-- run's beginning to the row's end, or from its authored time until it was first read. Empty if that is not known. A
-- response that was sent is as it was sent; where that does not tell its form, as the target shows it.
WITH given AS (
    SELECT
        response_id,
        TRUE AS is_sent,
        said,
        batch_id,
        run,
        started_at AS since,
        finished_at AS until
    FROM sent_response
    UNION ALL BY NAME
    SELECT
        response_id,
        FALSE AS is_sent,
        said,
        authored_at AS since,
        stored_at AS until
    FROM swept_response
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
        naming.is_sent,
        form.form_id,
        coalesce(checked_form.content = form.content, FALSE) AS is_checked,
        naming.is_other_version IS NULL
        AND coalesce(naming.since >= form.from_at, form.from_at IS NULL)
        AND coalesce(naming.until <= form.seen_at, form.seen_at IS NULL) AS is_timely
    FROM naming
    INNER JOIN known_form AS form ON naming.named = form.named
    LEFT JOIN checked_form
        ON
            naming.batch_id = checked_form.batch_id
            AND naming.run = checked_form.run
            AND naming.named_id = checked_form.questionnaire_id
),

known AS (
    SELECT
        response_id,
        is_sent,
        CASE
            WHEN count(DISTINCT form_id) = 1 THEN any_value(form_id)
            WHEN count(DISTINCT form_id) FILTER (WHERE is_checked) = 1 THEN any_value(form_id) FILTER (WHERE is_checked)
            WHEN count(DISTINCT form_id) FILTER (WHERE is_timely) = 1 THEN any_value(form_id) FILTER (WHERE is_timely)
        END AS form_id
    FROM candidate
    GROUP BY response_id, is_sent
),

found AS (
    SELECT
        naming.response_id,
        naming.is_sent,
        naming.named_id,
        CASE
            WHEN naming.named_id IN (SELECT known_form.questionnaire_id FROM known_form) THEN known.form_id
            WHEN coalesce(naming.is_other_version, TRUE) THEN naming.named_id
        END AS questionnaire_id
    FROM naming
    LEFT JOIN known ON naming.response_id = known.response_id AND naming.is_sent = known.is_sent
)

SELECT
    response_id,
    bool_or(is_sent) AS is_sent,
    coalesce(any_value(named_id) FILTER (WHERE is_sent), any_value(named_id)) AS named_id,
    coalesce(any_value(questionnaire_id) FILTER (WHERE is_sent), any_value(questionnaire_id)) AS questionnaire_id
FROM found
GROUP BY response_id
