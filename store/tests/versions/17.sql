-- What version 17 added, as its commit has it in store/src/key_claims.sql.

-- Version 17. Which gateway runs the request of an idempotency key, while it does: the same request at another gateway is no
-- second run.

CREATE TABLE key_claims (
    tenant  BIGINT NOT NULL REFERENCES tenants (id),
    name    TEXT NOT NULL,
    request TEXT NOT NULL,
    node    TEXT NOT NULL,
    token   TEXT NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
)

-- rows: what a server of that version wrote.
--;
-- Of a request that runs.
INSERT INTO key_claims (tenant, name, request, node, token, expires) VALUES (2, 'in flight', '0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a', 'relserve', 'fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210', 1763700100000)
