-- What version 23 added, as its commit has it in store/src/result_bytes.sql.

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

-- rows: what a server of that version wrote.
--;
INSERT INTO results (tenant, key, value, created, expires, last_use, bytes) VALUES
    (2, '1717171717171717171717171717171717171717171717171717171717171717', '{"text":"negative","stop":true,"prompt":12,"output":1}', 1763700000000, 4102444800000, 1763700000000, 54)
