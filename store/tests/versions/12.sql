-- What version 12 added, as commit 62a8c437 has it in store/src/money.sql.

-- Version 12. Budgets of money, in billionths of the currency that prices are in.

-- What the rows cost at the prices of their day.
ALTER TABLE token_usage ADD COLUMN cost BIGINT NOT NULL DEFAULT 0
--;
ALTER TABLE tenant_limits ADD COLUMN day_cost BIGINT
--;
ALTER TABLE tenant_limits ADD COLUMN month_cost BIGINT

-- rows: what a server of that version wrote.
--;
UPDATE token_usage SET cost = 1400 WHERE tenant = 2
--;
UPDATE tenant_limits SET day_cost = 5000000000 WHERE tenant = 2
