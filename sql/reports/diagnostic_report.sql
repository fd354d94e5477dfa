-- table diagnostic_report: One row per DiagnosticReport of the target, as the last sweep found it.
-- inputs: swept_report
-- key: report_id
-- column report_id VARCHAR key: Id of the report at the target.
-- column status VARCHAR term: final or entered-in-error.
-- column category_system VARCHAR term: System of the first coding of its categories.
-- column category_code VARCHAR term of category_system: Code of the first coding of its categories, such as LAB or
--   LP29684-5 (Radiology).
-- column category_display VARCHAR text: Display of the first coding of its categories.
-- column code_system VARCHAR term: System of the report code's first coding.
-- column code VARCHAR term of code_system: First code of the report.
-- column code_display VARCHAR text: Display of the first code.
-- column code_text VARCHAR text: Plain-text name of the report.
-- column patient_id VARCHAR patient: Id of the patient.
-- column encounter_id VARCHAR key: Id of the encounter, where a review of the report was committed in a note.
-- column effective_at TIMESTAMPTZ time: Clinically relevant time, UTC. A date without time is the start of that UTC
--   day.
-- column issued_at TIMESTAMPTZ time: When this version was made, UTC.
-- column turnaround_hours DOUBLE hours: Hours from effective_at to issued_at; empty when one is missing or is a date
--   without time; negative when issued before effective.
-- column result_count BIGINT value: Number of observations.
-- column performer_count BIGINT value: Number of performers.
-- column document_count BIGINT value: Number of documents attached.
SELECT
    report_id,
    status,
    categories[1].system AS category_system,
    categories[1].code AS category_code,
    categories[1].display AS category_display,
    codes[1].system AS code_system,
    codes[1].code AS code,
    codes[1].display AS code_display,
    code_text,
    patient_id,
    encounter_id,
    effective_at,
    issued_at,
    CASE WHEN times_are_whole THEN date_diff('microsecond', effective_at, issued_at) / 3600000000.0 END
        AS turnaround_hours,
    len(result_ids) AS result_count,
    len(performer_ids) AS performer_count,
    document_count
FROM swept_report
ORDER BY report_id
