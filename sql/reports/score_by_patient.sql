-- table score_by_patient: One row per complete score of a patient, numbered by time.
-- inputs: score
-- key: patient_id, score_name, number
-- column patient_id VARCHAR patient: Id of the patient.
-- column score_name VARCHAR words: Name of the score.
-- column number BIGINT value: Place of the score among those of the patient, from 1, by time.
-- column response_id VARCHAR key: Id of the QuestionnaireResponse at the target.
-- column questionnaire VARCHAR words: Name of the questionnaire.
-- column authored_at TIMESTAMPTZ time: When the response was given in its source, UTC; else when it was sent.
-- column value DOUBLE value: The score.
-- column band VARCHAR words: What the value means.
-- column previous_value DOUBLE value: The score before; empty for the first one.
-- column change DOUBLE value: The score less the one before.
-- column days_since_previous BIGINT value: Whole days since the one before.
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
