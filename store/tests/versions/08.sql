-- What version 8 added, as commit c1c6f743 has it in store/src/workbooks.sql.

-- Version 8. Workbooks of tenants, the versions of them that are kept, and the links that show them.

INSERT INTO counters (name, last) VALUES ('share', 0)
--;
-- `version` counts saves; `bytes` is the size of the newest version.
CREATE TABLE workbooks (
    tenant  BIGINT NOT NULL REFERENCES tenants (id),
    id      TEXT NOT NULL,
    name    TEXT NOT NULL,
    version BIGINT NOT NULL,
    bytes   BIGINT NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
)
--;
-- One row per stretch of saves: `began` is the stretch's first save, the rest is its last. `closed` 1: the next save,
-- however soon, begins another.
CREATE TABLE workbook_versions (
    tenant   BIGINT NOT NULL,
    workbook TEXT NOT NULL,
    version  BIGINT NOT NULL,
    name     TEXT NOT NULL,
    content  TEXT NOT NULL,
    bytes    BIGINT NOT NULL,
    began    BIGINT NOT NULL,
    closed   BIGINT NOT NULL,
    saved    BIGINT NOT NULL,
    PRIMARY KEY (tenant, workbook, version),
    FOREIGN KEY (tenant, workbook) REFERENCES workbooks (tenant, id) ON DELETE CASCADE
)
--;
CREATE TABLE workbook_shares (
    id       BIGINT PRIMARY KEY,
    sha256   TEXT NOT NULL UNIQUE,
    tenant   BIGINT NOT NULL,
    workbook TEXT NOT NULL,
    created  BIGINT NOT NULL,
    expires  BIGINT NOT NULL,
    FOREIGN KEY (tenant, workbook) REFERENCES workbooks (tenant, id) ON DELETE CASCADE
)
--;
CREATE INDEX shares_of_workbook ON workbook_shares (tenant, workbook)

-- rows: what a server of that version wrote.
--;
INSERT INTO workbooks (tenant, id, name, version, bytes, created, updated) VALUES (2, 'w', 'Sales', 3, 7, 1763700000000, 1763700000000)
--;
INSERT INTO workbook_versions (tenant, workbook, version, name, content, bytes, began, closed, saved) VALUES (2, 'w', 3, 'Sales', '{"v":3}', 7, 1763700000000, 0, 1763700000000)
--;
INSERT INTO workbook_shares (id, sha256, tenant, workbook, created, expires) VALUES (1, '0851079e95b17a7229ee5304f3a3386c694d13aa31029dffe2f9bda80233c082', 2, 'w', 1763700000000, 4102444800000)
--;
UPDATE counters SET last = 1 WHERE name = 'share'
