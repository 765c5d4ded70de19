//! Sessions of the Postgres protocol: who gets in with which key, what it reads, when it ends.

use base::Millis;
use serving::config::Secret;
use store::{DEFAULT_TENANT, KeyLookup, Store, UnixMillis};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::{Server, key_of, model, serve_on, serve_parties, serve_with};
use crate::postgres_client::{config, connect, connect_as_default, options, told, user};

/// What a server asks of a user: 3 is the key in clear text, 10 a proof by SASL.
async fn asked_of(server: &Server, user: &str) -> i32 {
    let body = format!("\0\u{3}\0\0user\0{user}\0\0");
    let length = u32::try_from(body.len() + 4).unwrap();
    let mut socket = tokio::net::TcpStream::connect(server.running.sql_address.unwrap()).await.unwrap();
    socket.write_all(&[&length.to_be_bytes(), body.as_bytes()].concat()).await.unwrap();
    assert_eq!(socket.read_u8().await.unwrap(), b'R');
    socket.read_i32().await.unwrap();
    socket.read_i32().await.unwrap()
}

#[actix_web::test]
async fn a_key_is_a_user_that_proves_itself_by_scram() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve_with(config(folder.path()), model()).await;
    let key = server.client.key.clone().unwrap();
    assert_eq!(user(&server.running.app.runtime.store, &key).await, "default-1");
    assert_eq!(asked_of(&server, "default-1").await, 10);
    assert_eq!(asked_of(&server, "nobody-1").await, 10, "a stranger is asked alike");
    assert_eq!(asked_of(&server, "default").await, 3, "a tenant has several keys");

    let client = connect_as_default(&server).await;
    assert_eq!(client.rows("SELECT ai_if('fine yes'), ai_if('poor no')").await, ["t|f"]);
    let by_tenant = connect(&options(&server, "default", &key)).await.unwrap();
    assert_eq!(by_tenant.rows("SELECT 1").await, ["1"]);
    let Ok(KeyLookup::Valid { key: used, .. }) =
        server.running.app.runtime.store.key_by_id(1, UnixMillis(1)).await
    else {
        panic!("it works")
    };
    assert!(used.last_used.is_some(), "a login is a use");
}

#[actix_web::test]
async fn wrong_keys_and_those_of_other_tenants_do_not_open_a_session() {
    let folder = tempfile::tempdir().unwrap();
    let parties = serve_parties(config(folder.path())).await;
    let (ours, theirs) = (parties.server.client.key.clone().unwrap(), parties.theirs.key.clone().unwrap());
    let store = &parties.server.running.app.runtime.store;
    let (our_user, their_user) = (user(store, &ours).await, user(store, &theirs).await);
    for (user, key) in [
        (our_user.as_str(), "rs-wrong"),
        (our_user.as_str(), theirs.as_str()),
        (their_user.as_str(), ours.as_str()),
        ("other", ours.as_str()),
        ("default", theirs.as_str()),
        ("default-99", ours.as_str()),
        ("nobody", ours.as_str()),
    ] {
        let error = connect(&options(&parties.server, user, key)).await.err().expect("refused");
        let (code, message) = told(&error);
        assert_eq!(code, "28P01", "{user}");
        assert_eq!(message, format!("password authentication failed for user \"{user}\""));
    }
    assert!(connect(&options(&parties.server, &their_user, &theirs)).await.is_ok());
}

#[actix_web::test]
async fn each_tenant_reads_its_own_tables_and_its_usage_has_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.auth.remember_ms = Millis(0);
    let parties = serve_parties(config).await;
    let store = &parties.server.running.app.runtime.store;
    let theirs = store.tenants().await.unwrap()[1].id;
    for (tenant, text) in [(DEFAULT_TENANT, "ours yes"), (theirs, "theirs yes")] {
        // The start has made the folders.
        let path = folder.path().join(format!("tables/{tenant}/notes.csv"));
        std::fs::write(path, format!("text\n{text}\n")).unwrap();
    }
    let client = connect_as_default(&parties.server).await;
    assert_eq!(client.rows("SELECT text, ai_if(text) FROM notes").await, ["ours yes|t"]);
    let key = parties.theirs.key.clone().unwrap();
    let client = connect(&options(&parties.server, &user(store, &key).await, &key)).await.unwrap();
    assert_eq!(client.rows("SELECT text FROM notes").await, ["theirs yes"]);

    let mut looks = tokio::time::interval(std::time::Duration::from_millis(2));
    let used = loop {
        looks.tick().await;
        let usage = store.usage(None, 0..=1_000_000).await.unwrap();
        if !usage.is_empty() {
            break usage;
        }
    };
    let rows: Vec<_> =
        used.iter().map(|row| (row.key.tenant, row.key.route.as_str(), row.used.rows)).collect();
    assert_eq!(rows, [(DEFAULT_TENANT, "sql", 1)]);
}

