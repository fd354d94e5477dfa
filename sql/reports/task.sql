-- table task: One row per task that the import has made, adopted or updated at the target of this publication, as
--   last sent. A change of the import shows once the target has it; changes in the chart do not show. Tasks that
--   were taken back, or whose source rows were purged, are left out.
-- inputs: landed, ledger_former, ledger_batch, sent_task
-- key: resource_id
-- references: batch_id import_batch
-- column resource_id VARCHAR key: Id of the Task at the target.
-- column source VARCHAR code: System that made the key.
-- column source_key VARCHAR text: The task's key in its source.
-- column batch_id VARCHAR internal: Batch of the file that it was last sent from.
-- column feed VARCHAR internal: Feed that read the file.
-- column file_name VARCHAR text: Name of the file as received.
-- column line BIGINT internal: First physical line of the record in that file.
-- column patient_id VARCHAR patient: Id of the patient; empty for a task without one.
-- column status VARCHAR code: requested, completed or cancelled.
-- column requester_id VARCHAR key: Id of the practitioner who asked for it.
-- column owner_id VARCHAR key: Id of the practitioner who is to do it.
-- column group_id VARCHAR key: Id of the group that is to do it.
-- column authored_at TIMESTAMPTZ time: When it was made in its source, UTC; where that does not say, when it was sent.
-- column authored_is_own BOOLEAN code: True if authored_at is from the source; else it is the time of sending.
-- column due_at TIMESTAMPTZ time: When it is due, UTC. A date without time is the start of that UTC day.
-- column completed_at TIMESTAMPTZ internal: When the import changed it to completed, UTC; empty for one that was
--   completed when first sent, since its source does not say when.
-- column last_changed_at TIMESTAMPTZ internal: When the import made or last changed it, UTC.
-- column labels VARCHAR[] text: Its labels, in alphabetical order; empty without any.
WITH earlier AS (
    SELECT
        ledger_former.target,
        ledger_former.resource_id,
        ledger_former.version,
        ledger_former.finished_at,
        coalesce(sent_task.status, '') AS status
    FROM ledger_former
    LEFT JOIN sent_task
        ON
            ledger_former.source = sent_task.source
            AND ledger_former.key = sent_task.key
            AND ledger_former.version = sent_task.version
    WHERE ledger_former.resource_type = 'Task'
),

-- The last version that was not completed: the one after it was the change to completed.
unfinished AS (
    SELECT
        target,
        resource_id,
        max(version) AS version
    FROM earlier
    WHERE status <> 'completed'
    GROUP BY target, resource_id
),

completion AS (
    SELECT
        unfinished.target,
        unfinished.resource_id,
        min(earlier.finished_at) AS finished_at
    FROM unfinished
    LEFT JOIN earlier
        ON
            unfinished.target = earlier.target
            AND unfinished.resource_id = earlier.resource_id
            AND unfinished.version < earlier.version
    GROUP BY unfinished.target, unfinished.resource_id
)

SELECT
    landed.resource_id,
    landed.source,
    landed.key AS source_key,
    landed.batch_id,
    ledger_batch.feed,
    ledger_batch.file_name,
    landed.line,
    landed.patient_id,
    sent_task.status,
    sent_task.requester_id,
    sent_task.owner_id,
    sent_task.group_id,
    coalesce(landed.source_at, sending_time(landed.finished_at)) AS authored_at,
    landed.source_at IS NOT NULL AS authored_is_own,
    sent_task.due_at,
    CASE
        WHEN sent_task.status = 'completed' AND completion.resource_id IS NOT NULL
            THEN coalesce(completion.finished_at, landed.finished_at)
    END AS completed_at,
    landed.finished_at AS last_changed_at,
    sent_task.labels
FROM landed
LEFT JOIN ledger_batch
    ON landed.target = ledger_batch.target AND landed.batch_id = ledger_batch.batch_id
LEFT JOIN completion
    ON landed.target = completion.target AND landed.resource_id = completion.resource_id
INNER JOIN sent_task
    ON
        landed.source = sent_task.source
        AND landed.key = sent_task.key
        AND landed.version IS NOT DISTINCT FROM sent_task.version
WHERE landed.resource_type = 'Task'
ORDER BY landed.resource_id
