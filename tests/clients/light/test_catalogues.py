"""The queries about tables, columns and types that Metabase, Grafana and Power BI send, replayed.

The programs themselves are not run here: what they send is known from their sources and logs.
"""

import psycopg
from shared import DATABASE, HOST, KEY, PORT, USER, Checks

METABASE_TABLES = """
SELECT "n"."nspname" AS "schema", "c"."relname" AS "name",
  CASE "c"."relkind" WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE' WHEN 'v' THEN 'VIEW'
    WHEN 'f' THEN 'FOREIGN TABLE' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE NULL END AS "type",
  "d"."description" AS "description", "stat"."n_live_tup" AS "estimated_row_count"
FROM "pg_catalog"."pg_class" AS "c"
INNER JOIN "pg_catalog"."pg_namespace" AS "n" ON "c"."relnamespace" = "n"."oid"
LEFT JOIN "pg_catalog"."pg_description" AS "d" ON ("c"."oid" = "d"."objoid") AND ("d"."objsubid" = 0)
  AND ("d"."classoid" = 'pg_class'::regclass)
LEFT JOIN "pg_stat_user_tables" AS "stat" ON ("n"."nspname" = "stat"."schemaname")
  AND ("c"."relname" = "stat"."relname")
WHERE ("c"."relnamespace" = "n"."oid") AND ("n"."nspname" !~ '^pg_')
  AND ("n"."nspname" <> 'information_schema') AND c.relkind IN ('r', 'p', 'v', 'f', 'm')
  AND ("n"."nspname" IN ('public'))
ORDER BY "type" ASC, "schema" ASC, "name" ASC"""

METABASE_PRIVILEGES = """
with table_privileges as (
 select NULL as role, t.schemaname as schema, t.objectname as table,
  pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"'
    || replace(t.objectname, '"', '""') || '"', 'update') as update,
  pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"'
    || replace(t.objectname, '"', '""') || '"', 'select') as select,
  pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"'
    || replace(t.objectname, '"', '""') || '"', 'insert') as insert,
  pg_catalog.has_table_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"'
    || replace(t.objectname, '"', '""') || '"', 'delete') as delete
 from (
  select schemaname, tablename as objectname from pg_catalog.pg_tables
  union
  select schemaname, viewname as objectname from pg_catalog.pg_views
  union
  select schemaname, matviewname as objectname from pg_catalog.pg_matviews
 ) t
 where t.schemaname !~ '^pg_' and t.schemaname <> 'information_schema'
  and pg_catalog.has_schema_privilege(current_user, t.schemaname, 'usage')
)
select t.* from table_privileges t where t.select or t.update or t.insert or t.delete"""