#[actix_web::test]
async fn a_revoked_key_opens_no_session_and_ends_those_that_are_open() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.auth.remember_ms = Millis(1);
    let server = serve_with(config, model()).await;
    let store = &server.running.app.runtime.store;
    let idle = connect_as_default(&server).await;
    let key = server.client.key.clone().unwrap();
    let busy = connect(&options(&server, "default", &key)).await.unwrap();
    let other = key_of(store, DEFAULT_TENANT).await;
    let stays = connect(&options(&server, "default", &other)).await.unwrap();
    server.gate.shut();
    let statement =
        busy.client.simple_query("SELECT ai_complete(prompt('say {0}', value)) FROM generate_series(1, 9)");
    let revoke = async {
        server.until("a step waits", |server| server.gate.passed() == 1).await;
        assert!(store.revoke_key(1, UnixMillis(2)).await.unwrap());
    };
    let (ended, ()) = tokio::join!(statement, revoke);
    let why = "terminating connection: the API key was revoked or has expired";
    assert_eq!(told(&ended.unwrap_err()), ("57P01".to_owned(), why.to_owned()));
    server.until("the idle one ends", |_| idle.client.is_closed()).await;
    let error = connect(&options(&server, "default-1", &key)).await.err().expect("refused");
    assert_eq!(told(&error).0, "28P01");
    let error = connect(&options(&server, "default", &key)).await.err().expect("refused");
    assert_eq!(told(&error).0, "28P01");
    server.gate.release();
    server.until_free().await;
    assert_eq!(stays.rows("SELECT 1").await, ["1"], "another key of the tenant");
}

#[actix_web::test]
async fn a_key_without_a_verifier_is_sent_in_clear_text_from_this_machine() {
    use sqlx::Connection as _;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("test.db").display());
    let server = serve_on(config(folder.path()), model(), Store::open(&url).await.unwrap()).await;
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    sqlx::query("UPDATE api_keys SET verifier = NULL").execute(&mut connection).await.unwrap();
    assert_eq!(asked_of(&server, "default-1").await, 3);
    let client = connect_as_default(&server).await;
    assert_eq!(client.rows("SELECT 1").await, ["1"]);
    let error = connect(&options(&server, "default-1", "rs-wrong")).await.err().expect("refused");
    assert_eq!(told(&error).0, "28P01");
}

#[actix_web::test]
async fn a_dead_database_leaves_the_other_tables_to_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    let alive = folder.path().join("shop.db");
    std::fs::write(&alive, "").unwrap();
    // Nobody listens on port 1.
    config.sql.sources.insert("dead".into(), Secret("postgres://reader:secret@127.0.0.1:1/shop".into()));
    config.sql.sources.insert("alive".into(), Secret(format!("sqlite://{}", alive.display())));
    let server = serve_with(config, model()).await;
    std::fs::write(folder.path().join("tables/1/notes.csv"), "text\nfine yes\n").unwrap();
    let client = connect_as_default(&server).await;
    assert_eq!(client.rows("SELECT text FROM notes WHERE ai_if(text)").await, ["fine yes"]);
    let (_, message) = client.error("SELECT * FROM dead.orders").await;
    assert!(message.contains("dead.orders") && !message.contains("secret"), "{message}");
    let schemas = client.rows("SELECT nspname FROM pg_namespace WHERE nspname IN ('alive', 'dead')").await;
    assert_eq!(schemas, ["alive"]);
}

#[actix_web::test]
async fn a_port_that_is_taken_is_named_with_what_sets_it() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = config(folder.path());
    config.sql.listen = Some(taken.local_addr().unwrap());
    let store = Store::open("sqlite::memory:").await.unwrap();
    let error = crate::common::start_on(config, model(), store).await.err().expect("refused").to_string();
    let address = taken.local_addr().unwrap();
    assert!(error.starts_with(&format!("cannot listen on {address} for SQL")), "{error}");
    assert!(error.ends_with("`--sql ADDRESS` or sql.listen names another"), "{error}");
}

#[actix_web::test]
async fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tables");
    std::fs::write(&file, "").unwrap();
    let mut config = config(folder.path());
    config.sql.folder = Some(file.clone());
    let store = Store::open("sqlite::memory:").await.unwrap();
    let error = crate::common::start_on(config, model(), store).await.err().expect("refused").to_string();
    assert!(error.contains("sql.folder") && error.contains(&file.display().to_string()), "{error}");
}
