-- Version 20. Parts of uploads count from their first chunk on.

-- 1: the part came whole. 0: it is still coming, and `bytes` are those that have come; they count until its file's date.
ALTER TABLE upload_parts ADD COLUMN whole BIGINT NOT NULL DEFAULT 1
--;
-- The gateway that receives it from a client, NULL of what no client sends: one that begins anew receives nothing.
ALTER TABLE files ADD COLUMN node TEXT
--;
-- What a tenant's files take is summed before each chunk: from here alone.
CREATE INDEX files_by_size ON files (tenant, whole, bytes, expires, id)
--;
DROP INDEX parts_of_upload
--;
-- The same of an upload's parts.
CREATE INDEX parts_by_size ON upload_parts (upload, whole, bytes)
