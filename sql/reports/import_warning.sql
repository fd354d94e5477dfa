-- table import_warning: One row per warning about a record, or about a questionnaire that its answers name. A warning
--   sets nothing aside: it reports a rule decided here that another target may not share, answers missing for a
--   score, or ambiguous codes.
-- inputs: warned, import_batch
-- references: batch_id import_batch
-- column batch_id VARCHAR: Batch of the file.
-- column run BIGINT: The newest run of the batch that gave this warning.
-- column line BIGINT: First physical line of the record in the file; empty where it is about a questionnaire.
-- column rule_id VARCHAR: Rule that is concerned, as in the list of requirements.
-- column expression VARCHAR: FHIRPath of the element concerned, or the column of the file.
-- column message VARCHAR: What was found, in codes, ids and paths.
SELECT
    batch_id,
    max(run) AS run,
    line,
    rule_id,
    expression,
    message
FROM warned
WHERE batch_id IN (SELECT import_batch.batch_id FROM import_batch)
GROUP BY batch_id, line, rule_id, expression, message
ORDER BY batch_id, line NULLS FIRST, rule_id, expression, message
