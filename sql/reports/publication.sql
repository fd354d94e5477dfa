-- table publication: One row per publication, this one included.
-- inputs: ledger_publication, this_publication
-- key: published_at
-- column published_at TIMESTAMPTZ internal: When the tables were built, UTC.
-- column target VARCHAR internal: The target whose reports were swept.
-- column reports_total BIGINT internal: Number of reports that the target counted.
-- column batches BIGINT internal: Number of batches published.
-- column software_version VARCHAR internal: Version of Chartferry that built the tables.
WITH every_publication AS (
    SELECT * FROM ledger_publication
    UNION ALL BY NAME
    SELECT * FROM this_publication
)

SELECT
    published_at,
    target,
    reports_total,
    batches,
    software_version
FROM every_publication
ORDER BY published_at
