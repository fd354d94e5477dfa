-- The service's store, schema version 4: its tables in DuckDB and in PostgreSQL. Money is in cents.
-- A resource has a column for each search parameter with one value. A date has two: the beginning and the end of the
-- time that it covers. A search parameter with several values has a side table.
-- The compression is only for DuckDB, which would otherwise try all methods at each checkpoint. `zstd` needs a third of
-- the space of `dict_fsst`, but unpacks some 2,000 bodies for one. The linter does not know it:
-- noqa: disable=PRS

-- The store's id, schema version, signing key and other facts, by name.
CREATE TABLE store (name TEXT PRIMARY KEY, value TEXT NOT NULL);

CREATE TABLE task (
    seq BIGINT NOT NULL, id TEXT PRIMARY KEY, version INTEGER NOT NULL, updated_at TIMESTAMPTZ NOT NULL,
    client TEXT NOT NULL, description TEXT, owner TEXT, patient TEXT, requester TEXT, status TEXT,
    due_start TIMESTAMPTZ, due_end TIMESTAMPTZ,
    body TEXT NOT NULL USING COMPRESSION dict_fsst
);
CREATE TABLE task_label (seq BIGINT NOT NULL, system TEXT, code TEXT);
-- Digests are of the codes, see `digest` in fhir_service/store/tables.py.
CREATE TABLE task_identifier (seq BIGINT NOT NULL, system TEXT, code TEXT, digest BIGINT NOT NULL);

CREATE TABLE payment_notice (
    seq BIGINT NOT NULL, id TEXT PRIMARY KEY, version INTEGER NOT NULL, updated_at TIMESTAMPTZ NOT NULL,
    client TEXT NOT NULL, request TEXT, cents BIGINT, claim TEXT,
    body TEXT NOT NULL USING COMPRESSION dict_fsst
);
CREATE TABLE payment_notice_identifier (seq BIGINT NOT NULL, system TEXT, code TEXT, digest BIGINT NOT NULL);

CREATE TABLE questionnaire (
    seq BIGINT NOT NULL, id TEXT PRIMARY KEY, version INTEGER NOT NULL, updated_at TIMESTAMPTZ NOT NULL,
    client TEXT NOT NULL, name TEXT, status TEXT,
    body TEXT NOT NULL USING COMPRESSION dict_fsst
);
CREATE TABLE questionnaire_code (seq BIGINT NOT NULL, system TEXT, code TEXT);
CREATE TABLE questionnaire_questionnaire_code (seq BIGINT NOT NULL, system TEXT, code TEXT);

CREATE TABLE questionnaire_response (
    seq BIGINT NOT NULL, id TEXT PRIMARY KEY, version INTEGER NOT NULL, updated_at TIMESTAMPTZ NOT NULL,
    client TEXT NOT NULL, authored_start TIMESTAMPTZ, authored_end TIMESTAMPTZ, patient TEXT, questionnaire TEXT,
    note TEXT,
    body TEXT NOT NULL USING COMPRESSION dict_fsst
);
CREATE TABLE questionnaire_response_identifier (seq BIGINT NOT NULL, system TEXT, code TEXT, digest BIGINT NOT NULL);

CREATE TABLE diagnostic_report (
    seq BIGINT NOT NULL, id TEXT PRIMARY KEY, version INTEGER NOT NULL, updated_at TIMESTAMPTZ NOT NULL,
    client TEXT NOT NULL, date_start TIMESTAMPTZ, date_end TIMESTAMPTZ, patient TEXT,
    body TEXT NOT NULL USING COMPRESSION dict_fsst
);
CREATE TABLE diagnostic_report_category (seq BIGINT NOT NULL, system TEXT, code TEXT);
CREATE TABLE diagnostic_report_code (seq BIGINT NOT NULL, system TEXT, code TEXT);

CREATE TABLE observation (
    seq BIGINT NOT NULL, id TEXT PRIMARY KEY, version INTEGER NOT NULL, updated_at TIMESTAMPTZ NOT NULL,
    client TEXT NOT NULL, patient TEXT,
    body TEXT NOT NULL USING COMPRESSION dict_fsst
);
CREATE TABLE observation_code (seq BIGINT NOT NULL, system TEXT, code TEXT);

-- Earlier versions of resources.
CREATE TABLE history (
    reference TEXT NOT NULL, version INTEGER NOT NULL, updated_at TIMESTAMPTZ NOT NULL,
    client TEXT NOT NULL, body TEXT NOT NULL USING COMPRESSION zstd
);

-- Loaded records of every type. `reference` is Type/id, `patient` the id of the patient to whom the record belongs,
-- `display` the name of a Group, Patient or Practitioner, `note` the id of an Encounter's note, `last_updated` its
-- meta.lastUpdated, `digest` the SHA-256 of what was loaded.
CREATE TABLE record (
    reference TEXT PRIMARY KEY, type TEXT NOT NULL, patient TEXT, display TEXT, note TEXT, last_updated TEXT,
    digest TEXT NOT NULL, body TEXT NOT NULL
);
-- Documents of reports, in base64.
CREATE TABLE document (report TEXT NOT NULL, position INTEGER NOT NULL, content_type TEXT NOT NULL, data TEXT NOT NULL);
-- Notes of the chart. `encounter` is empty for a data-import note. `state` is open, cancelled or deleted. `service_at`
-- is the date or datetime of service.
CREATE TABLE note (id TEXT PRIMARY KEY, patient TEXT NOT NULL, encounter TEXT, state TEXT NOT NULL, service_at TEXT);

-- `created` is a date or datetime, `paid` what is allocated to the charge.
CREATE TABLE charge (
    claim TEXT PRIMARY KEY, patient TEXT NOT NULL, created TEXT NOT NULL, cents BIGINT NOT NULL, paid BIGINT NOT NULL
);
CREATE TABLE account (patient TEXT PRIMARY KEY, charged BIGINT NOT NULL, paid BIGINT NOT NULL);
CREATE TABLE allocation (payment TEXT NOT NULL, claim TEXT NOT NULL, cents BIGINT NOT NULL);

CREATE TABLE client (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, secret_hash TEXT NOT NULL, scope TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL, revoked_at TIMESTAMPTZ
);
-- The public keys of clients without a secret: a JWKS, or the address to fetch it from.
CREATE TABLE client_keys (client TEXT PRIMARY KEY, jwks TEXT, address TEXT);
-- Assertions that were used, by the hash of their `jti`, until they expire: each may be used once.
CREATE TABLE assertion (
    client TEXT NOT NULL, use TEXT NOT NULL, expires_at TIMESTAMPTZ NOT NULL, PRIMARY KEY (client, use)
);
CREATE TABLE token (
    hash TEXT PRIMARY KEY, client TEXT NOT NULL, scope TEXT NOT NULL, expires_at TIMESTAMPTZ NOT NULL
);
