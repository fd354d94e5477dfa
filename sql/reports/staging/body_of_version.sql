-- Makes body_of_version from the bodies that the import made ready to send (relation sent: batch_id, folder, run, line,
-- key, content_hash, resource_type, body): for each version of a record, the present one among them, which has no
-- number, the place of its body. That is the row with its content: of its own line, else of any file, since a row in
-- doubt keeps its line when a later file is sent for it. If there is none, as of ledgers of older versions, it is the
-- row of its line from the run of its outcome, else from the last run.
WITH known AS (
    SELECT *
    FROM ledger_record
    UNION ALL BY NAME
    SELECT *
    FROM ledger_former
),

of_target AS (
    SELECT known.*
    FROM known
    SEMI JOIN this_publication ON known.target = this_publication.target
    WHERE known.resource_type IN ('Task', 'QuestionnaireResponse', 'PaymentNotice')
),

here AS (
    SELECT
        of_target.resource_type,
        of_target.source,
        of_target.key,
        of_target.version,
        of_target.batch_id,
        of_target.line,
        sent.batch_id AS body_batch_id,
        sent.folder AS body_folder,
        sent.line AS body_line,
        starts_with(sent.content_hash, of_target.content_hash) AS is_its_content
    FROM of_target
    INNER JOIN sent
        ON of_target.batch_id = sent.batch_id AND of_target.line = sent.line AND of_target.key = sent.key
    LEFT JOIN ledger_run
        ON of_target.target = ledger_run.target AND sent.batch_id = ledger_run.batch_id AND sent.run = ledger_run.run
    QUALIFY
        row_number() OVER (
            PARTITION BY of_target.resource_type, of_target.source, of_target.key, of_target.version
            ORDER BY
                is_its_content DESC,
                of_target.finished_at >= ledger_run.started_at
                AND coalesce(of_target.finished_at <= ledger_run.finished_at, TRUE) DESC NULLS LAST,
                sent.run DESC,
                sent.folder DESC
        ) = 1
),

elsewhere AS (
    SELECT
        of_target.resource_type,
        of_target.source,
        of_target.key,
        of_target.version,
        of_target.batch_id,
        of_target.line,
        sent.batch_id AS body_batch_id,
        sent.folder AS body_folder,
        sent.line AS body_line,
        TRUE AS is_its_content
    FROM of_target
    ANTI JOIN here
        ON
            of_target.resource_type = here.resource_type
            AND of_target.source = here.source
            AND of_target.key = here.key
            AND of_target.version IS NOT DISTINCT FROM here.version
            AND here.is_its_content
    INNER JOIN sent
        ON
            of_target.resource_type = sent.resource_type
            AND of_target.key = sent.key
            AND of_target.content_hash = sent.content_hash
    QUALIFY
        row_number() OVER (
            PARTITION BY of_target.resource_type, of_target.source, of_target.key, of_target.version
            ORDER BY sent.batch_id DESC, sent.run DESC, sent.folder DESC, sent.line DESC
        ) = 1
),

found AS (
    SELECT *
    FROM elsewhere
    UNION ALL
    SELECT here.*
    FROM here
    ANTI JOIN elsewhere
        ON
            here.resource_type = elsewhere.resource_type
            AND here.source = elsewhere.source
            AND here.key = elsewhere.key
            AND here.version IS NOT DISTINCT FROM elsewhere.version
)

SELECT * EXCLUDE (is_its_content)
FROM found
