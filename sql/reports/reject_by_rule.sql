-- table reject_by_rule: Rejects per stage and rule that they break. A reject that breaks several rules counts for each.
-- inputs: reject, reject_reason
-- key: rule_id, stage
-- column rule_id VARCHAR internal: Rule that the records break, as in the list of requirements.
-- column stage VARCHAR internal: Where they were set aside: parse, map, rule or load.
-- column rejects BIGINT internal: Number of rejects, in whatever state.
-- column still_open BIGINT internal: Of these, the open ones, which nothing has settled yet.
-- column retryable BIGINT internal: Of the open ones, those that another try may help without a correction.
-- column first_seen_at TIMESTAMPTZ internal: When the first of them was set aside, UTC.
-- column last_seen_at TIMESTAMPTZ internal: When the last of them was set aside, UTC.
WITH broken AS (
    SELECT
        rule_id,
        reject_id,
        bool_or(retryable) AS is_retryable
    FROM reject_reason
    GROUP BY rule_id, reject_id
)

SELECT
    broken.rule_id,
    reject.stage,
    count(*) AS rejects,
    count(*) FILTER (WHERE reject.state = 'open') AS still_open,
    count(*) FILTER (WHERE reject.state = 'open' AND broken.is_retryable) AS retryable,
    min(reject.first_seen_at) AS first_seen_at,
    max(reject.last_seen_at) AS last_seen_at
FROM broken
INNER JOIN reject ON broken.reject_id = reject.reject_id
GROUP BY broken.rule_id, reject.stage
ORDER BY broken.rule_id, reject.stage
