-- What version 21 added, as its commit has it in store/src/ticket_progress.sql.

-- Version 21. How far tickets are, for readers at other gateways than those that run them. Both tables have rows while somebody
-- reads so, and no longer.

-- Tickets that are read so, and until when their gateways need to tell, by the database's clock.
CREATE TABLE ticket_readers (
    ticket  TEXT PRIMARY KEY REFERENCES tickets (id) ON DELETE CASCADE,
    expires BIGINT NOT NULL
)
--;
-- What a ticket's gateway tells, piece by piece: all pieces of a ticket are of one run of its work, by one process.
CREATE TABLE ticket_progress (
    ticket       TEXT NOT NULL REFERENCES ticket_readers (ticket) ON DELETE CASCADE,
    piece_number BIGINT NOT NULL,
    process      TEXT NOT NULL,
    run          TEXT NOT NULL,
    content      TEXT NOT NULL,
    PRIMARY KEY (ticket, piece_number)
)

-- rows: what a server of that version wrote.
--;
-- Of a ticket that another gateway's reader follows.
INSERT INTO ticket_readers (ticket, expires) VALUES ('rq-5', 1763700115000)
--;
INSERT INTO ticket_progress (ticket, piece_number, process, run, content) VALUES
    ('rq-5', 0, '4f2a8a09ee47d98db681ca9bf3cf7c44', 'fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210', '{"text":"so far","tokens":[]}')
