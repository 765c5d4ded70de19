//! One connection, from its first byte to its last.

use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::startup::{BackendKeyData, SecretKey};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::accounts::AccountError;
use super::answer::{answer, ready};
use super::backend::Backend;
use super::cancel::Cancel;
use super::error::{SqlError, Stop, code};
use super::frontend::Frontend;
use super::settings::{self, Settings};
use super::startup::{self, Parameters, Startup};
use super::tls::Channel;
use super::transport::{ClientInput, ServerOutput};
use super::{Server, catalog};
use crate::complexity::on_a_large_stack;

/// A client has so long to say who it is.
const STARTUP_MAX: Duration = Duration::from_secs(60);
/// An error that ends the connection has so long to reach the client.
const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// Serves one connection to its end.
pub(super) async fn serve(
    server: Arc<Server>,
    socket: TcpStream,
    peer: SocketAddr,
    mut shutdown: watch::Receiver<bool>,
) {
    // Answers are small and awaited.
    let _ = socket.set_nodelay(true);
    let opening = async {
        let (mut channel, head) = Channel::open(socket, server.tls.as_ref()).await?;
        let startup = startup::read(&mut channel, head).await;
        Ok::<_, std::io::Error>((channel, startup))
    };
    let opened = tokio::select! {
        opened = tokio::time::timeout(STARTUP_MAX, opening) => opened,
        () = stopped(&mut shutdown) => return,
    };
    let Ok(Ok((channel, startup))) = opened else { return };
    let is_encrypted = channel.is_encrypted();
    let (read, write) = tokio::io::split(channel);
    let mut input = ClientInput::new(read, server.limits.message_bytes_max);
    let mut output = ServerOutput::new(write);
    let parameters = match startup {
        Ok(Startup::Cancel(key)) => return server.cancels.cancel(key),
        Ok(Startup::Session(parameters)) => parameters,
        Err(stop) => return farewell(stop, &mut input, &mut output).await,
    };
    let Ok(_permit) = Arc::clone(&server.connections).try_acquire_owned() else {
        let message =
            format!("sorry, too many clients already: the limit is {}", server.limits.connections_max);
        let error = SqlError::fatal(code::TOO_MANY_CONNECTIONS, message);
        return farewell(error.into(), &mut input, &mut output).await;
    };
    let greeting = greet(&server, &parameters, peer, is_encrypted, &mut input, &mut output);
    let greeted = tokio::select! {
        greeted = tokio::time::timeout(STARTUP_MAX, greeting) => greeted,
        () = stopped(&mut shutdown) => return,
    };
    let (account, backend, cancel) = match greeted {
        Ok(Ok(begun)) => begun,
        Ok(Err(stop)) => return farewell(stop, &mut input, &mut output).await,
        Err(_) => return,
    };
    let ended = Box::pin(async { ended(server.accounts.ended(&account).await) });
    let mut connection = Connection { backend, cancel, ended, input, output, skips_to_sync: false };
    let stop = connection.run(&mut shutdown).await;
    // What runs ends before the client hears of it.
    let Connection { backend, cancel, mut input, mut output, .. } = connection;
    drop((backend, cancel));
    farewell(stop, &mut input, &mut output).await;
}

/// Authenticates the client, opens its session, and says that queries may come.
async fn greet<S: AsyncRead + AsyncWrite>(
    server: &Arc<Server>,
    parameters: &Parameters,
    peer: SocketAddr,
    is_encrypted: bool,
    input: &mut ClientInput<S>,
    output: &mut ServerOutput<S>,
) -> Result<(String, Backend, Cancel), Stop> {
    if server.limits.requires_tls && !is_encrypted {
        let message = "this server takes encrypted connections alone";
        let error = SqlError::fatal(code::INVALID_AUTHORIZATION, message);
        return Err(error.with_hint("Connect with sslmode=require.").into());
    }
    let account = startup::authenticate(server, parameters, peer, is_encrypted, input, output).await?;
    let mut session = server.accounts.session(&account).await.map_err(startup::unavailable)?;
    let cancel = server.cancels.register()?;
    let mut settings = Settings::new(&parameters.user);
    for (name, value) in &parameters.settings {
        let set = if settings::is_of_postgres(name) {
            settings.set(name, Some(value))
        } else {
            session.set(name, value).await.map_err(SqlError::from)
        };
        set.map_err(|error| SqlError { is_fatal: true, ..error })?;
    }
    settings.keep_as_initial();
    session.keep_as_initial();
    let settings = Arc::new(Mutex::new(settings));
    let (user, database) = (&parameters.user, &parameters.database);
    catalog::install(session.context(), user, database, cancel.key.pid, &settings)?;
    let mut backend = Backend::new(session, settings, server.limits);
    backend.follow_settings();
    backend.report(output)?;
    let key = BackendKeyData::new(cancel.key.pid, SecretKey::I32(cancel.key.secret));
    output.put(PgWireBackendMessage::BackendKeyData(key))?;
    ready(&mut backend, output).await?;
    Ok((account, backend, cancel))
}

