-- What requests with an idempotency key were answered with, by tenant and key.

CREATE TABLE idempotent_replies (
    tenant       BIGINT NOT NULL REFERENCES tenants (id),
    name         TEXT NOT NULL,
    request      TEXT NOT NULL,
    status       BIGINT NOT NULL,
    content_type TEXT NOT NULL,
    body         TEXT NOT NULL,
    expires      BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
)
--;
CREATE INDEX idempotent_replies_by_expiry ON idempotent_replies (tenant, expires)
