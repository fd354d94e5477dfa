-- Makes sent_task from body_of_version and the bodies that the import made ready to send (relation sent): a row for
-- each version of a task, as it was sent. Of its texts only labels are read.
WITH shaped AS (
    SELECT
        place.source,
        place.key,
        place.version,
        json_transform(sent.body, '{
            "status": "VARCHAR",
            "requester": {"reference": "VARCHAR"},
            "owner": {"reference": "VARCHAR"},
            "input": [{"type": {"text": "VARCHAR"}, "valueString": "VARCHAR"}],
            "restriction": {"period": {"end": "VARCHAR"}},
            "extension": [{"valueReference": {"reference": "VARCHAR"}}]
        }') AS task
    FROM body_of_version AS place
    INNER JOIN sent
        ON
            place.body_batch_id = sent.batch_id
            AND place.body_folder = sent.folder
            AND place.body_line = sent.line
    WHERE place.resource_type = 'Task'
)

SELECT
    source,
    key,
    version,
    task.status,
    reference_id(task.requester.reference, 'Practitioner') AS requester_id,
    reference_id(task.owner.reference, 'Practitioner') AS owner_id,
    reference_ids(list_transform(task.extension, LAMBDA each: each.valuereference), 'Group')[1] AS group_id,
    moment(task.restriction.period."end") AS due_at,
    list_sort(list_distinct(list_transform(
        list_filter(coalesce(task.input, []), LAMBDA each: each.type.text = 'label'),
        LAMBDA each: each.valuestring
    ))) AS labels
FROM shaped
