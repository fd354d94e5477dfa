-- Makes sent_response from the bodies that the import made ready to send (relation sent: batch_id, line, run,
-- resource_type, body): a row for each response, as the last run of its file made it. It names its questionnaire by a
-- canonical url (known_address) or by its place. The macro free_text gives NULL unless the home publishes free text.
WITH shaped AS (
    SELECT
        sent.batch_id,
        sent.line,
        sent.run,
        coalesce(
            known_address.questionnaire_id, reference_id(sent.body ->> '$.questionnaire', 'Questionnaire')
        ) AS questionnaire_id,
        list_transform(
            json_extract(sent.body, '$..item[*]'),
            LAMBDA each: json_transform(
                each,
                '{"linkId": "VARCHAR", "answer": [{
                    "valueCoding": {"system": "VARCHAR", "code": "VARCHAR"},
                    "valueDecimal": "DOUBLE",
                    "valueString": "VARCHAR"
                }]}'
            )
        ) AS items
    FROM sent
    LEFT JOIN known_address ON sent.body ->> '$.questionnaire' = known_address.address
    WHERE sent.resource_type = 'QuestionnaireResponse'
)

SELECT
    batch_id,
    line,
    questionnaire_id,
    list_transform(
        list_filter(items, LAMBDA each: len(each.answer) > 0),
        LAMBDA each: {
            'link_id': each.linkid,
            'answers': list_transform(each.answer, LAMBDA given: {
                'kind': CASE
                    WHEN given.valuecoding.code IS NOT NULL THEN 'choice'
                    WHEN given.valuedecimal IS NOT NULL THEN 'number'
                    WHEN given.valuestring IS NOT NULL THEN 'text'
                END,
                'system': given.valuecoding.system,
                'code': given.valuecoding.code,
                'number': given.valuedecimal,
                'text': free_text(given.valuestring)
            })
        }
    ) AS answered
FROM shaped
QUALIFY row_number() OVER (PARTITION BY batch_id, line ORDER BY run DESC) = 1
