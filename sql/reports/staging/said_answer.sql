-- Makes said_answer from landed, body_of_version, the bodies that the import made ready to send (relation sent) and the
-- responses that the target shows (relation read_responses): a row for each answer of a response, as it was sent
-- (is_sent) or as the target shows it. item_place and answer_place are its places in the response. kind is empty for an
-- answer without a value. A day, a time or an address may tell of a person as a text does: all of them are free text,
-- of which the macro free_text gives NULL unless the home publishes it.
-- Each item is read by itself: DuckDB holds those of 2,048 rows at once, and lists of all would not fit into memory.
WITH response AS (
    SELECT
        landed.resource_id AS response_id,
        TRUE AS is_sent,
        json_extract(sent.body, '$..item[*]') AS items
    FROM landed
    INNER JOIN body_of_version AS place
        ON
            landed.resource_type = place.resource_type
            AND landed.source = place.source
            AND landed.key = place.key
            AND landed.version IS NOT DISTINCT FROM place.version
    INNER JOIN sent
        ON
            place.body_batch_id = sent.batch_id
            AND place.body_folder = sent.folder
            AND place.body_line = sent.line
    WHERE landed.resource_type = 'QuestionnaireResponse'
    UNION ALL
    SELECT
        report_id AS response_id,
        FALSE AS is_sent,
        json_extract(body, '$..item[*]') AS items
    FROM read_responses
),

every_item AS (
    SELECT
        response_id,
        is_sent,
        unnest(items) AS item,
        generate_subscripts(items, 1) AS item_place
    FROM response
),

shaped AS (
    SELECT
        * EXCLUDE (item),
        json_transform(item, '{
            "linkId": "VARCHAR",
            "answer": [{
                "valueCoding": {"system": "VARCHAR", "code": "VARCHAR"},
                "valueBoolean": "BOOLEAN",
                "valueDecimal": "DOUBLE",
                "valueInteger": "DOUBLE",
                "valueQuantity": {"value": "DOUBLE"},
                "valueString": "VARCHAR",
                "valueDate": "VARCHAR",
                "valueDateTime": "VARCHAR",
                "valueTime": "VARCHAR",
                "valueUri": "VARCHAR"
            }]
        }') AS said
    FROM every_item
),

given AS (
    SELECT
        response_id,
        is_sent,
        item_place,
        said.linkid AS link_id,
        generate_subscripts(said.answer, 1) AS answer_place,
        unnest(said.answer) AS answer
    FROM shaped
    WHERE said.linkid IS NOT NULL
),

typed AS (
    SELECT
        * EXCLUDE (answer),
        answer.valuecoding.system,
        coalesce(answer.valuecoding.code, answer.valueboolean::VARCHAR) AS code,
        finite(coalesce(answer.valuedecimal, answer.valueinteger, answer.valuequantity.value)) AS number,
        coalesce(
            answer.valuestring, answer.valuedate, answer.valuedatetime, answer.valuetime, answer.valueuri
        ) AS text
    FROM given
)

SELECT
    * EXCLUDE (text),
    CASE
        WHEN code IS NOT NULL THEN 'choice'
        WHEN number IS NOT NULL THEN 'number'
        WHEN text IS NOT NULL THEN 'text'
    END AS kind,
    free_text(text) AS text
FROM typed
