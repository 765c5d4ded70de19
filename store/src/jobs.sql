-- Version 4. Files, and what a ticket needs to hold a batch of many rows.

-- `whole` is 0 while a file is being written: nobody sees it before it is 1.
CREATE TABLE files (
    id         TEXT PRIMARY KEY,
    tenant     BIGINT NOT NULL REFERENCES tenants (id),
    purpose    TEXT NOT NULL,
    name       TEXT NOT NULL,
    bytes      BIGINT NOT NULL,
    line_count BIGINT NOT NULL,
    created    BIGINT NOT NULL,
    expires    BIGINT NOT NULL,
    whole      BIGINT NOT NULL
)
--;
CREATE INDEX files_of_tenant ON files (tenant, created)
--;
CREATE INDEX files_by_expiry ON files (expires)
--;
-- Whole lines of a file's text.
CREATE TABLE file_chunks (
    file         TEXT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
    chunk_number BIGINT NOT NULL,
    content      TEXT NOT NULL,
    PRIMARY KEY (file, chunk_number)
)
--;
ALTER TABLE tickets ADD COLUMN cancelling BIGINT
--;
ALTER TABLE ticket_rows ADD COLUMN failed BIGINT NOT NULL DEFAULT 0
--;
CREATE INDEX tickets_of_tenant ON tickets (tenant, kind, created)
