//! A server on a free port, its tables, and a model that is a function.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use futures_util::future::BoxFuture;
use ir::Cell;
use sql::Session;
use sql::runner::{
    AiColumn, Estimate, Outcome, Row, RowAnswer, Run, RunError, RunOptions, Runner, Tokens, Unsent,
};
use sql::server::{AccountError, Accounts, ConnectionLimits, Login, Tls, serve};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio_postgres::{AsyncMessage, Client, NoTls};

/// What the tables hold.
const TABLES: [&str; 2] = [
    "CREATE TABLE films AS SELECT * FROM (VALUES (1, 'up', 8.3), (2, 'heat', 8.0), (3, 'taken', NULL))
     AS t(id, name, score)",
    "CREATE VIEW good_films AS SELECT * FROM films WHERE score > 8.1",
];

/// A model that says yes to what contains "up", fails on "heat", and never answers what contains "forever".
#[derive(Debug)]
pub(crate) struct Model {
    /// RelQueries that are open.
    pub(crate) open: watch::Sender<usize>,
}

struct Open {
    model: Arc<Model>,
    answers: UnboundedSender<RowAnswer>,
    template: String,
}

#[derive(Debug)]
struct ModelRunner(Arc<Model>);

impl Runner for ModelRunner {
    fn open(&self, column: &AiColumn, _: RunOptions, answers: UnboundedSender<RowAnswer>) -> Box<dyn Run> {
        self.0.open.send_modify(|open| *open += 1);
        let template = format!("{:?}", column.shared.template);
        Box::new(Open { model: Arc::clone(&self.0), answers, template })
    }

    fn model(&self, name: &str) -> Result<String, RunError> {
        match name {
            "other" => Ok(name.to_owned()),
            _ => Err(RunError::new(format!("the model `{name}` does not exist; served: `usual`, `other`"))),
        }
    }

    fn prompt_chars_max(&self, _: Option<&str>) -> usize {
        8_000
    }

    fn estimate<'a>(
        &'a self,
        _: &'a AiColumn,
        _: Vec<Vec<Cell>>,
    ) -> BoxFuture<'a, Result<Estimate, RunError>> {
        Box::pin(async { Ok(Estimate::default()) })
    }
}

impl Run for Open {
    fn send(&mut self, rows: Vec<Row>) -> BoxFuture<'_, Result<(), Unsent>> {
        Box::pin(async move {
            for Row { id, cells } in rows {
                let cells = format!("{cells:?}");
                if cells.contains("forever") || self.template.contains("forever") {
                    continue;
                }
                let outcome = if cells.contains("heat") {
                    Outcome::Failed("too hot".to_owned())
                } else {
                    Outcome::text(if cells.contains("up") { "yes" } else { "no" })
                };
                let _ = self.answers.send(RowAnswer {
                    id,
                    outcome,
                    tokens: Tokens::default(),
                    is_computed: true,
                });
            }
            Ok(())
        })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.model.open.send_modify(|open| *open -= 1);
    }
}

#[derive(Debug)]
struct TestAccounts {
    logins: HashMap<String, Login>,
    key: &'static str,
    model: Arc<Model>,
    revoked: watch::Sender<bool>,
}

impl Accounts for TestAccounts {
    fn login<'a>(&'a self, user: &'a str) -> BoxFuture<'a, Result<Option<Login>, AccountError>> {
        Box::pin(async move { Ok(self.logins.get(user).cloned()) })
    }

    fn accepts<'a>(
        &'a self,
        _: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, AccountError>> {
        Box::pin(async move { Ok((key == self.key).then(|| key.to_owned())) })
    }

    fn ended<'a>(&'a self, user: &'a str) -> BoxFuture<'a, AccountError> {
        Box::pin(async move {
            let mut revoked = self.revoked.subscribe();
            if revoked.wait_for(|is_revoked| *is_revoked).await.is_err() {
                std::future::pending::<()>().await;
            }
            AccountError::Unavailable(format!("{user}'s key was revoked"))
        })
    }

    fn session<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Session, AccountError>> {
        Box::pin(async move {
            let session = Session::new(Arc::new(ModelRunner(Arc::clone(&self.model))), Arc::default());
            for table in TABLES {
                let running = session
                    .query(table)
                    .await
                    .map_err(|error| AccountError::Unavailable(error.to_string()))?;
                let rows: Result<Vec<_>, _> = running.stream.try_collect().await;
                rows.map_err(|error| AccountError::Unavailable(error.to_string()))?;
            }
            Ok(session)
        })
    }
}

/// A server that runs until it is dropped.
pub(crate) struct Harness {
    pub(crate) address: SocketAddr,
    pub(crate) model: Arc<Model>,
    pub(crate) shutdown: watch::Sender<bool>,
    /// Makes all keys revoked.
    pub(crate) revoked: watch::Sender<bool>,
    pub(crate) server: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Harness {
    /// A server where everybody is "acme" and nobody needs a key.
    pub(crate) async fn open() -> Self {
        Self::with(HashMap::from([("acme".to_owned(), Login::Open)]), ConnectionLimits::default(), None).await
    }

    pub(crate) async fn with(
        logins: HashMap<String, Login>,
        limits: ConnectionLimits,
        tls: Option<Tls>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let model = Arc::new(Model { open: watch::Sender::new(0) });
        let revoked = watch::Sender::new(false);
        let accounts =
            TestAccounts { logins, key: "sesame", model: Arc::clone(&model), revoked: revoked.clone() };
        let accounts = Arc::new(accounts);
        let (shutdown, stopped) = watch::channel(false);
        let server = tokio::spawn(serve(listener, accounts, limits, tls, stopped));
        Self { address, model, shutdown, revoked, server }
    }

    /// How a client connects.
    pub(crate) fn config(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.address.port()).user("acme").dbname("acme");
        config
    }

    /// A client, and what the server tells it unasked.
    pub(crate) async fn client(&self) -> (Client, UnboundedReceiver<AsyncMessage>) {
        let (client, mut connection) = self.config().connect(NoTls).await.expect("the server lets us in");
        let (sender, messages) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                let _ = sender.send(message);
            }
        });
        (client, messages)
    }

    /// Returns once so many relQueries are open.
    pub(crate) async fn wait_for_open(&self, count: usize) {
        self.model.open.subscribe().wait_for(|open| *open == count).await.expect("the model is there");
    }
}

/// The first column of all rows of a text, of all its statements.
pub(crate) async fn first_column(client: &Client, text: &str) -> Vec<Option<String>> {
    let messages = client.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let rows = messages.into_iter().filter_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).map(str::to_owned)),
        _ => None,
    });
    rows.collect()
}

/// The one value that a text gives.
pub(crate) async fn value(client: &Client, text: &str) -> String {
    let mut values = first_column(client, text).await;
    assert_eq!(values.len(), 1, "{text}: {values:?}");
    values.remove(0).expect("not NULL")
}

/// The SQLSTATE and the message of the error that a text gives.
pub(crate) async fn error(client: &Client, text: &str) -> (String, String) {
    match client.simple_query(text).await {
        Ok(rows) => panic!("{text}: no error, but {rows:?}"),
        Err(error) => of(&error),
    }
}

/// The SQLSTATE and the message of a client's error.
pub(crate) fn of(error: &tokio_postgres::Error) -> (String, String) {
    let error = error.as_db_error().unwrap_or_else(|| panic!("not of the server: {error:?}"));
    (error.code().code().to_owned(), error.message().to_owned())
}
