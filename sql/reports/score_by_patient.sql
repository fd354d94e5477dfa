-- table score_by_patient: The complete scores of each patient over time, a row each.
-- inputs: score
-- key: patient_id, score_name, number
-- column patient_id VARCHAR: Id of the patient.
-- column score_name VARCHAR: Name of the score.
-- column number BIGINT: Place of the score among those of the patient, from 1, by time.
-- column response_id VARCHAR: Id of the QuestionnaireResponse at the target.
-- column questionnaire VARCHAR: Name of the questionnaire.
-- column authored_at TIMESTAMPTZ: When the response was given in its source, UTC; else when it was sent.
-- column value DOUBLE: The score.
-- column band VARCHAR: What the value means.
-- column previous_value DOUBLE: The score before; empty for the first one.
-- column change DOUBLE: The score less the one before.
-- column days_since_previous BIGINT: Whole days since the one before.
WITH in_order AS (
    SELECT
        *,
        row_number() OVER over_time AS number,
        lag(value) OVER over_time AS previous_value,
        lag(authored_at) OVER over_time AS previous_at
    FROM score
    WHERE complete
    WINDOW over_time AS (PARTITION BY patient_id, score_name ORDER BY authored_at, response_id)
)

SELECT
    patient_id,
    score_name,
    number,
    response_id,
    questionnaire,
    authored_at,
    value,
    band,
    previous_value,
    value - previous_value AS change,
    date_sub('day', previous_at, authored_at) AS days_since_previous
FROM in_order
ORDER BY patient_id, score_name, number