METABASE_FIELDS = """
SELECT "c"."column_name" AS "name",
  CASE WHEN "c"."udt_schema" IN ('public', 'pg_catalog') THEN FORMAT('%%s', "c"."udt_name")
    ELSE FORMAT('"%%s"."%%s"', "c"."udt_schema", "c"."udt_name") END AS "database-type",
  "c"."ordinal_position" - 1 AS "database-position", "c"."table_schema" AS "table-schema",
  "c"."table_name" AS "table-name", "pk"."column_name" IS NOT NULL AS "pk?",
  COL_DESCRIPTION(CAST(CAST(FORMAT('%%I.%%I', CAST("c"."table_schema" AS TEXT), CAST("c"."table_name" AS TEXT))
    AS REGCLASS) AS OID), "c"."ordinal_position") AS "field-comment",
  (("column_default" IS NULL) OR (LOWER("column_default") = 'null')) AND ("is_nullable" = 'NO')
    AND NOT ((("column_default" IS NOT NULL) AND ("column_default" LIKE '%%nextval(%%'))
    OR ("is_identity" <> 'NO')) AS "database-required",
  (("column_default" IS NOT NULL) AND ("column_default" LIKE '%%nextval(%%')) OR ("is_identity" <> 'NO')
    AS "database-is-auto-increment"
FROM "information_schema"."columns" AS "c"
LEFT JOIN (SELECT "tc"."table_schema", "tc"."table_name", "kc"."column_name"
  FROM "information_schema"."table_constraints" AS "tc"
  INNER JOIN "information_schema"."key_column_usage" AS "kc"
    ON ("tc"."constraint_name" = "kc"."constraint_name") AND ("tc"."table_schema" = "kc"."table_schema")
    AND ("tc"."table_name" = "kc"."table_name")
  WHERE "tc"."constraint_type" = 'PRIMARY KEY') AS "pk"
  ON ("c"."table_schema" = "pk"."table_schema") AND ("c"."table_name" = "pk"."table_name")
  AND ("c"."column_name" = "pk"."column_name")
WHERE c.table_schema !~ '^information_schema|catalog_history|pg_' AND ("c"."table_schema" IN (%s))
  AND ("c"."table_name" IN (%s))
UNION ALL
SELECT "pa"."attname" AS "name",
  CASE WHEN "ptn"."nspname" IN ('public', 'pg_catalog') THEN FORMAT('%%s', "pt"."typname")
    ELSE FORMAT('"%%s"."%%s"', "ptn"."nspname", "pt"."typname") END AS "database-type",
  "pa"."attnum" - 1 AS "database-position", "pn"."nspname" AS "table-schema", "pc"."relname" AS "table-name",
  FALSE AS "pk?", NULL AS "field-comment", FALSE AS "database-required", FALSE AS "database-is-auto-increment"
FROM "pg_catalog"."pg_class" AS "pc"
INNER JOIN "pg_catalog"."pg_namespace" AS "pn" ON "pn"."oid" = "pc"."relnamespace"
INNER JOIN "pg_catalog"."pg_attribute" AS "pa" ON "pa"."attrelid" = "pc"."oid"
INNER JOIN "pg_catalog"."pg_type" AS "pt" ON "pt"."oid" = "pa"."atttypid"
INNER JOIN "pg_catalog"."pg_namespace" AS "ptn" ON "ptn"."oid" = "pt"."typnamespace"
WHERE ("pc"."relkind" = 'm') AND ("pa"."attnum" >= 1) AND ("pn"."nspname" IN (%s))
ORDER BY "table-schema" ASC, "table-name" ASC, "database-position" ASC"""

METABASE_FOREIGN_KEYS = """
SELECT "fk_ns"."nspname" AS "fk-table-schema", "fk_table"."relname" AS "fk-table-name",
  "fk_column"."attname" AS "fk-column-name", "pk_ns"."nspname" AS "pk-table-schema",
  "pk_table"."relname" AS "pk-table-name", "pk_column"."attname" AS "pk-column-name"
FROM "pg_constraint" AS "c"
INNER JOIN "pg_class" AS "fk_table" ON "c"."conrelid" = "fk_table"."oid"
INNER JOIN "pg_namespace" AS "fk_ns" ON "c"."connamespace" = "fk_ns"."oid"
INNER JOIN "pg_attribute" AS "fk_column" ON "c"."conrelid" = "fk_column"."attrelid"
INNER JOIN "pg_class" AS "pk_table" ON "c"."confrelid" = "pk_table"."oid"
INNER JOIN "pg_namespace" AS "pk_ns" ON "pk_table"."relnamespace" = "pk_ns"."oid"
INNER JOIN "pg_attribute" AS "pk_column" ON "c"."confrelid" = "pk_column"."attrelid"
WHERE fk_ns.nspname !~ '^information_schema|catalog_history|pg_' AND ("c"."contype" = 'f'::char)
  AND ("fk_column"."attnum" = ANY(c.conkey)) AND ("pk_column"."attnum" = ANY(c.confkey))
ORDER BY "fk-table-schema" ASC, "fk-table-name" ASC"""

