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
