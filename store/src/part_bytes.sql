-- Version 20. Parts of uploads count from their first chunk on.

-- 1: the part came whole. 0: it is still coming, and `bytes` are those that have come; they count until its file's date.
ALTER TABLE upload_parts ADD COLUMN whole BIGINT NOT NULL DEFAULT 1