METABASE_INDEXES = """
SELECT "tmp"."table-schema", "tmp"."table-name",
  TRIM(BOTH '"' FROM pg_catalog.pg_get_indexdef(tmp.ci_oid, tmp.pos, false)) AS "field-name"
FROM (SELECT "n"."nspname" AS "table-schema", "ct"."relname" AS "table-name", "ci"."oid" AS "ci_oid",
    (information_schema._pg_expandarray(i.indkey)).n AS "pos"
  FROM "pg_catalog"."pg_class" AS "ct"
  INNER JOIN "pg_catalog"."pg_namespace" AS "n" ON "ct"."relnamespace" = "n"."oid"
  INNER JOIN "pg_catalog"."pg_index" AS "i" ON "ct"."oid" = "i"."indrelid"
  INNER JOIN "pg_catalog"."pg_class" AS "ci" ON "ci"."oid" = "i"."indexrelid"
  WHERE (pg_catalog.pg_get_expr(i.indpred, i.indrelid) IS NULL)
    AND n.nspname !~ '^information_schema|catalog_history|pg_') AS "tmp"
WHERE "tmp"."pos" = 1"""

SEARCH_PATH = """SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
  FROM generate_series(array_lower(string_to_array(current_setting('search_path'),','),1),
    array_upper(string_to_array(current_setting('search_path'),','),1)) as i,
    string_to_array(current_setting('search_path'),',') s"""

GRAFANA_TABLES = f"""
SELECT quote_ident(table_name) as "table" FROM information_schema.tables
WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog', '_timescaledb_cache',
  '_timescaledb_catalog', '_timescaledb_internal', '_timescaledb_config', 'timescaledb_information',
  'timescaledb_experimental')
AND table_type = 'BASE TABLE' AND quote_ident(table_schema) IN ({SEARCH_PATH})"""

GRAFANA_COLUMNS = f"""
SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns
WHERE CASE WHEN array_length(parse_ident('reviews'),1) = 2
  THEN quote_ident(table_schema) = (parse_ident('reviews'))[1]
    AND quote_ident(table_name) = (parse_ident('reviews'))[2]
  ELSE quote_ident(table_name) = 'reviews' AND quote_ident(table_schema) IN ({SEARCH_PATH}) END"""

NPGSQL_TYPES = """SELECT version();

SELECT ns.nspname, a.typname, a.oid, a.typrelid, a.typbasetype,
CASE WHEN pg_proc.proname='array_recv' THEN 'a' ELSE a.typtype END AS type,
CASE
  WHEN pg_proc.proname='array_recv' THEN a.typelem
  WHEN a.typtype='r' THEN rngsubtype
  ELSE 0
END AS elemoid,
CASE
  WHEN pg_proc.proname IN ('array_recv','oidvectorrecv') THEN 3    /* Arrays last */
  WHEN a.typtype='r' THEN 2                                        /* Ranges before */
  WHEN a.typtype='d' THEN 1                                        /* Domains before */
  ELSE 0                                                           /* Base types first */
END AS ord
FROM pg_type AS a
JOIN pg_namespace AS ns ON (ns.oid = a.typnamespace)
JOIN pg_proc ON pg_proc.oid = a.typreceive
LEFT OUTER JOIN pg_class AS cls ON (cls.oid = a.typrelid)
LEFT OUTER JOIN pg_type AS b ON (b.oid = a.typelem)
LEFT OUTER JOIN pg_class AS elemcls ON (elemcls.oid = b.typrelid)
LEFT OUTER JOIN pg_range ON (pg_range.rngtypid = a.oid)
WHERE
  a.typtype IN ('b', 'r', 'e', 'd') OR         /* Base, range, enum, domain */
  (a.typtype = 'c' AND cls.relkind='c') OR /* User-defined free-standing composites (not table composites) */
  (pg_proc.proname='array_recv' AND (
    b.typtype IN ('b', 'r', 'e', 'd') OR       /* Array of base, range, enum, domain */
    (b.typtype = 'p' AND b.typname IN ('record', 'void')) OR /* Arrays of special supported pseudo-types */
    (b.typtype = 'c' AND elemcls.relkind='c')  /* Array of user-defined free-standing composites */
  )) OR
  (a.typtype = 'p' AND a.typname IN ('record', 'void'))  /* Some special supported pseudo-types */
ORDER BY ord;

/*** Load field definitions for (free-standing) composite types ***/
SELECT typ.oid, att.attname, att.atttypid
FROM pg_type AS typ
JOIN pg_namespace AS ns ON (ns.oid = typ.typnamespace)
JOIN pg_class AS cls ON (cls.oid = typ.typrelid)
JOIN pg_attribute AS att ON (att.attrelid = typ.typrelid)
WHERE
  (typ.typtype = 'c' AND cls.relkind='c') AND
  attnum > 0 AND     /* Don't load system attributes */
  NOT attisdropped
ORDER BY typ.oid, att.attnum;

/*** Load enum fields ***/
SELECT pg_type.oid, enumlabel
FROM pg_enum
JOIN pg_type ON pg_type.oid=enumtypid
ORDER BY oid, enumsortorder;"""

