-- table calendar_month: One row per UTC month of calendar_day. Joined with a count by month, it shows empty ones as
--   zero.
-- inputs: calendar_day
-- key: month
-- column month DATE internal: First day of the month.
-- column year BIGINT internal: Its year.
-- column quarter BIGINT internal: Its quarter, 1 to 4.
-- column days BIGINT internal: Number of its days in calendar_day: fewer in the first and the last month.
SELECT
    month,
    any_value(year) AS year,
    any_value(quarter) AS quarter,
    count(*) AS days
FROM calendar_day
GROUP BY month
ORDER BY month
