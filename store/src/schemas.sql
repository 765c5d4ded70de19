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