POWER_BI_TABLES = """
select TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE
from INFORMATION_SCHEMA.tables
where TABLE_SCHEMA not in ('information_schema', 'pg_catalog')
order by TABLE_SCHEMA, TABLE_NAME"""

POWER_BI_COLUMNS = """
select COLUMN_NAME, ORDINAL_POSITION, IS_NULLABLE,
  case when (data_type like '%unsigned%') then DATA_TYPE || ' unsigned' else DATA_TYPE end as DATA_TYPE
from INFORMATION_SCHEMA.columns
where TABLE_SCHEMA = 'public' and TABLE_NAME = 'reviews'
order by TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"""

POWER_BI_KEYS = """
select pkcol.COLUMN_NAME as PK_COLUMN_NAME, fkcol.TABLE_SCHEMA AS FK_TABLE_SCHEMA,
  fkcol.TABLE_NAME AS FK_TABLE_NAME, fkcol.COLUMN_NAME as FK_COLUMN_NAME, fkcol.ORDINAL_POSITION as ORDINAL,
  fkcon.CONSTRAINT_SCHEMA || '_' || fkcol.TABLE_NAME || '_' || 'reviews' || '_' || fkcon.CONSTRAINT_NAME
    as FK_NAME
from (select distinct constraint_catalog, constraint_schema, unique_constraint_schema, constraint_name,
    unique_constraint_name from INFORMATION_SCHEMA.REFERENTIAL_CONSTRAINTS) fkcon
  inner join INFORMATION_SCHEMA.KEY_COLUMN_USAGE fkcol
    on fkcon.CONSTRAINT_SCHEMA = fkcol.CONSTRAINT_SCHEMA and fkcon.CONSTRAINT_NAME = fkcol.CONSTRAINT_NAME
  inner join INFORMATION_SCHEMA.KEY_COLUMN_USAGE pkcol
    on fkcon.UNIQUE_CONSTRAINT_SCHEMA = pkcol.CONSTRAINT_SCHEMA
    and fkcon.UNIQUE_CONSTRAINT_NAME = pkcol.CONSTRAINT_NAME
where pkcol.TABLE_SCHEMA = 'public' and pkcol.TABLE_NAME = 'reviews'
  and pkcol.ORDINAL_POSITION = fkcol.ORDINAL_POSITION
order by FK_NAME, fkcol.ORDINAL_POSITION"""

