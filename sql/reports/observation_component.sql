-- table observation_component: One row per component of a result, such as the systolic and the diastolic pressure.
-- inputs: swept_result
-- key: observation_id, position
-- references: observation_id observation
-- column observation_id VARCHAR key: Id of the Observation.
-- column position BIGINT code: Place of the component, from 1.
-- column patient_id VARCHAR patient: Id of the patient.
-- column code_system VARCHAR term: System of the first code.
-- column code VARCHAR term of code_system: First code of what was measured.
-- column code_display VARCHAR text: Display of the first code.
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
SELECT
    observation_id,
    position::BIGINT AS position,
    patient_id,
    codes[1].system AS code_system,
    codes[1].code AS code,
    codes[1].display AS code_display,
    value,
    comparator,
    unit,
    value_system,
    value_code,
    value_display,
    value_text,
    absent_reason,
    interpretation,
    interpretation_display,
    range_low,
    range_high,
    is_abnormal
FROM swept_result
WHERE position > 0
ORDER BY observation_id, position
