-- What version 20 added, as its commit has it in store/src/part_bytes.sql.

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

-- rows: what a server of that version wrote.
--;
-- Of a part whose server was killed while it came.
INSERT INTO files (id, tenant, purpose, name, encoded, bytes, line_count, created, expires, whole, node)
    VALUES ('part_broken', 2, 'upload_part', 'in.jsonl', 1, 0, 0, 1763700000000, 1763701140000, 0, 'relserve')
--;
INSERT INTO file_chunks (file, chunk_number, content) VALUES ('part_broken', 0, 'e30K')
--;
INSERT INTO upload_parts (id, upload, bytes, whole) VALUES ('part_broken', 'upload_old', 3, 0)