POWER_BI_INDEXES = """
select i.CONSTRAINT_SCHEMA || '_' || i.CONSTRAINT_NAME as INDEX_NAME, ii.COLUMN_NAME, ii.ORDINAL_POSITION,
  case when i.CONSTRAINT_TYPE = 'PRIMARY KEY' then 'Y' else 'N' end as PRIMARY_KEY
from INFORMATION_SCHEMA.table_constraints i inner join INFORMATION_SCHEMA.key_column_usage ii
  on i.CONSTRAINT_SCHEMA = ii.CONSTRAINT_SCHEMA and i.CONSTRAINT_NAME = ii.CONSTRAINT_NAME
  and i.TABLE_SCHEMA = ii.TABLE_SCHEMA and i.TABLE_NAME = ii.TABLE_NAME
where i.TABLE_SCHEMA = 'public' and i.TABLE_NAME = 'reviews' and i.CONSTRAINT_TYPE in ('PRIMARY KEY', 'UNIQUE')
order by i.CONSTRAINT_SCHEMA || '_' || i.CONSTRAINT_NAME, ii.TABLE_SCHEMA, ii.TABLE_NAME, ii.ORDINAL_POSITION"""


class Catalogues(Checks):
    def setUp(self):
        self.connection = psycopg.connect(
            host=HOST, port=PORT, user=USER, dbname=DATABASE, password=KEY, autocommit=True
        )
        self.addCleanup(self.connection.close)

    def rows(self, query, parameters=None):
        return self.connection.execute(query, parameters).fetchall()


class Metabase(Catalogues):
    """Over pgjdbc: the extended protocol, transactions that only read."""

    def setUp(self):
        super().setUp()
        for query in [
            "SET extra_float_digits = 3",
            "SET application_name = 'Metabase v1.50 [test]'",
            "SHOW TRANSACTION ISOLATION LEVEL",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            "SET SESSION TIMEZONE TO 'Europe/Berlin'",
            "SHOW TIMEZONE",
        ]:
            self.connection.execute(query)

    def test_tables(self):
        self.assertIn(("public", "reviews", "TABLE", None, None), self.rows(METABASE_TABLES))

    def test_privileges(self):
        rows = {(row[1], row[2]): row[4] for row in self.rows(METABASE_PRIVILEGES)}
        self.assertTrue(rows["public", "reviews"])

    def test_fields(self):
        rows = self.rows(METABASE_FIELDS, ("public", "reviews", "public"))
        kinds = [row[:3] for row in rows]
        self.assertEqual(kinds, [("id", "int8", 0), ("review", "text", 1), ("stars", "int8", 2)])

    def test_there_are_no_keys_and_indexes(self):
        self.assertEqual(self.rows(METABASE_FOREIGN_KEYS), [])
        self.assertEqual(self.rows(METABASE_INDEXES), [])

    def test_a_fingerprint(self):
        query = """SELECT "source"."substring1" AS "a", "source"."stars" AS "stars" FROM (
            SELECT "public"."reviews"."stars" AS "stars",
              SUBSTRING("public"."reviews"."review", 1, 1234) AS "substring1" FROM "public"."reviews") AS "source"
            LIMIT 10000"""
        self.assertEqual(len(self.rows(query)), 5)

    def test_a_chart(self):
        query = """SELECT CAST("public"."reviews"."stars" AS bigint) AS "stars", COUNT(*) AS "count"
            FROM "public"."reviews" GROUP BY CAST("public"."reviews"."stars" AS bigint)
            ORDER BY CAST("public"."reviews"."stars" AS bigint) ASC"""
        self.assertEqual(self.rows(query), [(1, 2), (3, 1), (5, 2)])


