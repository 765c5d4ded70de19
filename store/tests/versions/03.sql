-- What version 3 added, as commit 440b14fd has it in store/src/corpora.sql.

-- Corpora: documents cut into fragments, each with its vector. Same rules as schema.sql; a vector is bytes, and SQLite takes
-- them in a column of any name.

INSERT INTO counters (name, last) VALUES ('corpus', 0)
--;
CREATE TABLE corpora (
    tenant   BIGINT NOT NULL REFERENCES tenants (id),
    name     TEXT NOT NULL,
    embedder TEXT NOT NULL,
    dims     BIGINT NOT NULL,
    fragment_tokens BIGINT NOT NULL,
    fragment_overlap BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    documents BIGINT NOT NULL,
    fragments BIGINT NOT NULL,
    bytes    BIGINT NOT NULL,
    tokens   BIGINT NOT NULL,
    created  BIGINT NOT NULL,
    updated  BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
)
--;
CREATE TABLE corpus_documents (
    tenant    BIGINT NOT NULL,
    corpus    TEXT NOT NULL,
    id        TEXT NOT NULL,
    digest    TEXT NOT NULL,
    bytes     BIGINT NOT NULL,
    tokens    BIGINT NOT NULL,
    fragments BIGINT NOT NULL,
    PRIMARY KEY (tenant, corpus, id),
    FOREIGN KEY (tenant, corpus) REFERENCES corpora (tenant, name) ON DELETE CASCADE
)
--;
CREATE TABLE corpus_fragments (
    tenant   BIGINT NOT NULL,
    corpus   TEXT NOT NULL,
    document TEXT NOT NULL,
    place    BIGINT NOT NULL,
    content  TEXT NOT NULL,
    tokens   BIGINT NOT NULL,
    vector   BYTEA NOT NULL,
    PRIMARY KEY (tenant, corpus, document, place),
    FOREIGN KEY (tenant, corpus, document) REFERENCES corpus_documents (tenant, corpus, id) ON DELETE CASCADE
)

-- rows: what a server of that version wrote.
--;
INSERT INTO corpora (tenant, name, embedder, dims, fragment_tokens, fragment_overlap, revision, documents, fragments, bytes, tokens, created, updated) VALUES
    (2, 'manuals', 'embedder', 2, 64, 8, 1, 1, 1, 9, 3, 1763700000000, 1763700000000)
--;
UPDATE counters SET last = 1 WHERE name = 'corpus'
--;
INSERT INTO corpus_documents (tenant, corpus, id, digest, bytes, tokens, fragments) VALUES (2, 'manuals', 'pump', 'digest', 9, 3, 1)
--;
INSERT INTO corpus_fragments (tenant, corpus, document, place, content, tokens, vector) VALUES (2, 'manuals', 'pump', 0, 'Turn left', 3, X'00ff')
