-- What version 2 added, as commit f14ad345 has it in store/src/schemas.sql.

-- PML schemas by tenant and name.

CREATE TABLE schemas (
    tenant  BIGINT NOT NULL REFERENCES tenants (id),
    name    TEXT NOT NULL,
    pml     TEXT NOT NULL,
    pinned  BIGINT NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
)

-- rows: what a server of that version wrote.
--;
INSERT INTO schemas (tenant, name, pml, pinned, created, updated) VALUES
    (2, 'travel', '<schema name="travel"><module name="city">Lisbon</module></schema>', 3, 1763700000000, 1763700000000)
