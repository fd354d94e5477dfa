-- table observation: One row per result (Observation) that a report of the target names, as last read. Where the target
--   shows no Observations, those within reports alone.
-- inputs: swept_result
-- key: observation_id
-- column observation_id VARCHAR key: Id of the Observation; of one within its report, the report's id, # and its own.
-- column status VARCHAR term: Such as final, corrected or entered-in-error.
-- column category_code VARCHAR term: First code of its category, such as laboratory.
-- column patient_id VARCHAR patient: Id of the patient.
-- column encounter_id VARCHAR key: Id of the encounter.
-- column code_system VARCHAR term: System of the first code.
-- column code VARCHAR term of code_system: First code of what was measured.
-- column code_display VARCHAR text: Display of the first code.
-- column code_text VARCHAR text: Plain-text name of what was measured.
-- column effective_at TIMESTAMPTZ time: Clinically relevant time, UTC; the start of a period. A date without time is
--   the start of that UTC day.
-- column issued_at TIMESTAMPTZ time: When this version was made, UTC.
-- column value DOUBLE value: The value, of a quantity or a whole number.
-- column comparator VARCHAR term: <, <=, >= or >, where the value is a bound; empty for an exact one.
-- column unit VARCHAR term: Unit of the value.
-- column value_system VARCHAR term: System of a coded value.
-- column value_code VARCHAR term of value_system: Code of a coded value; true or false for a value of yes or no.
-- column value_display VARCHAR text: The coded value in words.
-- column value_text VARCHAR text: A value in free text; empty unless the setting publish_free_text is set.
-- column absent_reason VARCHAR term: Code of the reason why there is no value.
-- column interpretation VARCHAR term: First code of the interpretation, such as H (high), L (low) or N (normal).
-- column interpretation_display VARCHAR text: The interpretation in words.
-- column range_low DOUBLE value: Lower end of the normal range. Empty where the result has no range, several, or one in
--   another unit than the value's (by their codes where both have one).
-- column range_high DOUBLE value: Upper end of the normal range.
-- column is_abnormal BOOLEAN code: By the interpretation, where it says so (A, AA, H, HH, HU, L, LL, LU are abnormal, N
--   is not), else by the range; empty where neither tells.
-- column component_count BIGINT value: Number of its components, which are in observation_component.
-- column changes BIGINT internal: Number of later readings that found other content.
WITH component AS (
    SELECT
        observation_id,
        count(*) AS components
    FROM swept_result
    WHERE position > 0
    GROUP BY observation_id
)

SELECT
    result.observation_id,
    result.status,
    result.category_code,
    result.patient_id,
    result.encounter_id,
    result.codes[1].system AS code_system,
    result.codes[1].code AS code,
    result.codes[1].display AS code_display,
    result.code_text,
    result.effective_at,
    result.issued_at,
    result.value,
    result.comparator,
    result.unit,
    result.value_system,
    result.value_code,
    result.value_display,
    result.value_text,
    result.absent_reason,
    result.interpretation,
    result.interpretation_display,
    result.range_low,
    result.range_high,
    result.is_abnormal,
    coalesce(component.components, 0) AS component_count,
    result.changes
FROM swept_result AS result
LEFT JOIN component ON result.observation_id = component.observation_id
WHERE result.position = 0
ORDER BY result.observation_id
