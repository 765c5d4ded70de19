-- What version 14 added, as its commit has it in store/src/usage_writers.sql.

-- Version 14. A write of usage that is sent again counts once.

-- The number of each writer's last write. A writer is a process, and is forgotten when it has written nothing for long.
CREATE TABLE usage_writers (
    id      TEXT PRIMARY KEY,
    last    BIGINT NOT NULL,
    written BIGINT NOT NULL
)

-- rows: what a server of that version wrote.
--;
INSERT INTO usage_writers VALUES ('4f2a8a09ee47d98db681ca9bf3cf7c44', 12, 1763700100000)
