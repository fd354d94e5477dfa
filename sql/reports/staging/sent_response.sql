-- Makes sent_response from the bodies that the import made ready to send (relation sent: batch_id, line, run,
-- resource_type, body): a row for each response, as the last run of its file made it. Only codes of answers are read.
WITH shaped AS (
    SELECT
        batch_id,
        line,
        run,
        reference_id(body ->> '$.questionnaire', 'Questionnaire') AS questionnaire_id,
        list_transform(
            json_extract(body, '$..item[*]'),
            LAMBDA each: json_transform(
                each,
                '{"linkId": "VARCHAR", "answer": [{"valueCoding": {"system": "VARCHAR", "code": "VARCHAR"}}]}'
            )
        ) AS items
    FROM sent
    WHERE resource_type = 'QuestionnaireResponse'
)

SELECT
    batch_id,
    line,
    questionnaire_id,
    list_filter(items, LAMBDA each: len(each.answer) > 0) AS answered
FROM shaped
QUALIFY row_number() OVER (PARTITION BY batch_id, line ORDER BY run DESC) = 1
