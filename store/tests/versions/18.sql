-- What version 18 added, as its commit has it in store/src/ticket_takes.sql.

-- Version 18. How often a ticket was taken up without a row of it stored since, and by which process it is now.

ALTER TABLE tickets ADD COLUMN takes BIGINT NOT NULL DEFAULT 0
--;
-- A process that ends in order gives its tickets back. One that was killed stays here until another takes them up.
ALTER TABLE tickets ADD COLUMN taken_by TEXT

-- rows: what a server of that version wrote.
--;
-- Of a ticket whose server was killed twice.
UPDATE tickets SET takes = 2, taken_by = '6b1d0c59d0a34a3fb7d1f0a9f1e0c2aa' WHERE id = 'rq-5'
