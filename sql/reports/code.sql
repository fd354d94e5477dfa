-- table code: One row per code that a questionnaire, a report or a result uses, with its words.
-- inputs: known_questionnaire, known_question, answer_option, diagnostic_report_code, diagnostic_report_category,
--   observation
-- key: system, code
-- column system VARCHAR term: System of the code.
-- column code VARCHAR term of system: The code.
-- column display VARCHAR text: What it means, as the target shows it; of several words the first in alphabetical order.
-- column displays BIGINT internal: Number of different words that the target shows for it.
-- column used_for VARCHAR code: Where it is used, separated by commas: answer option, question, questionnaire, report,
--   report category, result.
WITH used AS (
    SELECT
        system,
        code,
        display,
        'answer option' AS used_for
    FROM answer_option
    UNION ALL
    SELECT
        code_system AS system,
        code,
        text AS display,
        'question' AS used_for
    FROM known_question
    UNION ALL
    SELECT
        code_system AS system,
        code,
        name AS display,
        'questionnaire' AS used_for
    FROM known_questionnaire
    UNION ALL
    SELECT
        system,
        code,
        display,
        'report' AS used_for
    FROM diagnostic_report_code
    UNION ALL
    SELECT
        system,
        code,
        display,
        'report category' AS used_for
    FROM diagnostic_report_category
    UNION ALL
    SELECT
        code_system AS system,
        code,
        code_display AS display,
        'result' AS used_for
    FROM observation
)

SELECT
    system,
    code,
    min(display) AS display,
    count(DISTINCT display) AS displays,
    string_agg(DISTINCT used_for, ', ' ORDER BY used_for) AS used_for
FROM used
WHERE code IS NOT NULL
GROUP BY system, code
ORDER BY system, code
