-- The service's store, schema version 4, as created on DuckDB.
-- Written by `python -m fhir_service.store.ddl`; the tables are declared in fhir_service/store/tables.py.
-- The linter does not know how a column says that it is compressed:
-- noqa: disable=PRS

CREATE TABLE account (
    patient TEXT NOT NULL,
    charged BIGINT NOT NULL,
    paid BIGINT NOT NULL,
    PRIMARY KEY (patient)
);

CREATE TABLE allocation (
    payment TEXT NOT NULL,
    claim TEXT NOT NULL,
    cents BIGINT NOT NULL
);

CREATE TABLE assertion (
    client TEXT NOT NULL,
    use TEXT NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (client, use)
);

CREATE TABLE charge (
    claim TEXT NOT NULL,
    patient TEXT NOT NULL,
    created TEXT NOT NULL,
    cents BIGINT NOT NULL,
    paid BIGINT NOT NULL,
    PRIMARY KEY (claim)
);

CREATE TABLE client (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    secret_hash TEXT NOT NULL,
    scope TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    revoked_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id)
);

CREATE TABLE client_keys (
    client TEXT NOT NULL,
    jwks TEXT,
    address TEXT,
    PRIMARY KEY (client)
);

CREATE TABLE diagnostic_report (
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    client TEXT NOT NULL,
    date_start TIMESTAMP WITH TIME ZONE,
    date_end TIMESTAMP WITH TIME ZONE,
    patient TEXT,
    body TEXT NOT NULL USING COMPRESSION dict_fsst,
    PRIMARY KEY (id)
);

CREATE TABLE diagnostic_report_category (
    seq BIGINT NOT NULL,
    system TEXT,
    code TEXT
);

CREATE TABLE diagnostic_report_code (
    seq BIGINT NOT NULL,
    system TEXT,
    code TEXT
);

CREATE TABLE document (
    report TEXT NOT NULL,
    position INTEGER NOT NULL,
    content_type TEXT NOT NULL,
    data TEXT NOT NULL
);

CREATE TABLE history (
    reference TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    client TEXT NOT NULL,
    body TEXT NOT NULL USING COMPRESSION zstd
);

CREATE TABLE note (
    id TEXT NOT NULL,
    patient TEXT NOT NULL,
    encounter TEXT,
    state TEXT NOT NULL,
    service_at TEXT,
    PRIMARY KEY (id)
);

CREATE TABLE observation (
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    client TEXT NOT NULL,
    patient TEXT,
    body TEXT NOT NULL USING COMPRESSION dict_fsst,
    PRIMARY KEY (id)
);

CREATE TABLE observation_code (
    seq BIGINT NOT NULL,
    system TEXT,
    code TEXT
);

CREATE TABLE payment_notice (
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    client TEXT NOT NULL,
    request TEXT,
    cents BIGINT,
    claim TEXT,
    body TEXT NOT NULL USING COMPRESSION dict_fsst,
    PRIMARY KEY (id)
);

CREATE TABLE payment_notice_identifier (
    seq BIGINT NOT NULL,
    system TEXT,
    code TEXT,
    digest BIGINT NOT NULL
);

CREATE TABLE questionnaire (
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    client TEXT NOT NULL,
    name TEXT,
    status TEXT,
    body TEXT NOT NULL USING COMPRESSION dict_fsst,
    PRIMARY KEY (id)
);

CREATE TABLE questionnaire_code (
    seq BIGINT NOT NULL,
    system TEXT,
    code TEXT
);

CREATE TABLE questionnaire_questionnaire_code (
    seq BIGINT NOT NULL,
    system TEXT,
    code TEXT
);

CREATE TABLE questionnaire_response (
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    client TEXT NOT NULL,
    authored_start TIMESTAMP WITH TIME ZONE,
    authored_end TIMESTAMP WITH TIME ZONE,
    patient TEXT,
    questionnaire TEXT,
    note TEXT,
    body TEXT NOT NULL USING COMPRESSION dict_fsst,
    PRIMARY KEY (id)
);

CREATE TABLE questionnaire_response_identifier (
    seq BIGINT NOT NULL,
    system TEXT,
    code TEXT,
    digest BIGINT NOT NULL
);

CREATE TABLE record (
    reference TEXT NOT NULL,
    type TEXT NOT NULL,
    patient TEXT,
    display TEXT,
    note TEXT,
    last_updated TEXT,
    digest TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (reference)
);

CREATE TABLE store (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE task (
    seq BIGINT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    client TEXT NOT NULL,
    description TEXT,
    owner TEXT,
    patient TEXT,
    requester TEXT,
    status TEXT,
    due_start TIMESTAMP WITH TIME ZONE,
    due_end TIMESTAMP WITH TIME ZONE,
    body TEXT NOT NULL USING COMPRESSION dict_fsst,
    PRIMARY KEY (id)
);

CREATE TABLE task_identifier (
    seq BIGINT NOT NULL,
    system TEXT,
    code TEXT,
    digest BIGINT NOT NULL
);

CREATE TABLE task_label (
    seq BIGINT NOT NULL,
    system TEXT,
    code TEXT
);

CREATE TABLE token (
    hash TEXT NOT NULL,
    client TEXT NOT NULL,
    scope TEXT NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (hash)
);
