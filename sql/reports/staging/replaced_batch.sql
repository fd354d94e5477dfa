-- Makes replaced_batch from the ledger: the batches of which nothing was sent and in whose place a file of their name
-- went well later, as for the page.
WITH went_well AS (
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
WHERE ledger_batch.state IN ('stopped', 'failed')
