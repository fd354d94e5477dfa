-- table questionnaire: One row per questionnaire that the target has or had, as the last sweep found it. A form that
--   was replaced under its id, by one that asks or counts otherwise, is a questionnaire of its own. It has its
--   responses, and ~ and a number behind the id.
-- inputs: known_questionnaire, known_question
-- key: questionnaire_id
-- column questionnaire_id VARCHAR code: Id of the questionnaire.
-- column name VARCHAR words: Name of the questionnaire; that of a retired one may end in its version.
-- column status VARCHAR code: active or retired.
-- column description VARCHAR words: What it says about itself.
-- column code_system VARCHAR code: System of its code.
-- column code VARCHAR code: Its code, such as 44249-1 (PHQ-9).
-- column questions BIGINT value: Number of items that take an answer; groups and displays are not counted.
-- column first_seen_at TIMESTAMPTZ internal: When a sweep first found it, UTC.
-- column changed_at TIMESTAMPTZ internal: When a sweep last found other content under its id, UTC; empty where none
--   did. Answers from before may belong to questions that it no longer has.
-- column gone_at TIMESTAMPTZ internal: When a sweep first missed it, or found a former form to be replaced, UTC; empty
--   while it is there.
WITH asked AS (
    SELECT
        questionnaire_id,
        count(*) AS questions
    FROM known_question
    WHERE type NOT IN ('group', 'display')
    GROUP BY questionnaire_id
)

SELECT
    known_questionnaire.questionnaire_id,
    known_questionnaire.name,
    known_questionnaire.status,
    known_questionnaire.description,
    known_questionnaire.code_system,
    known_questionnaire.code,
    coalesce(asked.questions, 0) AS questions,
    known_questionnaire.first_seen_at,
    known_questionnaire.changed_at,
    known_questionnaire.gone_at
FROM known_questionnaire
LEFT JOIN asked ON known_questionnaire.questionnaire_id = asked.questionnaire_id
ORDER BY known_questionnaire.questionnaire_id
