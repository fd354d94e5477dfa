-- table result_by_patient: One row per result of a patient, numbered by time for each code and unit. Results in error,
--   cancelled or without a time have no row. Nor have those that only reports name which are entered-in-error or of
--   another patient.
-- inputs: observation, diagnostic_report_result, diagnostic_report
-- key: patient_id, code_system, code, unit, number
-- references: observation_id observation
-- column patient_id VARCHAR patient: Id of the patient.
-- column code_system VARCHAR term: System of the first code.
-- column code VARCHAR term of code_system: First code of what was measured.
-- column code_display VARCHAR text: Display of the first code.
-- column unit VARCHAR term: Unit of the values; those in another unit have numbers of their own.
-- column number BIGINT value: Place of the result among those of the patient, the code and the unit, from 1, by time.
-- column observation_id VARCHAR key: Id of the Observation.
-- column effective_at TIMESTAMPTZ time: Clinically relevant time, UTC.
-- column value DOUBLE value: The value, where it is a number.
-- column comparator VARCHAR term: <, <=, >= or >, where the value is a bound.
-- column value_code VARCHAR term: Code of a coded value.
-- column value_display VARCHAR text: The coded value in words.
-- column interpretation VARCHAR term: First code of the interpretation.
-- column is_abnormal BOOLEAN code: As in observation.
-- column previous_value DOUBLE value: The value before; empty for the first one, and where either is a bound.
-- column change DOUBLE value: The value less the one before.
-- column days_since_previous BIGINT value: Whole days since the one before.
WITH disowned_result AS (
    SELECT named.observation_id
    FROM diagnostic_report_result AS named
    INNER JOIN diagnostic_report AS report ON named.report_id = report.report_id
    GROUP BY named.observation_id
    HAVING NOT bool_or(named.state <> 'other patient' AND coalesce(report.status, '') <> 'entered-in-error')
),

in_order AS (
    SELECT
        *,
        row_number() OVER over_time AS number,
        CASE WHEN comparator IS NULL AND lag(comparator) OVER over_time IS NULL THEN lag(value) OVER over_time END
            AS previous_value,
        lag(effective_at) OVER over_time AS previous_at
    FROM observation
    ANTI JOIN disowned_result ON observation.observation_id = disowned_result.observation_id
    WHERE
        coalesce(status, '') NOT IN ('entered-in-error', 'cancelled')
        AND patient_id IS NOT NULL
        AND code IS NOT NULL
        AND effective_at IS NOT NULL
    WINDOW over_time AS (
        PARTITION BY patient_id, code_system, code, unit ORDER BY effective_at, observation_id
    )
)

SELECT
    patient_id,
    code_system,
    code,
    code_display,
    unit,
    number,
    observation_id,
    effective_at,
    value,
    comparator,
    value_code,
    value_display,
    interpretation,
    is_abnormal,
    previous_value,
    finite(value - previous_value) AS change,
    date_sub('day', previous_at, effective_at) AS days_since_previous
FROM in_order
ORDER BY patient_id, code_system, code, unit, number
