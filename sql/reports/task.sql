-- table task: One row per task that the import has made, adopted or updated at the target of this publication, as
--   last sent. Later changes in the chart do not show. Tasks whose source rows were purged are left out.
-- inputs: ledger_record, sent_task, this_publication
-- key: resource_id
-- references: batch_id import_batch
-- column resource_id VARCHAR: Id of the Task at the target.
-- column source VARCHAR: System that made the key.
-- column source_key VARCHAR: The task's key in its source.
-- column batch_id VARCHAR: Batch of the file that it was last sent from.
-- column line BIGINT: First physical line of the record in that file.
-- column patient_id VARCHAR: Id of the patient; empty for a task without one.
-- column status VARCHAR: requested, completed or cancelled.
-- column requester_id VARCHAR: Id of the practitioner who asked for it.
-- column owner_id VARCHAR: Id of the practitioner who is to do it.
-- column group_id VARCHAR: Id of the group that is to do it.
-- column authored_at TIMESTAMPTZ: When it was made in its source, UTC; where that does not say, when it was sent.
-- column due_at TIMESTAMPTZ: When it is due, UTC. A date without time is the start of that UTC day.
SELECT
    ledger_record.resource_id,
    ledger_record.source,
    ledger_record.key AS source_key,
    ledger_record.batch_id,
    ledger_record.line,
    ledger_record.patient_id,
    sent_task.status,
    sent_task.requester_id,
    sent_task.owner_id,
    sent_task.group_id,
    coalesce(ledger_record.source_at, ledger_record.finished_at) AS authored_at,
    sent_task.due_at
FROM ledger_record
INNER JOIN this_publication ON ledger_record.target = this_publication.target
INNER JOIN sent_task ON ledger_record.batch_id = sent_task.batch_id AND ledger_record.line = sent_task.line
WHERE ledger_record.resource_type = 'Task' AND ledger_record.state IN ('created', 'adopted', 'updated')
ORDER BY ledger_record.resource_id
