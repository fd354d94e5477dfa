-- table report_change_by_day: Reports that sweeps found new, corrected or gone, per day and first category. The
--   interface does not tell an amended report from a final one, so corrections are found by comparing sweeps. A
--   report that changed several times counts on the day of its last change.
-- inputs: swept_report, gone_report
-- key: day, category_code
-- column day DATE internal: UTC day of the sweep that found it.
-- column category_code VARCHAR internal: First category code of the reports.
-- column appeared BIGINT internal: Reports seen for the first time, those that are gone again included.
-- column corrected BIGINT internal: Reports found with other content than before; those that are gone are left out.
-- column entered_in_error BIGINT internal: Of the corrected ones, those that are entered-in-error now.
-- column gone BIGINT internal: Reports that the target no longer has.
WITH known AS (
    SELECT
        report_id,
        categories[1].code AS category_code,
        status,
        first_seen_at,
        changed_at
    FROM swept_report
    UNION ALL BY NAME
    SELECT *
    FROM gone_report
),

found AS (
    SELECT
        unnest([first_seen_at, changed_at, gone_at])::DATE AS day,
        unnest(['appeared', CASE WHEN gone_at IS NULL THEN 'corrected' END, 'gone']) AS what,
        category_code,
        status
    FROM known
)

SELECT
    day,
    category_code,
    count(*) FILTER (WHERE what = 'appeared') AS appeared,
    count(*) FILTER (WHERE what = 'corrected') AS corrected,
    count(*) FILTER (WHERE what = 'corrected' AND status = 'entered-in-error') AS entered_in_error,
    count(*) FILTER (WHERE what = 'gone') AS gone
FROM found
WHERE day IS NOT NULL AND what IS NOT NULL
GROUP BY day, category_code
ORDER BY day, category_code
