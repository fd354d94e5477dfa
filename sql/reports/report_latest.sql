-- table report_latest: The latest report per patient and first code, without entered-in-error.
-- inputs: diagnostic_report
-- key: patient_id, code_system, code, uncoded_name
-- column patient_id VARCHAR patient: Id of the patient.
-- column code_system VARCHAR term: System of the code.
-- column code VARCHAR term of code_system: First code of the report.
-- column uncoded_name VARCHAR text: Plain-text name of a report without a code, which stands in for the code; else
--   empty.
-- column report_id VARCHAR key: Id of the report with the latest effective_at; of several, the one issued last.
-- column code_display VARCHAR text: Display of the code in that report.
-- column category_code VARCHAR term: First category code of that report.
-- column effective_at TIMESTAMPTZ time: Clinically relevant time of that report, UTC.
-- column issued_at TIMESTAMPTZ time: When it was made, UTC.
-- column result_count BIGINT value: Number of its observations.
-- column reports BIGINT value: Number of reports of this code that the patient has, this one included.
WITH named AS (
    SELECT
        *,
        CASE WHEN code IS NULL THEN code_text END AS uncoded_name
    FROM diagnostic_report
    WHERE status IS DISTINCT FROM 'entered-in-error' AND patient_id IS NOT NULL
)

SELECT
    patient_id,
    code_system,
    code,
    uncoded_name,
    report_id,
    code_display,
    category_code,
    effective_at,
    issued_at,
    result_count,
    count(*) OVER (PARTITION BY patient_id, code_system, code, uncoded_name) AS reports
FROM named
QUALIFY
    row_number() OVER (
        PARTITION BY patient_id, code_system, code, uncoded_name
        ORDER BY effective_at DESC NULLS LAST, issued_at DESC NULLS LAST, report_id DESC
    ) = 1
ORDER BY patient_id, code_system, code, uncoded_name
