-- What a year of work leaves in a database: runs on SQLite and on Postgres. `run.sh` puts numbers in place of @NAMES@.
-- A row of usage is a tenant's day, model and route; 24 a day for each tenant, day by day, as servers write them.

INSERT INTO tenants (id, name, weight, created)
WITH RECURSIVE n(i) AS (SELECT CAST(2 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i <= @TENANTS@)
SELECT i, 'tenant ' || i, 1, 1 FROM n;
UPDATE counters SET last = @TENANTS@ + 1 WHERE name = 'tenant';

INSERT INTO token_usage (day, tenant, model, route, requests, row_count, prompt, cached, computed, output)
WITH RECURSIVE n(i) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < @ROWS@ - 1)
SELECT @TODAY@ - 364 + i / (24 * @TENANTS@), (i / 24) % @TENANTS@ + 2, 'model ' || ((i / 8) % 3), 'route ' || (i % 8),
    i % 90 + 1, i % 900 + 1, i % 90000, i % 7000, i % 80000, i % 9000
FROM n;

-- Usage of longer ago than `store.usage_days_max` keeps by day: sixty days of a few tenants, in months that are over.
INSERT INTO token_usage (day, tenant, model, route, requests, row_count, prompt, cached, computed, output)
WITH RECURSIVE n(i) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < 60 * 24 * @OLD@ - 1)
SELECT @TODAY@ - 490 + i / (24 * @OLD@), (i / 24) % @OLD@ + 2, 'model ' || ((i / 8) % 3), 'route ' || (i % 8),
    i % 90 + 1, i % 900 + 1, i % 90000, i % 7000, i % 80000, i % 9000
FROM n;

-- Keys of all tenants: one of ten works; of the rest about half are revoked and half past their date, a part of them of
-- sign-in links, which go by themselves. No text has such a hash.
INSERT INTO api_keys (id, tenant, name, sha256, shown, created, expires, revoked, signed_in)
WITH RECURSIVE n(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < @KEYS@)
SELECT i + 10, i % @TENANTS@ + 2, 'key ' || i,
    substr('0000000000000000000000000000000000000000000000000000000000000000', 1, 64 - length(CAST(i AS TEXT))) || i,
    'rs-000000', @NOW@ - 30000000000 + i,
    CASE WHEN i % 10 > 0 AND i % 2 = 0 THEN @NOW@ - 1000000 END,
    CASE WHEN i % 2 = 1 THEN @NOW@ - 2000000 END,
    CASE WHEN i % 10 = 2 THEN 1 ELSE 0 END
FROM n;
UPDATE counters SET last = @KEYS@ + 10 WHERE name = 'key';

-- As many answers as the cache keeps by default: a week's, at most.
INSERT INTO results (tenant, key, value, created, expires, last_use, bytes)
WITH RECURSIVE n(i) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < @RESULTS@ - 1)
SELECT i % @TENANTS@ + 2,
    substr('0000000000000000000000000000000000000000000000000000000000000000', 1, 64 - length(CAST(i AS TEXT))) || i,
    '{"text":"an answer of a cell, a sentence or two long, as most are that somebody asks for","stop":true,"prompt":120,"output":24}',
    @NOW@ - i, @NOW@ + 600000000, @NOW@ - i, 127
FROM n;

-- What operators did, behind the keys that `run.sh` has made: nothing deletes it.
INSERT INTO audit_log (id, at, actor, action, subject, details, is_done)
WITH RECURSIVE n(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < @ROWS@ / 100)
SELECT i + 10, @NOW@ - 300000 * (@ROWS@ / 100 - i), 'key 1', 'key.create', 'a key', '{"tenant":"tenant 7"}', 1 FROM n;
UPDATE counters SET last = @ROWS@ / 100 + 10 WHERE name = 'audit';

-- A day's tickets of ten rows, half of them past their date.
INSERT INTO tickets (id, tenant, kind, request, state, summary, created, expires, holder, leased_until)
WITH RECURSIVE n(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
SELECT 'rq-' || i, 1, 'relquery', '{"model":"relserve-demo","ended_rows":10}', 'completed', '{}', @NOW@ - i,
    @NOW@ + CASE i % 2 WHEN 0 THEN 86400000 ELSE -1 END, 'relserve', 1
FROM n;
INSERT INTO ticket_rows (ticket, row_number, result, failed)
WITH RECURSIVE n(i) AS (SELECT CAST(10 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < 100009)
SELECT 'rq-' || (i / 10), i % 10,
    '{"index":0,"text":"an answer","finish_reason":"stop","usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14,"computed_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}}',
    0
FROM n;
