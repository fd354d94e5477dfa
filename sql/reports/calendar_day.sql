-- table calendar_day: One row per UTC day from the first day that payments, records or reports tell of to this
--   publication, at most 40 years back. Joined with a count by day, it shows empty days as zero.
-- inputs: import_row, payment, diagnostic_report, this_publication
-- key: day
-- column day DATE internal: The day.
-- column month DATE internal: First day of its month.
-- column week DATE internal: The Monday of its week.
-- column year BIGINT internal: Its year.
-- column quarter BIGINT internal: Its quarter, 1 to 4.
-- column weekday BIGINT internal: Its weekday, from 1 (Monday) to 7 (Sunday).
WITH told AS (
    SELECT source_at::DATE AS day FROM import_row
    UNION
    SELECT paid_on AS day FROM payment
    UNION
    SELECT effective_at::DATE AS day FROM diagnostic_report
),

span AS (
    SELECT
        this_publication.published_at::DATE AS last_day,
        coalesce(min(told.day), last_day) AS first_day
    FROM this_publication
    LEFT JOIN told
        ON
            told.day BETWEEN this_publication.published_at - INTERVAL 40 YEAR
            AND this_publication.published_at
    GROUP BY this_publication.published_at
),

days AS (
    SELECT unnest(generate_series(first_day, last_day, INTERVAL 1 DAY))::DATE AS day
    FROM span
)

SELECT
    day,
    date_trunc('month', day)::DATE AS month,
    date_trunc('week', day)::DATE AS week,
    year(day) AS year,
    quarter(day) AS quarter,
    isodow(day) AS weekday
FROM days
ORDER BY day
