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
