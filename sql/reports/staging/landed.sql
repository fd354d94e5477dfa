-- Makes landed from the ledger: the tasks and responses of the import that the target of this publication has, a row
-- for each record. While a change of one is sent or in doubt, that is the version before it, where the target still has
-- its resource; version is empty for the present one.
WITH own AS (
    SELECT *
    FROM ledger_record
    WHERE
        target IN (SELECT this_publication.target FROM this_publication)
        AND resource_type IN ('Task', 'QuestionnaireResponse')
),

before AS (
    SELECT ledger_former.*
    FROM ledger_former
    SEMI JOIN own
        ON
            ledger_former.target = own.target
            AND ledger_former.source = own.source
            AND ledger_former.resource_type = own.resource_type
            AND ledger_former.key = own.key
            AND own.state IN ('planned', 'sending', 'in_doubt')
    WHERE ledger_former.state IN ('created', 'adopted', 'updated', 'superseded')
    QUALIFY
        row_number() OVER (
            PARTITION BY ledger_former.source, ledger_former.resource_type, ledger_former.key
            ORDER BY ledger_former.version DESC
        ) = 1
),

found AS (
    SELECT *
    FROM own
    WHERE state IN ('created', 'adopted', 'updated', 'superseded')
    UNION ALL BY NAME
    SELECT *
    FROM before
    WHERE fate IN ('kept', 'standing')
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
    version
FROM found
