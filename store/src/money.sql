-- Version 12. Budgets of money, in billionths of the currency that prices are in.

-- What the rows cost at the prices of their day.
ALTER TABLE token_usage ADD COLUMN cost BIGINT NOT NULL DEFAULT 0
--;
ALTER TABLE tenant_limits ADD COLUMN day_cost BIGINT
--;
ALTER TABLE tenant_limits ADD COLUMN month_cost BIGINT
