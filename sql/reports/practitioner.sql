-- table practitioner: One row per practitioner that the target is known to have, or that tasks or reports name.
-- inputs: known_name, task, diagnostic_report_performer
-- key: practitioner_id
-- column practitioner_id VARCHAR internal: Id of the practitioner.
-- column name VARCHAR text: Name of the practitioner; empty where the target does not show it. These come from the
--   bundled service.
WITH every_id AS (
    SELECT id AS practitioner_id FROM known_name
    WHERE resource_type = 'Practitioner'
    UNION
    SELECT unnest([requester_id, owner_id]) AS practitioner_id FROM task
    UNION
    SELECT practitioner_id FROM diagnostic_report_performer
)

SELECT
    every_id.practitioner_id,
    known_name.name
FROM every_id
LEFT JOIN known_name ON every_id.practitioner_id = known_name.id AND known_name.resource_type = 'Practitioner'
WHERE every_id.practitioner_id IS NOT NULL
ORDER BY every_id.practitioner_id
