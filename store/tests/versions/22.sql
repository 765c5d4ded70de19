-- What version 22 added, as its commit has it in store/src/sums.sql.

-- Version 22. What is asked for often, without reading all of it.

-- What a tenant has of idempotent replies: the sums of its rows there, changed in the transactions that change those. A tenant
-- without a row has not been summed yet.
CREATE TABLE idempotent_reply_sums (
    tenant  BIGINT PRIMARY KEY REFERENCES tenants (id),
    replies BIGINT NOT NULL,
    bytes   BIGINT NOT NULL
)
--;
-- How many keys of a tenant work is counted from here alone.
CREATE INDEX api_keys_by_tenant ON api_keys (tenant, revoked, expires)

-- rows: what a server of that version wrote.
--;
-- Of the reply that version 10 left.
INSERT INTO idempotent_reply_sums (tenant, replies, bytes) VALUES (2, 1, 13)
