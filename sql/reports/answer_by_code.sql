-- table answer_by_code: How often each option of a choice question was answered, counted as in questionnaire_response.
-- inputs: answer
-- key: questionnaire_id, link_id, system, code
-- column questionnaire_id VARCHAR: Id of the questionnaire.
-- column link_id VARCHAR: linkId of the question in it.
-- column system VARCHAR: System of the option's code.
-- column code VARCHAR: The option's code.
-- column display VARCHAR: The option in words.
-- column answers BIGINT: Number of answers with it.
-- column patients BIGINT: Number of different patients who gave it.
SELECT
    questionnaire_id,
    link_id,
    option_system AS system,
    option_code AS code,
    any_value(option_display) AS display,
    count(*) AS answers,
    count(DISTINCT patient_id) AS patients
FROM answer
WHERE option_code IS NOT NULL
GROUP BY questionnaire_id, link_id, option_system, option_code
ORDER BY questionnaire_id, link_id, option_system, option_code
