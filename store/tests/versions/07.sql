-- What version 7 added, as commit c1c6f743 has it in store/src/sign_ins.sql.

-- Version 7. Keys of operators, and tokens of sign-in links.

-- 1: the key of an operator, who sees all tenants and changes them.
ALTER TABLE api_keys ADD COLUMN operator BIGINT NOT NULL DEFAULT 0
--;
CREATE TABLE sign_in_tokens (
    sha256   TEXT PRIMARY KEY,
    tenant   BIGINT NOT NULL REFERENCES tenants (id),
    operator BIGINT NOT NULL,
    expires  BIGINT NOT NULL
)
--;
-- One row: what tells this database from every other one.
CREATE TABLE store_identity (
    only_row BIGINT PRIMARY KEY,
    id       TEXT NOT NULL
)

-- rows: what a server of that version wrote.
--;
-- The operators' key rs-00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff.
INSERT INTO api_keys (id, tenant, name, sha256, shown, created, last_used, expires, revoked, verifier, operator) VALUES
    (4, 1, 'operators', 'ef730af72255526f22ddc2d4374e5841a368651a00ce61eeabccb1a2744679ba', 'rs-0011223', 1763700000000, NULL, NULL, NULL, NULL, 1)
--;
UPDATE counters SET last = 4 WHERE name = 'key'
--;
INSERT INTO store_identity (only_row, id) VALUES (1, 'this-database')
