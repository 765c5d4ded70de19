-- Version 18. How often a ticket was taken up without a row of it stored since, and by which process it is now.

ALTER TABLE tickets ADD COLUMN takes BIGINT NOT NULL DEFAULT 0
--;
-- A process that ends in order gives its tickets back. One that was killed stays here until another takes them up.
ALTER TABLE tickets ADD COLUMN taken_by TEXT
