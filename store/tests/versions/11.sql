-- What version 11 added, as commit 709d4de0 has it in store/src/limits.sql.

-- Version 11. What tenants may compute, and who changed what.

-- What a tenant may: tokens computed in a UTC day and in a UTC month, requests in a minute, models (a JSON list of
-- names); what is NULL has no bound, and so has all of a tenant without a row.
CREATE TABLE tenant_limits (
    tenant          BIGINT PRIMARY KEY REFERENCES tenants (id),
    day_tokens      BIGINT,
    month_tokens    BIGINT,
    minute_requests BIGINT,
    models          TEXT
)
--;
-- What operators did, the newest with the largest number. Nothing deletes from it.
CREATE TABLE audit_log (
    id      BIGINT PRIMARY KEY,
    at      BIGINT NOT NULL,
    actor   TEXT NOT NULL,
    action  TEXT NOT NULL,
    subject TEXT NOT NULL,
    details TEXT NOT NULL,
    -- 1: done, 0: refused or failed, none: begun, and its end is not known.
    is_done BIGINT
)
--;
INSERT INTO counters (name, last) VALUES ('audit', 0)

-- rows: what a server of that version wrote.
--;
INSERT INTO tenant_limits (tenant, day_tokens, month_tokens, minute_requests, models) VALUES (2, 5000, NULL, 60, NULL)
--;
INSERT INTO audit_log (id, at, actor, action, subject, details, is_done) VALUES (1, 1763700000000, 'command line', 'key.create', 'desk', '{}', 1)
--;
UPDATE counters SET last = 1 WHERE name = 'audit'
