-- What version 4 added, as commit 8d594d00 has it in store/src/jobs.sql.

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

-- rows: what a server of that version wrote.
--;
INSERT INTO files (id, tenant, purpose, name, bytes, line_count, created, expires, whole) VALUES
    ('file-old', 2, 'batch', 'in.jsonl', 468, 4, 1763700000000, 4102444800000, 1)
--;
INSERT INTO file_chunks (file, chunk_number, content) VALUES ('file-old', 0, '{"custom_id":"row 0","method":"POST","url":"/v1/completions","body":{"prompt":[1,2],"max_tokens":1,"temperature":0}}
{"custom_id":"row 1","method":"POST","url":"/v1/completions","body":{"prompt":[2,2],"max_tokens":1,"temperature":0}}
{"custom_id":"row 2","method":"POST","url":"/v1/completions","body":{"prompt":[3,2],"max_tokens":1,"temperature":0}}
{"custom_id":"row 3","method":"POST","url":"/v1/completions","body":{"prompt":[4,2],"max_tokens":1,"temperature":0}}
')
--;
-- A batch that runs, two rows of it written.
INSERT INTO tickets (id, tenant, kind, request, state, summary, created, expires, holder, leased_until) VALUES
    ('batch_old', 2, 'batch', '{"input_file_id":"file-old","endpoint":"/v1/completions","completion_window":"24h","window":3000000000000,"metadata":null}',
     'running', '{"total":4,"completed":0,"failed":0,"in_progress_at":1763700000000,"finalizing_at":null,"ended_at":null,"is_expired":false,"errors":[],"output_file":null,"error_file":null}',
     1763700000000, 4102444800000, 'relserve', 1763700060000)
--;
INSERT INTO ticket_rows (ticket, row_number, result, failed) VALUES
    ('batch_old', 1, '{"id":"batch_req_0","custom_id":"row 0","response":{"status_code":200,"request_id":"batch_req_0","body":{"id":"cmpl-0","object":"text_completion","choices":[{"index":0,"text":"as it was 0","finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}}},"error":null}', 0),
    ('batch_old', 3, '{"id":"batch_req_2","custom_id":"row 2","response":{"status_code":200,"request_id":"batch_req_2","body":{"id":"cmpl-2","object":"text_completion","choices":[{"index":0,"text":"as it was 2","finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}}},"error":null}', 0)
