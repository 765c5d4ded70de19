-- What version 10 added, as commit a03515e1 has it in store/src/idempotency.sql.

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

-- rows: what a server of that version wrote.
--;
INSERT INTO idempotent_replies (tenant, name, request, status, content_type, body, expires) VALUES
    (2, 'once', '0808080808080808080808080808080808080808080808080808080808080808', 200, 'application/json', '{"id":"rq-3"}', 4102444800000)
