-- What version 5 added, as commit 3bcf17d6 has it in store/src/sql.sql.

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

-- rows: what a server of that version wrote.
--;
INSERT INTO api_keys (id, tenant, name, sha256, shown, created, last_used, expires, revoked, verifier) VALUES
    (3, 2, 'sql', '2981c9a98e01c5dadc3915b737d8da60805a12652a37e975866edfd59ba61494', 'rs-sql', 1763700000000, NULL, NULL, NULL, 'SCRAM-SHA-256$4096:c2FsdA==$c3RvcmVk:c2VydmVy')
--;
UPDATE counters SET last = 3 WHERE name = 'key'
--;
INSERT INTO sql_spending (tenant, day, tokens, calls) VALUES (2, 20413, 900, 30)
--;
INSERT INTO files (id, tenant, purpose, name, encoded, bytes, line_count, created, expires, whole) VALUES
    ('file-bytes', 2, 'user_data', 'a.parquet', 1, 3, 0, 1763700000000, 4102444800000, 1)
--;
INSERT INTO file_chunks (file, chunk_number, content) VALUES ('file-bytes', 0, 'UEFS')
