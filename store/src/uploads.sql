-- Version 19. Uploads in parts, which become files.

CREATE TABLE uploads (
    id      TEXT PRIMARY KEY,
    tenant  BIGINT NOT NULL REFERENCES tenants (id),
    purpose TEXT NOT NULL,
    name    TEXT NOT NULL,
    -- Of the file that it is to become.
    bytes   BIGINT NOT NULL,
    -- For how long that file is kept, NULL where the configuration says it.
    kept_ms BIGINT,
    -- `pending`, `completed` or `cancelled`.
    state   TEXT NOT NULL,
    -- The file that it became.
    file    TEXT,
    created BIGINT NOT NULL,
    expires BIGINT NOT NULL
)
--;
CREATE INDEX uploads_of_tenant ON uploads (tenant)
--;
CREATE INDEX uploads_by_end ON uploads (expires)
--;
-- A part that came whole. What it holds is a file of its name, which nobody sees: it is never whole.
CREATE TABLE upload_parts (
    id     TEXT PRIMARY KEY REFERENCES files (id) ON DELETE CASCADE,
    upload TEXT NOT NULL REFERENCES uploads (id) ON DELETE CASCADE,
    bytes  BIGINT NOT NULL
)
--;
CREATE INDEX parts_of_upload ON upload_parts (upload)
