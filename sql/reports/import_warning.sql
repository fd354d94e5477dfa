-- table import_warning: One row per warning about a record, or about a questionnaire that its answers name. A warning
--   sets nothing aside: it reports a rule decided here that another target may not share, answers missing for a
--   score, or ambiguous codes.
-- inputs: warned, ledger_batch, this_publication
-- references: batch_id import_batch
-- column batch_id VARCHAR internal: Batch of the file.
-- column feed VARCHAR internal: Feed that read the file.
-- column file_name VARCHAR internal: Name of the file as received.
-- column run BIGINT internal: The newest run of the batch that gave this warning.
-- column line BIGINT internal: First physical line of the record in the file; empty where it is about a questionnaire.
-- column rule_id VARCHAR internal: Rule that is concerned, as in the list of requirements.
-- column expression VARCHAR internal: FHIRPath of the element concerned, or the column of the file.
-- column message VARCHAR internal: What was found, in codes, ids and paths.
SELECT
    warned.batch_id,
    any_value(ledger_batch.feed) AS feed,
    any_value(ledger_batch.file_name) AS file_name,
    max(warned.run) AS run,
    warned.line,
    warned.rule_id,
    warned.expression,
    warned.message
FROM warned
INNER JOIN ledger_batch ON warned.batch_id = ledger_batch.batch_id
INNER JOIN this_publication ON ledger_batch.target = this_publication.target
GROUP BY warned.batch_id, warned.line, warned.rule_id, warned.expression, warned.message
ORDER BY warned.batch_id, warned.line NULLS FIRST, warned.rule_id, warned.expression, warned.message
