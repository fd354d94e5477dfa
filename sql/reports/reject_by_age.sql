-- table reject_by_age: Open rejects per feed, stage and age at this publication.
-- inputs: reject, import_batch, this_publication
-- key: feed, stage, age_from_days
-- column feed VARCHAR internal: Feed that read the file.
-- column stage VARCHAR internal: Where they were set aside: parse, map, rule or load.
-- column age_from_days BIGINT internal: Days since first_seen_at, rounded down to 0, 1, 7 or 30.
-- column age VARCHAR internal: age_from_days in words: under 1 day, 1 to 6 days, 7 to 29 days, 30 days or more.
-- column rejects BIGINT internal: Number of open rejects.
-- column first_seen_at TIMESTAMPTZ internal: When the oldest of them was first set aside, UTC.
WITH open_reject AS (
    SELECT
        import_batch.feed,
        reject.stage,
        reject.first_seen_at,
        date_sub('day', reject.first_seen_at, this_publication.published_at) AS days
    FROM reject
    CROSS JOIN this_publication
    LEFT JOIN import_batch
        ON reject.batch_id = import_batch.batch_id AND this_publication.target = import_batch.target
    WHERE reject.state = 'open'
),

aged AS (
    SELECT
        *,
        CASE WHEN days >= 30 THEN 30 WHEN days >= 7 THEN 7 WHEN days >= 1 THEN 1 ELSE 0 END::BIGINT AS age_from_days
    FROM open_reject
)

SELECT
    feed,
    stage,
    age_from_days,
    CASE age_from_days
        WHEN 30 THEN '30 days or more' WHEN 7 THEN '7 to 29 days' WHEN 1 THEN '1 to 6 days' ELSE 'under 1 day'
    END AS age,
    count(*) AS rejects,
    min(first_seen_at) AS first_seen_at
FROM aged
GROUP BY feed, stage, age_from_days
ORDER BY feed, stage, age_from_days
