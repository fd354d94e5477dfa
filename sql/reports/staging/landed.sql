-- Makes landed from the ledger: the tasks and responses of the import that the target of this publication has, a row
-- for each record. version is empty, as of the present one.
WITH own AS (
    SELECT *
    FROM ledger_record
    WHERE
        target IN (SELECT this_publication.target FROM this_publication)
        AND resource_type IN ('Task', 'QuestionnaireResponse')
)

SELECT
    target,
    resource_type,
    source,
    key,
    resource_id,
    batch_id,
    line,
    patient_id,
    source_at,
    finished_at,
    NULL::BIGINT AS version
FROM own
WHERE state IN ('created', 'adopted', 'updated', 'superseded')
