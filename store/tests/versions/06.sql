-- What version 6 added, as commit c990e766 has it in store/src/replica_leases.sql.

-- Version 6. How gateways divide the servers that all of them use.

-- What a gateway (`node`) holds of a server, and what it has to do for it. `queue` is JSON of the gateways' own.
-- `renewed` and `expires` are by the database's clock.
CREATE TABLE replica_leases (
    replica     TEXT NOT NULL,
    node        TEXT NOT NULL,
    rows_max    BIGINT NOT NULL,
    tokens_max  BIGINT,
    held_rows   BIGINT NOT NULL,
    held_tokens BIGINT NOT NULL,
    queue       TEXT NOT NULL,
    renewed     BIGINT NOT NULL,
    expires     BIGINT NOT NULL,
    PRIMARY KEY (replica, node)
)

-- rows: what a server of that version wrote.
--;
INSERT INTO replica_leases (replica, node, rows_max, tokens_max, held_rows, held_tokens, queue, renewed, expires) VALUES
    ('http://replica', 'relserve', 8, NULL, 0, 0, '{}', 1763700000000, 1763700000001)
