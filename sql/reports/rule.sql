-- table rule: One row per rule that a reject or a warning may name.
-- inputs: known_rule
-- key: rule_id
-- column rule_id VARCHAR internal: Id of the rule.
-- column sentence VARCHAR internal: What is true when all is well.
-- column basis VARCHAR internal: interface (given), decision (of this project, where the interface is silent), importer
--   (about the file, its feed or the ledger) or target (the target's own code for a refusal).
-- column advice VARCHAR internal: What to do about it.
SELECT
    rule_id,
    sentence,
    basis,
    advice
FROM known_rule
ORDER BY rule_id
