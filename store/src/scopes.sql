-- Version 13. What keys may, and which key each was rotated from. Keys made before may all that their tenants may.

-- 1: the key only looks.
ALTER TABLE api_keys ADD COLUMN read_only BIGINT NOT NULL DEFAULT 0
--;
-- JSON lists of names: groups of routes, and tables of SQL. What is NULL has no bound.
ALTER TABLE api_keys ADD COLUMN routes TEXT
--;
ALTER TABLE api_keys ADD COLUMN sql_tables TEXT
--;
ALTER TABLE api_keys ADD COLUMN rotated_from BIGINT