/// Tells the client why the connection ends, if it still listens, and ends it.
async fn farewell<S: AsyncRead + AsyncWrite>(
    stop: Stop,
    input: &mut ClientInput<S>,
    output: &mut ServerOutput<S>,
) {
    let goodbye = async {
        let Stop::Failed(error) = stop else { return output.close().await };
        let error = SqlError { is_fatal: true, ..error };
        let sent = output.put(PgWireBackendMessage::ErrorResponse(error.info().into()));
        if sent.is_ok() && output.flush().await.is_ok() {
            output.close().await;
            // A socket that is closed with bytes unread may lose what the client was told.
            input.discard().await;
        }
    };
    let _ = tokio::time::timeout(FAREWELL_MAX, goodbye).await;
}

struct Connection<'a, S> {
    backend: Backend,
    cancel: Cancel,
    /// Until the key is revoked.
    ended: Pin<Box<dyn Future<Output = Stop> + Send + 'a>>,
    input: ClientInput<S>,
    output: ServerOutput<S>,
    /// After an error in the extended protocol: nothing is answered until `Sync`.
    skips_to_sync: bool,
}

impl<S: AsyncRead + AsyncWrite> Connection<'_, S> {
    /// Answers messages until the connection is to end; says why.
    async fn run(&mut self, shutdown: &mut watch::Receiver<bool>) -> Stop {
        loop {
            let next = tokio::select! {
                biased;
                () = stopped(shutdown) => return shut_down().into(),
                stop = &mut self.ended => return stop,
                message = self.input.next() => message,
            };
            let message = match next {
                Ok(Frontend::Terminate) => return Stop::Closed,
                Ok(message) => message,
                Err(stop) => return stop,
            };
            if self.skips_to_sync && message != Frontend::Sync {
                continue;
            }
            self.skips_to_sync = false;
            let is_extended = message.is_extended();
            let result = match self.answer(message, shutdown).await {
                Err(Stop::Failed(error)) if !error.is_fatal => self.report(error, is_extended).await,
                result => result,
            };
            if let Err(stop) = result {
                return stop;
            }
        }
    }

    /// Answers a message, unless the client cancels it or goes away, it takes too long, or the server stops:
    /// then what it does is dropped, and with it the queries that it runs.
    async fn answer(&mut self, message: Frontend, shutdown: &mut watch::Receiver<bool>) -> Result<(), Stop> {
        self.cancel.forget();
        let timeout = self.backend.settings().statement_timeout();
        let Self { backend, cancel, ended, input, output, .. } = self;
        let interruption = async {
            tokio::select! {
                () = input.closed() => Stop::Closed,
                () = cancel.requested() => cancelled("user request").into(),
                () = expired(timeout) => cancelled("statement timeout").into(),
                () = stopped(shutdown) => shut_down().into(),
                stop = ended => stop,
            }
        };
        let work = AssertUnwindSafe(on_a_large_stack(answer(backend, message, output))).catch_unwind();
        match select(pin!(interruption), pin!(work)).await {
            Either::Left((stop, _)) => Err(stop),
            Either::Right((Ok(result), _)) => result,
            Either::Right((Err(_), _)) => {
                Err(SqlError::fatal(code::INTERNAL, "internal error: the connection's state is lost").into())
            }
        }
    }

    /// Tells the client of an error; the connection goes on.
    async fn report(&mut self, error: SqlError, is_extended: bool) -> Result<(), Stop> {
        self.backend.fail();
        self.output.put(PgWireBackendMessage::ErrorResponse(error.info().into()))?;
        if is_extended {
            self.skips_to_sync = true;
            Ok(self.output.flush().await?)
        } else {
            ready(&mut self.backend, &mut self.output).await
        }
    }
}

fn cancelled(why: &str) -> SqlError {
    SqlError::new(code::QUERY_CANCELLED, format!("canceling statement due to {why}"))
}

fn shut_down() -> SqlError {
    SqlError::fatal(code::SHUTDOWN, "terminating connection due to administrator command")
}

fn ended(why: AccountError) -> Stop {
    SqlError::fatal(code::SHUTDOWN, format!("terminating connection: {why}")).into()
}

async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    // A server that is gone has stopped.
    let _ = shutdown.wait_for(|is_stopped| *is_stopped).await;
}

async fn expired(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}
