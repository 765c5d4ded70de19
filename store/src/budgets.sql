-- Version 11. What tenants may compute, and who changed what.

-- Tokens that a tenant may compute in a UTC day and in a UTC month; without a row: as many as it likes.
CREATE TABLE tenant_budgets (
    tenant       BIGINT PRIMARY KEY REFERENCES tenants (id),
    day_tokens   BIGINT,
    month_tokens BIGINT
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
