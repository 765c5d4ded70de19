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
