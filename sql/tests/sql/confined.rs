//! Nothing but the tenant's own is read, and nothing is written elsewhere.

use insta::assert_snapshot;

use crate::common::shown;
use crate::tenant::Tenant;

const SECRET: &str = "secret\nhunter2\n";

/// What an external table of a location says.
async fn external(tenant: &Tenant, location: &str) -> String {
    let session = tenant.plain().await;
    let made = format!("CREATE EXTERNAL TABLE peek STORED AS CSV LOCATION '{location}'");
    let said = shown(&session, &made).await;
    if said.starts_with("error: ") {
        return said;
    }
    let said = shown(&session, "SELECT * FROM peek").await;
    shown(&session, "DROP TABLE peek").await;
    said
}

#[tokio::test]
async fn an_external_table_reads_files_of_the_folder_in_whatever_form_they_are_named() {
    let tenant =
        Tenant::new(&[("sub/a b%.data", "n;t\n1;x\n"), ("parts/1.csv", "n\n1\n"), ("parts/2.csv", "n\n2\n")]);
    let session = tenant.plain().await;
    let made =
        "CREATE EXTERNAL TABLE own STORED AS CSV LOCATION 'sub/a b%.data' OPTIONS ('format.delimiter' ';')";
    shown(&session, made).await;
    assert_snapshot!(shown(&session, "SELECT n, t FROM own").await, @r"
    +---+---+
    | n | t |
    +---+---+
    | 1 | x |
    +---+---+
    ");
    let full = tenant.folder().join("parts");
    for location in ["parts/", "./parts", &full.display().to_string(), &format!("file://{}", full.display())]
    {
        let said = external(&tenant, location).await;
        assert!(said.contains("| 1 |") && said.contains("| 2 |"), "{location}: {said}");
    }
}

#[tokio::test]
async fn an_external_table_of_anything_else_is_refused() {
    let (tenant, other) = (Tenant::new(&[]), Tenant::new(&[("secret.csv", SECRET)]));
    let secret = other.folder().join("secret.csv");
    let name = other.folder().file_name().unwrap().to_string_lossy().into_owned();
    std::os::unix::fs::symlink(&secret, tenant.folder().join("link.csv")).unwrap();
    std::os::unix::fs::symlink(other.folder(), tenant.folder().join("folder")).unwrap();
    std::fs::create_dir(tenant.folder().join("mixed")).unwrap();
    std::os::unix::fs::symlink(&secret, tenant.folder().join("mixed/link.csv")).unwrap();
    for location in [
        secret.display().to_string(),
        format!("file://{}", secret.display()),
        format!("../{name}/secret.csv"),
        format!("mixed/../../{name}/secret.csv"),
        format!("mixed/%2e%2e/%2e%2e/{name}/secret.csv"),
        "link.csv".into(),
        "folder/secret.csv".into(),
        "folder/".into(),
        "mixed/".into(),
        "/etc/passwd".into(),
        "file:///etc/passwd".into(),
        "FILE://localhost/etc/passwd".into(),
        "files/secret".into(),
        "https://example.org/a.csv".into(),
        "s3://bucket/a.csv".into(),
        String::new(),
    ] {
        let said = external(&tenant, &location).await;
        assert!(said.starts_with("error: ") && !said.contains("hunter2"), "{location}: {said}");
    }
    assert_snapshot!(
        external(&tenant, "s3://bucket/a.csv").await,
        @"error: Error during planning: LOCATION 's3://bucket/a.csv': only files in your folder can be read, not s3://"
    );
    assert_snapshot!(
        external(&tenant, "../a.csv").await,
        @"error: Error during planning: LOCATION '../a.csv': must be a path in your folder, such as 'reviews.csv', without `..`"
    );
    assert_snapshot!(
        external(&tenant, "link.csv").await,
        @"error: Error during planning: LOCATION 'link.csv': it leads out of your folder"
    );
}

#[tokio::test]
async fn links_that_lead_out_of_the_folder_are_no_tables() {
    let (tenant, other) = (Tenant::new(&[]), Tenant::new(&[("secret.csv", SECRET)]));
    std::os::unix::fs::symlink(other.folder().join("secret.csv"), tenant.folder().join("link.csv")).unwrap();
    std::os::unix::fs::symlink(other.folder(), tenant.folder().join("inner")).unwrap();
    let session = tenant.plain().await;
    assert_snapshot!(
        shown(&session, "SELECT * FROM link").await,
        @"error: Execution error: table `link`: `link.csv`: it leads out of the tenant's folder"
    );
    assert_snapshot!(
        shown(&session, "SELECT * FROM inner").await,
        @"error: Error during planning: table 'datafusion.public.inner' not found"
    );
    // Put in the place of a file that was read already.
    std::fs::write(tenant.folder().join("later.csv"), SECRET.replace("hunter2", "harmless")).unwrap();
    assert!(shown(&session, "SELECT * FROM later").await.contains("harmless"));
    std::fs::remove_file(tenant.folder().join("later.csv")).unwrap();
    std::os::unix::fs::symlink(other.folder().join("secret.csv"), tenant.folder().join("later.csv")).unwrap();
    assert!(shown(&session, "SELECT * FROM later").await.starts_with("error: "));
}

#[tokio::test]
async fn files_are_not_read_by_functions_or_by_their_names() {
    let tenant = Tenant::new(&[]);
    let session = tenant.plain().await;
    for text in [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM \"/etc/passwd\"",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_parquet('/etc/passwd')",
        "SELECT * FROM parquet_scan('/etc/passwd')",
        "SELECT pg_read_file('/etc/passwd')",
        "COPY (SELECT 1) TO 'out.csv'",
        "COPY (SELECT 1) TO '/etc/out.csv' STORED AS CSV",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 'out.csv'",
        "PREPARE p AS COPY (SELECT 1) TO 'out.csv'",
    ] {
        let said = shown(&session, text).await;
        assert!(said.starts_with("error: "), "{text}: {said}");
    }
    assert!(tenant.names().is_empty());
}

#[tokio::test]
async fn statements_that_write_or_change_the_server_are_refused() {
    let tenant = Tenant::new(&[("own.csv", "n\n1\n")]);
    let session = tenant.plain().await;
    assert_snapshot!(
        shown(&session, "COPY (SELECT 1) TO 'out.csv'").await,
        @"error: Error during planning: COPY to a file is not allowed; use COPY (..) TO STDOUT"
    );
    assert_snapshot!(
        shown(&session, "INSERT INTO own VALUES (2)").await,
        @"error: Error during planning: Insert Into `own`: it was not made by CREATE TABLE; your files are only read"
    );
    assert_snapshot!(
        shown(&session, "SET datafusion.runtime.memory_limit = '100G'").await,
        @"error: Error during planning: SET datafusion.runtime.memory_limit is not allowed: the server has set it"
    );
    for text in [
        "EXPLAIN ANALYZE INSERT INTO own VALUES (2)",
        "UPDATE own SET n = 2",
        "DELETE FROM own",
        "TRUNCATE TABLE own",
        "SET datafusion.runtime.temp_directory = '/etc'",
        "RESET datafusion.runtime.memory_limit",
        "SET datafusion.execution.batch_size = 1000000000",
        "CREATE SCHEMA s",
        "CREATE DATABASE d",
        "DROP SCHEMA files",
    ] {
        let said = shown(&session, text).await;
        assert!(said.starts_with("error: "), "{text}: {said}");
    }
    assert!(!shown(&session, "SET datafusion.execution.time_zone = '+02:00'").await.starts_with("error"));
    assert_eq!(std::fs::read_to_string(tenant.folder().join("own.csv")).unwrap(), "n\n1\n");
}

#[tokio::test]
async fn a_tenant_sees_neither_the_tables_nor_the_cached_files_of_another() {
    let (one, two) =
        (Tenant::new(&[("t.csv", "n\n11\n")]), Tenant::new(&[("t.csv", "n\n22\n"), ("only.csv", "n\n3\n")]));
    // Alike in all that a cache may look at.
    let now = std::time::SystemTime::now();
    for tenant in [&one, &two] {
        std::fs::File::options()
            .write(true)
            .open(tenant.folder().join("t.csv"))
            .unwrap()
            .set_modified(now)
            .unwrap();
    }
    for tenant in [&one, &two] {
        shown(&tenant.plain().await, "CREATE TABLE p AS SELECT n, n AS m FROM t").await;
        let file = std::fs::File::options().write(true).open(tenant.folder().join("p.parquet")).unwrap();
        file.set_modified(now).unwrap();
    }
    let (first, second) = (one.plain().await, two.plain().await);
    for table in ["t", "p"] {
        let text = format!("SELECT n FROM {table} WHERE n > 0");
        assert!(shown(&first, &text).await.contains("11"));
        assert!(shown(&second, &text).await.contains("22"));
    }
    let names = "SELECT table_name FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1";
    assert_snapshot!(shown(&first, names).await, @r"
    +------------+
    | table_name |
    +------------+
    | p          |
    | p          |
    | t          |
    +------------+
    ");
    assert_snapshot!(
        shown(&first, "SELECT * FROM only").await,
        @"error: Error during planning: table 'datafusion.public.only' not found"
    );
}
