//! What drivers and BI tools send that psql does not.

use tokio_postgres::types::Type;

use crate::harness::{Harness, first_column, value};

#[tokio::test(flavor = "multi_thread")]
async fn casts_and_limits_type_their_parameters() {
    let server = Harness::open().await;
    let (client, _messages) = server.client().await;
    for (text, types) in [
        ("SELECT id FROM films LIMIT $1", vec![Type::INT8]),
        ("SELECT id FROM films LIMIT $1 OFFSET $2", vec![Type::INT8, Type::INT8]),
        ("SELECT $1::int AS a, $2::date AS b, $3::text AS c", vec![Type::INT4, Type::DATE, Type::TEXT]),
        ("SELECT $1::float8 AS a, $2::bool AS b", vec![Type::FLOAT8, Type::BOOL]),
    ] {
        let statement = client.prepare(text).await.unwrap();
        assert_eq!(statement.params(), types, "{text}");
    }
    let rows = client.query("SELECT id FROM films ORDER BY id LIMIT $1", &[&2_i64]).await.unwrap();
    assert_eq!(rows.len(), 2);
    let row = client.query_one("SELECT $1::int + 1 AS next", &[&41_i32]).await.unwrap();
    assert_eq!(row.len(), 1);
    // The client's own word on a type stands.
    let statement = client.prepare_typed("SELECT $1::date AS day", &[Type::TEXT]).await.unwrap();
    assert_eq!(statement.params(), [Type::TEXT]);
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_may_be_deferrable() {
    let server = Harness::open().await;
    let (client, _messages) = server.client().await;
    for begin in [
        "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE",
        "BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY, NOT DEFERRABLE",
        "BEGIN NOT DEFERRABLE, ISOLATION LEVEL SERIALIZABLE, READ ONLY",
        "START TRANSACTION DEFERRABLE ISOLATION LEVEL SERIALIZABLE READ ONLY",
    ] {
        client.batch_execute(begin).await.unwrap_or_else(|error| panic!("{begin}: {error:?}"));
        assert_eq!(value(&client, "SHOW transaction_isolation").await, "serializable", "{begin}");
        assert_eq!(value(&client, "SHOW transaction_read_only").await, "on", "{begin}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    for text in [
        "BEGIN DEFERRABLE",
        "COMMIT",
        "START TRANSACTION NOT DEFERRABLE",
        "COMMIT",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE DEFERRABLE",
        "SET SESSION CHARACTERISTICS AS TRANSACTION DEFERRABLE",
        "SET application_name = 'not deferrable transaction'",
    ] {
        client.batch_execute(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }
    assert_eq!(value(&client, "SHOW application_name").await, "not deferrable transaction");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_types_become_numbers() {
    let server = Harness::open().await;
    let (client, _messages) = server.client().await;
    for (name, number) in [("int8", "20"), ("bigint", "20"), ("_text", "1009"), ("pg_catalog.bool", "16")] {
        assert_eq!(value(&client, &format!("SELECT to_regtype('{name}')")).await, number, "{name}");
    }
    assert_eq!(first_column(&client, "SELECT to_regtype('hstore')").await, [None]);
    let text = "SELECT typname FROM pg_type t WHERE t.oid = to_regtype($1) ORDER BY t.oid";
    let rows = client.query(text, &[&"int8"]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<_, &str>(0)).collect::<Vec<_>>(), ["int8"]);
}

/// What SQLAlchemy's inspector asks of a table.
const SQLALCHEMY_COLUMNS: &str = r#"
    SELECT pg_catalog.pg_attribute.attname AS name,
      pg_catalog.format_type(pg_catalog.pg_attribute.atttypid, pg_catalog.pg_attribute.atttypmod)
        AS format_type,
      CASE WHEN pg_catalog.pg_attribute.atthasdef THEN
        (SELECT pg_catalog.pg_get_expr(pg_catalog.pg_attrdef.adbin, pg_catalog.pg_attrdef.adrelid)
         AS pg_get_expr_1
         FROM pg_catalog.pg_attrdef
         WHERE pg_catalog.pg_attrdef.adrelid = pg_catalog.pg_attribute.attrelid) END AS "default",
      (SELECT json_build_object('always', pg_catalog.pg_attribute.attidentity = 'a') AS json_build_object_1
       FROM pg_catalog.pg_sequence WHERE pg_catalog.pg_attribute.attidentity != '') AS identity_options,
      CASE WHEN (pg_catalog.pg_attribute.attcollation != 0 AND
        (SELECT pg_catalog.pg_type.typcollation FROM pg_catalog.pg_type
         WHERE pg_catalog.pg_type.oid = pg_catalog.pg_attribute.atttypid)
        != pg_catalog.pg_attribute.attcollation)
      THEN (SELECT pg_catalog.pg_collation.collname FROM pg_catalog.pg_collation
            WHERE pg_catalog.pg_collation.oid = pg_catalog.pg_attribute.attcollation)
      ELSE NULL END AS collation
    FROM pg_catalog.pg_class
      LEFT OUTER JOIN pg_catalog.pg_attribute ON pg_catalog.pg_class.oid = pg_catalog.pg_attribute.attrelid
        AND pg_catalog.pg_attribute.attnum > 0 AND NOT pg_catalog.pg_attribute.attisdropped
    WHERE pg_catalog.pg_class.relkind = ANY (ARRAY['r', 'p', 'f', 'v', 'm'])
      AND pg_catalog.pg_class.relname IN ('films') ORDER BY pg_catalog.pg_attribute.attnum"#;

#[tokio::test(flavor = "multi_thread")]
async fn catalogue_queries_of_sqlalchemy_and_npgsql_are_answered() {
    let server = Harness::open().await;
    let (client, _messages) = server.client().await;
    let columns = first_column(&client, SQLALCHEMY_COLUMNS).await;
    assert_eq!(columns, ["id", "name", "score"].map(|name| Some(name.to_owned())));
    let schemas = first_column(
        &client,
        "SELECT pg_catalog.pg_namespace.nspname FROM pg_catalog.pg_namespace
         WHERE (pg_catalog.pg_namespace.nspname NOT LIKE 'pg/_' || '%' ESCAPE '/')",
    )
    .await;
    assert!(schemas.contains(&Some("public".to_owned())), "{schemas:?}");
    assert!(!schemas.contains(&Some("pg_catalog".to_owned())), "{schemas:?}");
    let text = "SELECT n.nspname FROM pg_catalog.pg_namespace n
        WHERE (n.nspname NOT LIKE $1::varchar || '%' ESCAPE '/')";
    let rows = client.query(text, &[&"pg/_"]).await.unwrap();
    let schemas: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert!(schemas.contains(&"public") && !schemas.contains(&"pg_catalog"), "{schemas:?}");
    let types = first_column(
        &client,
        "SELECT t.typname, CASE WHEN t.typtype = 'm' THEN
           (SELECT rngtypid FROM pg_range WHERE rngmultitypid = t.oid) END AS elemoid
         FROM pg_type AS t WHERE t.typname = 'int8'",
    )
    .await;
    assert_eq!(types, [Some("int8".to_owned())]);
    // pgjdbc: types that are no rows of tables, and keys of indexes.
    let types = first_column(
        &client,
        "SELECT t.typname FROM pg_catalog.pg_type t WHERE t.typname = 'int8' AND (t.typrelid = 0
           OR (SELECT c.relkind = 'c' FROM pg_catalog.pg_class c WHERE c.oid = t.typrelid))",
    )
    .await;
    assert_eq!(types, [Some("int8".to_owned())]);
    let keys = first_column(
        &client,
        "SELECT result.column_name, result.key_seq FROM (SELECT a.attname AS column_name,
           (information_schema._pg_expandarray(i.indkey)).n AS key_seq,
           information_schema._pg_expandarray(i.indkey) AS keys, a.attnum AS a_attnum
           FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_index i ON (a.attrelid = i.indrelid)) result
         WHERE result.a_attnum = (result.keys).x",
    )
    .await;
    assert_eq!(keys, Vec::<Option<String>>::new());
}
