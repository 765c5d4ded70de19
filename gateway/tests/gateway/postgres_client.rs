//! Clients of the Postgres protocol.

use std::path::Path;
use std::sync::{Arc, Mutex};

use gateway::config::Config;
use gateway::services::sql::accounts::user_of;
use store::{KeyLookup, Store, UnixMillis};
use tokio_postgres::{AsyncMessage, Client, NoTls, SimpleQueryMessage};

use crate::common::Server;

/// The defaults with the Postgres protocol on a free port, and all files in a folder.
pub fn config(folder: &Path) -> Config {
    let mut config = crate::common::config();
    config.sql.listen = Some(([127, 0, 0, 1], 0).into());
    config.store.data_dir = folder.to_owned();
    config
}

/// A connection, and the notices that came over it.
pub struct PostgresClient {
    pub client: Client,
    notices: Arc<Mutex<Vec<String>>>,
}

/// How a user connects with a key.
pub fn options(server: &Server, user: &str, key: &str) -> tokio_postgres::Config {
    let mut options = tokio_postgres::Config::new();
    let port = server.running.sql_address.expect("it listens for SQL").port();
    options.host("127.0.0.1").port(port).user(user).password(key).dbname("relserve");
    options
}

/// The user that a key is.
pub async fn user(store: &Store, key: &str) -> String {
    match store.find_key(key, UnixMillis(1)).await.unwrap() {
        KeyLookup::Valid { key, tenant_name, .. } => user_of(&tenant_name, key.id),
        other => panic!("no key that works: {other:?}"),
    }
}

/// Connects.
pub async fn connect(options: &tokio_postgres::Config) -> Result<PostgresClient, tokio_postgres::Error> {
    let (client, mut connection) = options.connect(NoTls).await?;
    let notices: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&notices);
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notice(notice) = message {
                told.lock().unwrap().push(notice.message().to_owned());
            }
        }
    });
    Ok(PostgresClient { client, notices })
}

/// Connects with the key that a server's client has.
pub async fn connect_as_default(server: &Server) -> PostgresClient {
    let key = server.client.key.as_deref().unwrap();
    let user = user(&server.running.app.runtime.store, key).await;
    connect(&options(server, &user, key)).await.expect("it is let in")
}

/// The SQLSTATE and the message of an error that the server told.
pub fn told(error: &tokio_postgres::Error) -> (String, String) {
    let error = error.as_db_error().unwrap_or_else(|| panic!("not of the server: {error:?}"));
    (error.code().code().to_owned(), error.message().to_owned())
}

impl PostgresClient {
    /// The rows of a text, values as text and NULL as `-`, with `|` between them.
    pub async fn rows(&self, text: &str) -> Vec<String> {
        let messages =
            self.client.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let row = |message: SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => {
                let values: Vec<&str> = (0..row.len()).map(|place| row.get(place).unwrap_or("-")).collect();
                Some(values.join("|"))
            }
            _ => None,
        };
        messages.into_iter().filter_map(row).collect()
    }

    /// The SQLSTATE and the message of the error that a text gives.
    pub async fn error(&self, text: &str) -> (String, String) {
        match self.client.simple_query(text).await {
            Ok(rows) => panic!("{text}: no error, but {rows:?}"),
            Err(error) => told(&error),
        }
    }

    /// The notices so far; they are forgotten.
    pub fn notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().unwrap())
    }
}
