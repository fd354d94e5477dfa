-- table question: One row per item of a questionnaire, of every depth: questions, groups and displays.
-- inputs: known_question
-- key: questionnaire_id, link_id
-- references: questionnaire_id questionnaire
-- column questionnaire_id VARCHAR code: Id of the questionnaire.
-- column link_id VARCHAR code: linkId of the item in it.
-- column position BIGINT code: Place of the item in the form, from 1; nested items follow the item around them.
-- column parent_link_id VARCHAR code: linkId of the item around it; empty at the top.
-- column text VARCHAR words: The question in words.
-- column type VARCHAR code: choice, text, decimal, group or display; a target of another make may show others.
-- column repeats BOOLEAN code: True if several answers are permitted.
-- column is_conditional BOOLEAN code: True if it is asked only under a condition.
-- column code_system VARCHAR code: System of its first code.
-- column code VARCHAR code: Its first code, such as 44250-9.
SELECT
    questionnaire_id,
    link_id,
    position,
    parent_link_id,
    text,
    type,
    repeats,
    is_conditional,
    code_system,
    code
FROM known_question
ORDER BY questionnaire_id, position
