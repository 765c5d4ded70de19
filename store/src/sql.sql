-- Version 5. Logins over the Postgres protocol, what SQL has computed by day, and files that are not text.

-- Checks a SCRAM login (`SCRAM-SHA-256$..`, as Postgres stores it); keys made before version 5 have none.
ALTER TABLE api_keys ADD COLUMN verifier TEXT
--;
CREATE TABLE sql_spending (
    tenant BIGINT NOT NULL REFERENCES tenants (id),
    day    BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    calls  BIGINT NOT NULL,
    PRIMARY KEY (tenant, day)
)
--;
-- 1: the chunks are base64 of a file's bytes.
ALTER TABLE files ADD COLUMN encoded BIGINT NOT NULL DEFAULT 0
