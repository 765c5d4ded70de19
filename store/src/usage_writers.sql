-- Version 14. A write of usage that is sent again counts once.

-- The number of each writer's last write. A writer is a process, and is forgotten when it has written nothing for long.
CREATE TABLE usage_writers (
    id      TEXT PRIMARY KEY,
    last    BIGINT NOT NULL,
    written BIGINT NOT NULL
)
