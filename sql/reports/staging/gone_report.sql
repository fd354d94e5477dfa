-- Makes gone_report from the sweep's Parquet (relation sweep): the reports that the target no longer has.
SELECT
    report_id,
    body ->> '$.status' AS status,
    json_extract(body, '$.category[*].coding[*]')[1] ->> '$.code' AS category_code,
    first_seen_at,
    changed_at,
    gone_at
FROM sweep
WHERE gone_at IS NOT NULL
