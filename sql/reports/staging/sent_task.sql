-- Makes sent_task from the bodies that the import made ready to send (relation sent: batch_id, line, run,
-- resource_type, body): a row for each task, as the last run of its file made it. Of its texts only labels are
-- read.
WITH shaped AS (
    SELECT
        batch_id,
        line,
        run,
        json_transform(body, '{
            "status": "VARCHAR",
            "requester": {"reference": "VARCHAR"},
            "owner": {"reference": "VARCHAR"},
            "input": [{"type": {"text": "VARCHAR"}, "valueString": "VARCHAR"}],
            "restriction": {"period": {"end": "VARCHAR"}},
            "extension": [{"valueReference": {"reference": "VARCHAR"}}]
        }') AS task
    FROM sent
    WHERE resource_type = 'Task'
)

SELECT
    batch_id,
    line,
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
QUALIFY row_number() OVER (PARTITION BY batch_id, line ORDER BY run DESC) = 1
