-- Version 1. Portable between SQLite and Postgres: TEXT, BIGINT, DOUBLE PRECISION only.
-- Instants are unix milliseconds. Statements are separated by lines that hold only `--;`.

-- Identifiers are handed out here and never used twice, not even after a delete.
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    last BIGINT NOT NULL
)
--;
INSERT INTO counters (name, last) VALUES ('tenant', 1), ('key', 0)
--;
CREATE TABLE tenants (
    id      BIGINT PRIMARY KEY,
    name    TEXT NOT NULL UNIQUE,
    weight  DOUBLE PRECISION NOT NULL,
    created BIGINT
)
--;
-- The default tenant comes with the database, so it has no instant of creation.
INSERT INTO tenants (id, name, weight, created) VALUES (1, 'default', 1, NULL)
--;
CREATE TABLE api_keys (
    id        BIGINT PRIMARY KEY,
    tenant    BIGINT NOT NULL REFERENCES tenants (id),
    name      TEXT NOT NULL,
    sha256    TEXT NOT NULL UNIQUE,
    shown     TEXT NOT NULL,
    created   BIGINT NOT NULL,
    last_used BIGINT,
    expires   BIGINT,
    revoked   BIGINT
)
--;
CREATE TABLE token_usage (
    day      BIGINT NOT NULL,
    tenant   BIGINT NOT NULL REFERENCES tenants (id),
    model    TEXT NOT NULL,
    route    TEXT NOT NULL,
    requests BIGINT NOT NULL,
    row_count BIGINT NOT NULL,
    prompt   BIGINT NOT NULL,
    cached   BIGINT NOT NULL,
    computed BIGINT NOT NULL,
    output   BIGINT NOT NULL,
    PRIMARY KEY (tenant, day, model, route)
)
--;
CREATE TABLE results (
    tenant   BIGINT NOT NULL REFERENCES tenants (id),
    key      TEXT NOT NULL,
    value    TEXT NOT NULL,
    created  BIGINT NOT NULL,
    expires  BIGINT NOT NULL,
    last_use BIGINT NOT NULL,
    PRIMARY KEY (tenant, key)
)
--;
CREATE INDEX results_of_tenant_by_use ON results (tenant, last_use)
--;
CREATE INDEX results_by_use ON results (last_use)
--;
CREATE INDEX results_by_expiry ON results (expires)
--;
CREATE TABLE tickets (
    id      TEXT PRIMARY KEY,
    tenant  BIGINT NOT NULL REFERENCES tenants (id),
    kind    TEXT NOT NULL,
    request TEXT NOT NULL,
    state   TEXT NOT NULL,
    summary TEXT,
    created BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    holder  TEXT NOT NULL,
    leased_until BIGINT NOT NULL
)
--;
CREATE INDEX tickets_by_state ON tickets (state, created)
--;
CREATE INDEX tickets_by_expiry ON tickets (expires)
--;
CREATE TABLE ticket_rows (
    ticket  TEXT NOT NULL REFERENCES tickets (id) ON DELETE CASCADE,
    row_number BIGINT NOT NULL,
    result  TEXT NOT NULL,
    PRIMARY KEY (ticket, row_number)
)
--;
CREATE TABLE calibrations (
    revision TEXT NOT NULL,
    machine  TEXT NOT NULL,
    fitted   TEXT NOT NULL,
    updated  BIGINT NOT NULL,
    PRIMARY KEY (revision, machine)
)
