//! psql, where it is installed.

use tokio::process::Command;

use crate::harness::Harness;

/// What psql writes; `None` where there is no psql.
pub(crate) async fn psql(server: &Harness, args: &[&str], environment: &[(&str, &str)]) -> Option<String> {
    let mut command = Command::new("psql");
    command
        .args(["-X", "-h", "127.0.0.1", "-U", "acme", "-d", "acme", "-v", "ON_ERROR_STOP=1"])
        .args(["-p", &server.address.port().to_string()])
        .args(args)
        .env("PGCONNECT_TIMEOUT", "30")
        .envs(environment.iter().copied());
    let output = match command.output().await {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("psql is not installed: nothing is tested");
            return None;
        }
        Err(error) => panic!("psql: {error}"),
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    assert!(!errors.contains("ERROR"), "{args:?}: {errors}");
    Some(String::from_utf8(output.stdout).expect("psql writes UTF-8"))
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_describes_tables_schemas_and_functions() {
    let server = Harness::open().await;
    for (command, expected) in [
        ("\\dt", "public | films | table"),
        ("\\dv", "good_films | view"),
        ("\\d", "films      | table"),
        ("\\d films", "Table \"public.films\""),
        ("\\d good_films", "View \"public.good_films\""),
        ("\\dn", "public"),
        ("\\df", "List of functions"),
        ("SELECT name FROM films WHERE id = 1", "up"),
        ("\\copy (SELECT id FROM films) TO STDOUT", "3"),
    ] {
        let Some(output) = psql(&server, &["-c", command], &[]).await else { return };
        assert!(output.contains(expected), "{command}:\n{output}");
    }
    let described = psql(&server, &["-Atc", "\\d films"], &[]).await.expect("psql is there");
    assert!(described.starts_with("id|bigint|"), "{described}");
}