class Grafana(Catalogues):
    """Over pgx."""

    def test_it_pings_and_asks_for_versions(self):
        self.connection.execute("-- ping")
        query = "SELECT current_setting('server_version_num')::int/100 as version"
        self.assertEqual(self.rows(query), [(1600,)])
        self.assertEqual(self.rows("SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'"), [])

    def test_tables(self):
        self.assertIn(("reviews",), self.rows(GRAFANA_TABLES))

    def test_columns(self):
        rows = self.rows(GRAFANA_COLUMNS)
        self.assertEqual(rows, [("id", "bigint"), ("review", "text"), ("stars", "bigint")])

    def test_a_panel(self):
        query = """SELECT floor(extract(epoch from t)/60)*60 AS "time", avg(n) AS "value"
            FROM (VALUES (TIMESTAMP '2024-01-01 00:00:30', 1.0), (TIMESTAMP '2024-01-01 00:00:50', 2.0)) AS x(t, n)
            WHERE t BETWEEN '2024-01-01T00:00:00Z' AND '2024-01-02T00:00:00Z' GROUP BY 1 ORDER BY 1"""
        self.assertEqual(
            [(float(time), float(value)) for time, value in self.rows(query)], [(1704067200, 1.5)]
        )


class PowerBi(Catalogues):
    """Over Npgsql 4: types are loaded in one text of four queries."""

    def test_types_are_loaded(self):
        cursor = self.connection.execute(NPGSQL_TYPES)
        self.assertTrue(cursor.fetchone()[0].startswith("PostgreSQL 16"))
        cursor.nextset()
        types = {row[1]: row for row in cursor.fetchall()}
        self.assertEqual((types["int8"][2], types["int8"][5]), (20, "b"))
        self.assertEqual((types["_text"][5], types["_text"][6], types["_text"][7]), ("a", 25, 3))
        self.assertEqual((types["int4range"][5], types["int4range"][6]), ("r", 23))
        for _ in range(2):
            cursor.nextset()
            self.assertEqual(cursor.fetchall(), [])

    def test_tables_and_columns(self):
        self.assertIn(("public", "reviews", "BASE TABLE"), self.rows(POWER_BI_TABLES))
        self.assertEqual(
            self.rows(POWER_BI_COLUMNS),
            [("id", 1, "YES", "bigint"), ("review", 2, "YES", "text"), ("stars", 3, "YES", "bigint")],
        )

    def test_there_are_no_keys_and_indexes(self):
        self.assertEqual(self.rows(POWER_BI_KEYS), [])
        self.assertEqual(self.rows(POWER_BI_INDEXES), [])
        self.assertEqual(self.rows("select character_set_name from INFORMATION_SCHEMA.character_sets"), [])

    def test_rows_of_a_table(self):
        query = """select "$Table"."id" as "id", "$Table"."review" as "review"
            from "public"."reviews" "$Table" limit 1000"""
        self.assertEqual(len(self.rows(query)), 5)
        self.connection.execute("DISCARD ALL")


class Settings(Catalogues):
    def test_settings_and_activity_are_tables(self):
        self.connection.execute("SET application_name = 'mine'")
        query = "SELECT setting FROM pg_settings WHERE name = 'application_name'"
        self.assertEqual(self.rows(query), [("mine",)])
        query = "SELECT datname, usename, application_name FROM pg_stat_activity"
        self.assertEqual(self.rows(query), [(DATABASE, USER, "mine")])

    def test_a_tenants_own_correlated_subquery_is_not_made_null(self):
        query = """SELECT r.id, (SELECT max(o.stars) FROM reviews o WHERE o.stars = r.stars) AS pg_most
            FROM reviews r ORDER BY r.id LIMIT 2"""
        self.assertEqual(self.rows(query), [(1, 5), (2, 1)])
        query = """SELECT c.relname, (SELECT max(o.stars) FROM reviews o WHERE o.stars = c.relnatts) AS most
            FROM pg_class c WHERE c.relname = 'reviews'"""
        self.assertEqual(self.rows(query), [("reviews", 3)])

    def test_correlated_subqueries_of_the_catalogue_are_answered(self):
        query = """SELECT a.attname, (SELECT t.typname FROM pg_type t WHERE t.oid = a.atttypid) AS type
            FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
            WHERE c.relname = 'reviews' ORDER BY a.attnum"""
        self.assertEqual(self.rows(query), [("id", "int8"), ("review", "text"), ("stars", "int8")])
