-- Makes replaced_batch from the ledger: the batches of which nothing was sent and in whose place a file of their name
-- went well later, as for the page. Where this program failed on a file, which its last run tells, no other one
-- replaces it.
WITH last_run AS (
    SELECT
        target,
        batch_id,
        arg_max(state, run) AS state
    FROM ledger_run
    GROUP BY target, batch_id
),

went_well AS (
    SELECT
        target,
        feed,
        file_name,
        max(finished_at) AS finished_at
    FROM ledger_batch
    WHERE
        state = 'finished'
        AND (records = 0 OR created + adopted + updated + superseded + unchanged + skipped > 0)
    GROUP BY target, feed, file_name
)

SELECT
    ledger_batch.target,
    ledger_batch.batch_id
FROM ledger_batch
SEMI JOIN went_well
    ON
        ledger_batch.target = went_well.target
        AND ledger_batch.feed = went_well.feed
        AND ledger_batch.file_name IS NOT DISTINCT FROM went_well.file_name
        AND ledger_batch.received_at < went_well.finished_at
LEFT JOIN last_run ON ledger_batch.target = last_run.target AND ledger_batch.batch_id = last_run.batch_id
WHERE ledger_batch.state IN ('stopped', 'failed') AND last_run.state IS DISTINCT FROM 'cut off'
