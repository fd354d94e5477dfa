-- Makes sent_response from landed, body_of_version and the bodies that the import made ready to send (relation sent): a
-- row for each response that the target has, as it was sent. named_id is the questionnaire that it names. If that has
-- former forms (known_form), questionnaire_id is the one form of the contents that the response may name, else the form
-- that the run checked it by (checked_form), else the one that was there from the run's beginning to the row's end;
-- empty if that is not known.
WITH given AS (
    SELECT
        landed.resource_id,
        sent.batch_id,
        sent.run,
        ledger_run.started_at,
        landed.finished_at,
        sent.body ->> '$.questionnaire' AS said
    FROM landed
    INNER JOIN body_of_version AS place
        ON
            landed.resource_type = place.resource_type
            AND landed.source = place.source
            AND landed.key = place.key
            AND landed.version IS NOT DISTINCT FROM place.version
    INNER JOIN sent
        ON
            place.body_batch_id = sent.batch_id
            AND place.body_folder = sent.folder
            AND place.body_line = sent.line
    LEFT JOIN ledger_run
        ON landed.target = ledger_run.target AND sent.batch_id = ledger_run.batch_id AND sent.run = ledger_run.run
    WHERE landed.resource_type = 'QuestionnaireResponse'
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
        naming.resource_id,
        form.form_id,
        coalesce(checked_form.content = form.content, FALSE) AS is_checked,
        naming.is_other_version IS NULL
        AND coalesce(naming.started_at >= form.from_at, form.from_at IS NULL)
        AND coalesce(naming.finished_at <= form.seen_at, form.seen_at IS NULL) AS is_timely
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
        resource_id,
        CASE
            WHEN count(DISTINCT form_id) = 1 THEN any_value(form_id)
            WHEN count(DISTINCT form_id) FILTER (WHERE is_checked) = 1 THEN any_value(form_id) FILTER (WHERE is_checked)
            WHEN count(DISTINCT form_id) FILTER (WHERE is_timely) = 1 THEN any_value(form_id) FILTER (WHERE is_timely)
        END AS form_id
    FROM candidate
    GROUP BY resource_id
)

SELECT
    naming.resource_id,
    naming.named_id,
    CASE
        WHEN naming.named_id IN (SELECT known_form.questionnaire_id FROM known_form) THEN known.form_id
        WHEN coalesce(naming.is_other_version, TRUE) THEN naming.named_id
    END AS questionnaire_id
FROM naming
LEFT JOIN known ON naming.resource_id = known.resource_id
