-- table diagnostic_report_code: One row per coding of a report's code.
-- inputs: swept_report
-- key: report_id, position
-- references: report_id diagnostic_report
-- column report_id VARCHAR key: Id of the report.
-- column position BIGINT code: Place of the coding in the report, from 0.
-- column system VARCHAR term: System of the code.
-- column code VARCHAR term of system: The code.
-- column display VARCHAR text: What the code means, as the target shows it.
SELECT
    swept_report.report_id,
    codings.place - 1 AS position,
    codings.coding.system,
    codings.coding.code,
    codings.coding.display
FROM swept_report,
    unnest(swept_report.codes) WITH ORDINALITY AS codings (coding, place)
ORDER BY swept_report.report_id, position
