-- What version 15 added, as its commit has it in store/src/ticket_keys.sql.

-- Version 15. A ticket has the idempotency key of its request: the same request gets the ticket while that runs, too.

ALTER TABLE tickets ADD COLUMN idempotency_key TEXT
--;
-- SHA-256 of the request that has the key: its path and body.
ALTER TABLE tickets ADD COLUMN request_digest TEXT
--;
CREATE INDEX tickets_by_idempotency_key ON tickets (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL

-- rows: what a server of that version wrote.
--;
-- A ticket that ended gets the key of its request.
UPDATE tickets SET idempotency_key = 'once more', request_digest = '0909090909090909090909090909090909090909090909090909090909090909' WHERE id = 'rq-4'
