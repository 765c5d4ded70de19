-- What version 16 added, as its commit has it in store/src/responses.sql.

-- Version 16. Responses that a later request may go on from.

CREATE TABLE responses (
    tenant  BIGINT NOT NULL REFERENCES tenants (id),
    id      TEXT NOT NULL,
    -- What was sent, as a JSON array: the whole conversation before the answer.
    input   TEXT NOT NULL,
    -- What was answered, as JSON.
    reply   TEXT NOT NULL,
    -- Of both.
    bytes   BIGINT NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
)
--;
-- The oldest of a tenant are read without their texts.
CREATE INDEX responses_by_age ON responses (tenant, created, id, bytes)
--;
CREATE INDEX responses_by_end ON responses (expires)

-- rows: what a server of that version wrote.
--;
INSERT INTO responses VALUES (2, 'resp-7', '[{"role":"user"}]', '{"id":"resp-7"}', 32, 1763700100000, 1766292100000)
