-- Version 23. What a tenant's results take is bounded.

-- Bytes of the value.
ALTER TABLE results ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0
--;
UPDATE results SET bytes = octet_length(value)
--;
-- What a tenant's results take is summed at each write: from here alone. In the order in which they go.
CREATE INDEX results_by_size ON results (tenant, last_use, key, bytes)
--;
DROP INDEX results_of_tenant_by_use
