-- table open_task_by_owner: Tasks that are requested, per owner, group and age at this publication, counted as in task.
-- inputs: task, this_publication
-- key: owner_id, group_id, age_from_days
-- column owner_id VARCHAR internal: Id of the practitioner who is to do them; empty where none is.
-- column group_id VARCHAR internal: Id of the group that is to do them; empty where none is.
-- column age_from_days BIGINT internal: Days since authored_at, rounded down to 0, 7, 30 or 90.
-- column age VARCHAR internal: age_from_days in words: under 7 days, 7 to 29 days, 30 to 89 days, 90 days or more.
-- column tasks BIGINT internal: Number of tasks.
-- column overdue BIGINT internal: Of these, those that were due before this publication.
-- column patients BIGINT internal: Number of different patients among them.
-- column first_authored_at TIMESTAMPTZ internal: When the oldest of them was made, UTC.
WITH requested AS (
    SELECT
        task.*,
        task.due_at < this_publication.published_at AS is_overdue,
        date_sub('day', task.authored_at, this_publication.published_at) AS days
    FROM task
    CROSS JOIN this_publication
    WHERE task.status = 'requested'
),

aged AS (
    SELECT
        *,
        CASE WHEN days >= 90 THEN 90 WHEN days >= 30 THEN 30 WHEN days >= 7 THEN 7 ELSE 0 END::BIGINT AS age_from_days
    FROM requested
)

SELECT
    owner_id,
    group_id,
    age_from_days,
    CASE age_from_days
        WHEN 90 THEN '90 days or more' WHEN 30 THEN '30 to 89 days' WHEN 7 THEN '7 to 29 days' ELSE 'under 7 days'
    END AS age,
    count(*) AS tasks,
    count(*) FILTER (WHERE is_overdue) AS overdue,
    count(DISTINCT patient_id) AS patients,
    min(authored_at) AS first_authored_at
FROM aged
GROUP BY owner_id, group_id, age_from_days
ORDER BY owner_id, group_id, age_from_days
