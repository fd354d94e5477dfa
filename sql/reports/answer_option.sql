-- table answer_option: One row per option of a question that is answered by choosing.
-- inputs: known_option
-- key: questionnaire_id, link_id, position
-- references: questionnaire_id questionnaire
-- column questionnaire_id VARCHAR code: Id of the questionnaire.
-- column link_id VARCHAR code: linkId of the question in it.
-- column position BIGINT code: Place of the option in the question, from 1.
-- column system VARCHAR code: System of the option's code.
-- column code VARCHAR code: The option's code.
-- column display VARCHAR words: The option in words.
-- column declared_value DOUBLE value: What the option counts for in a score, where the questionnaire declares it by the
--   extension ordinalValue or itemWeight.
SELECT
    questionnaire_id,
    link_id,
    position,
    system,
    code,
    display,
    declared_value
FROM known_option
ORDER BY questionnaire_id, link_id, position
