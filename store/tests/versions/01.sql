-- What version 1 added, as commit 1c8d3359 has it in store/src/schema.sql.

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

-- rows: what a server of that version wrote.
--;
INSERT INTO tenants (id, name, weight, created) VALUES (2, 'acme', 2, 1763700000000)
--;
UPDATE counters SET last = 2 WHERE name = 'tenant'
--;
-- The key rs-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef, and one that was revoked.
INSERT INTO api_keys (id, tenant, name, sha256, shown, created, last_used, expires, revoked) VALUES
    (1, 2, 'desk', 'f2a8a09ee47d98db681ca9bf3cf7c44074246971c41bbdf25f62f5b40f6bc125', 'rs-0123456', 1763700000000, 1763700100000, NULL, NULL),
    (2, 2, 'lost', 'dd416e87c545bd2b3287f4a83a07bd46d745f6d9483dd3822b7fd8597c167338', 'rs-fedcba9', 1763700000000, NULL, NULL, 1763700100000)
--;
UPDATE counters SET last = 2 WHERE name = 'key'
--;
INSERT INTO token_usage (day, tenant, model, route, requests, row_count, prompt, cached, computed, output) VALUES
    (20413, 2, 'demo', 'relqueries', 3, 40, 500, 100, 400, 80)
--;
INSERT INTO results (tenant, key, value, created, expires, last_use) VALUES
    (2, '0707070707070707070707070707070707070707070707070707070707070707', '{"text":"positive","stop":true,"prompt":12,"output":1}', 1763700000000, 4102444800000, 1763700000000)
--;
-- One that runs, a row of it written, and one that has ended.
INSERT INTO tickets (id, tenant, kind, request, state, summary, created, expires, holder, leased_until) VALUES
    ('rq-5', 2, 'relquery', '{"template":"Say {w}","rows":[["a"],["b"]],"max_tokens":4,"deadline_ms":1}', 'running', NULL, 1763700000000, 4102444800000, 'relserve', 1763700060000),
    ('rq-4', 2, 'relquery', '{"template":"Say {w}","rows":[["c"]],"deadline_ms":1}', 'completed', '{}', 1763699999999, 4102444800000, 'relserve', 1763700060000)
--;
INSERT INTO ticket_rows (ticket, row_number, result) VALUES
    ('rq-5', 0, '{"index":0,"text":"as it was","finish_reason":"stop","usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14,"computed_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}}'),
    ('rq-4', 0, '{"index":0,"text":"as it was","finish_reason":"stop","usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14,"computed_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}}')
--;
INSERT INTO calibrations (revision, machine, fitted, updated) VALUES ('revision', 'machine', '{"decode_base":7}', 1763700000000)
