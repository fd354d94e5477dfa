-- table care_group: One row per group that the target is known to have, or that tasks are assigned to.
-- inputs: known_name, task
-- key: group_id
-- column group_id VARCHAR internal: Id of the group.
-- column name VARCHAR text: Name of the group; empty where the target does not show it. These come from the bundled
--   service.
WITH every_id AS (
    SELECT id AS group_id FROM known_name
    WHERE resource_type = 'Group'
    UNION
    SELECT group_id FROM task
)

SELECT
    every_id.group_id,
    known_name.name
FROM every_id
LEFT JOIN known_name ON every_id.group_id = known_name.id AND known_name.resource_type = 'Group'
WHERE every_id.group_id IS NOT NULL
ORDER BY every_id.group_id
