-- What version 9 added, as commit 41a5a8d3 has it in store/src/upkeep.sql.

-- Version 9. What keeps lists short, looks quick, and versions of workbooks apart.

-- 1: a sign-in link was exchanged for it; it is deleted once it is past its date.
ALTER TABLE api_keys ADD COLUMN signed_in BIGINT NOT NULL DEFAULT 0
--;
UPDATE api_keys SET signed_in = 1 WHERE name = 'signed in by a link' AND expires IS NOT NULL
--;
-- All of a version but its content: sums and lists read no content, which SQLite keeps in front of these columns.
CREATE INDEX workbook_versions_without_content
    ON workbook_versions (tenant, workbook, version, bytes, saved, began, closed, name)
--;
-- The last version of workbooks that were deleted: one of the same identity goes on behind it, so that a save that
-- stands on the old one is known to be stale.
CREATE TABLE deleted_workbooks (
    tenant  BIGINT NOT NULL REFERENCES tenants (id),
    id      TEXT NOT NULL,
    version BIGINT NOT NULL,
    deleted BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
)

-- rows: what a server of that version wrote.
--;
INSERT INTO deleted_workbooks (tenant, id, version, deleted) VALUES (2, 'gone', 8, 1763700000000)
