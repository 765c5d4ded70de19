-- What version 13 added, as commit 7eefbe94 has it in store/src/scopes.sql.

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

-- rows: what a server of that version wrote.
--;
-- A key that was rotated from the first.
INSERT INTO api_keys (id, tenant, name, sha256, shown, created, read_only, routes, sql_tables, rotated_from) VALUES
    (5, 2, 'desk', '4f2a8a09ee47d98db681ca9bf3cf7c44074246971c41bbdf25f62f5b40f6bc12', 'rs-5555555', 1763700100000, 1, '["cells"]', NULL, 1)
--;
UPDATE counters SET last = 5 WHERE name = 'key'
