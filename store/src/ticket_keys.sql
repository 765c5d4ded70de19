-- Version 15. A ticket has the idempotency key of its request: the same request gets the ticket while that runs, too.

ALTER TABLE tickets ADD COLUMN idempotency_key TEXT
--;
-- SHA-256 of the request that has the key: its path and body.
ALTER TABLE tickets ADD COLUMN request_digest TEXT
--;
CREATE INDEX tickets_by_idempotency_key ON tickets (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL
