//! The start of a connection: its parameters, and the proof that the client is who it says.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::startup::{Authentication, NegotiateProtocolVersion};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use super::Server;
use super::accounts::{AccountError, Login};
use super::cancel::CancelKey;
use super::error::{SqlError, Stop, code};
use super::frontend::Frontend;
use super::scram::{Exchange, MECHANISM, Verifier};
use super::transport::{ClientInput, ServerOutput};

/// Asks to cancel what another connection runs, in place of a protocol's version.
const CANCEL_REQUEST: u32 = 80_877_102;
/// Bytes of a cancel request: its length, code, number and secret.
const CANCEL_REQUEST_BYTES: usize = 16;
/// Bytes of a startup message at most, as many as Postgres takes.
const STARTUP_BYTES_MAX: usize = 10_000;

/// A connection's first message.
#[derive(Debug)]
pub(super) enum Startup {
    Cancel(CancelKey),
    Session(Parameters),
}

/// What a client says of itself.
#[derive(Debug)]
pub(super) struct Parameters {
    pub(super) user: String,
    /// What the client calls the tenant's tables, all of which are one database.
    pub(super) database: String,
    /// Settings of the session, by name.
    pub(super) settings: BTreeMap<String, String>,
    /// Extensions of the protocol that the server does not know.
    unsupported: Vec<String>,
    minor_version: u16,
}

/// Reads the first message, whose length and code were read already.
pub(super) async fn read<S: AsyncRead + Unpin>(stream: &mut S, head: [u8; 8]) -> Result<Startup, Stop> {
    let [l0, l1, l2, l3, c0, c1, c2, c3] = head;
    let length = usize::try_from(u32::from_be_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
    let version = u32::from_be_bytes([c0, c1, c2, c3]);
    if version == CANCEL_REQUEST {
        if length != CANCEL_REQUEST_BYTES {
            return Err(Stop::Closed);
        }
        return Ok(Startup::Cancel(CancelKey {
            pid: stream.read_i32().await?,
            secret: stream.read_i32().await?,
        }));
    }
    if !(8..=STARTUP_BYTES_MAX).contains(&length) {
        return Err(SqlError::protocol("invalid length of startup packet").into());
    }
    let (major, minor_version) = (u16::from_be_bytes([c0, c1]), u16::from_be_bytes([c2, c3]));
    if major != 3 {
        let message = format!("unsupported frontend protocol {major}.{minor_version}: server supports 3.0");
        return Err(SqlError::fatal(code::FEATURE_NOT_SUPPORTED, message).into());
    }
    let mut body = vec![0; length - 8];
    stream.read_exact(&mut body).await?;
    parameters(&body, minor_version).map(Startup::Session).map_err(Stop::from)
}

fn parameters(body: &[u8], minor_version: u16) -> Result<Parameters, SqlError> {
    let malformed = || SqlError::protocol("invalid startup packet layout: expected terminator as last byte");
    let text = std::str::from_utf8(body).map_err(|_| malformed())?;
    // Names and values, each ended by a zero; an empty name ends the list.
    let mut parts = text.strip_suffix("\0\0").ok_or_else(malformed)?.split('\0');
    let (mut user, mut database, mut settings, mut unsupported) = (None, None, BTreeMap::new(), Vec::new());
    while let Some(name) = parts.next() {
        let value = parts.next().ok_or_else(malformed)?;
        match name {
            "user" => user = Some(value.to_owned()),
            "database" => database = Some(value.to_owned()),
            "replication" => {}
            "options" => settings.extend(options(value)),
            name if name.starts_with("_pq_.") => unsupported.push(name.to_owned()),
            name => {
                settings.insert(name.to_ascii_lowercase(), value.to_owned());
            }
        }
    }
    let user = user.filter(|user| !user.is_empty());
    let user = user.ok_or_else(|| {
        SqlError::fatal(code::INVALID_AUTHORIZATION, "no PostgreSQL user name specified in startup packet")
    })?;
    // As in Postgres, the database of a client that names none is the user's.
    let database = database.filter(|database| !database.is_empty()).unwrap_or_else(|| user.clone());
    Ok(Parameters { user, database, settings, unsupported, minor_version })
}

/// Settings as options of a command line: `-c name=value` and `--name=value`.
fn options(text: &str) -> Vec<(String, String)> {
    let words = text.split_ascii_whitespace().map(|word| word.trim_start_matches("--"));
    let words = words.map(|word| word.strip_prefix("-c").unwrap_or(word));
    words
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| (name.to_ascii_lowercase().replace('-', "_"), value.to_owned()))
        .collect()
}

/// Lets the client prove that it is the user it names. Gives the name that its session is opened for.
pub(super) async fn authenticate<S: AsyncRead + AsyncWrite>(
    server: &Server,
    parameters: &Parameters,
    peer: SocketAddr,
    is_encrypted: bool,
    input: &mut ClientInput<S>,
    output: &mut ServerOutput<S>,
) -> Result<String, Stop> {
    if parameters.minor_version > 0 || !parameters.unsupported.is_empty() {
        let answer = NegotiateProtocolVersion::new(0, parameters.unsupported.clone());
        output.put(PgWireBackendMessage::NegotiateProtocolVersion(answer))?;
    }
    let user = &parameters.user;
    let own = |is_proven: bool| is_proven.then(|| user.clone());
    let proven = match server.accounts.login(user).await.map_err(unavailable)? {
        Some(Login::Open) => own(true),
        Some(Login::Scram(verifier)) => own(scram(verifier, input, output).await?),
        Some(Login::ClearText) if is_unheard(peer.ip(), is_encrypted) => {
            put(output, Authentication::CleartextPassword)?;
            output.flush().await?;
            let key = password(input).await?;
            let key = key.strip_suffix(b"\0").and_then(|key| std::str::from_utf8(key).ok());
            let key = key.ok_or_else(|| SqlError::protocol("invalid password packet"))?;
            server.accounts.accepts(user, key).await.map_err(unavailable)?
        }
        Some(Login::ClearText) => {
            let message =
                format!("user \"{user}\" has no SCRAM verifier: its key would cross the net in clear");
            let hint = "Connect by TLS (sslmode=require), or as the user of one key: `relserve key list` shows it. \
                        Keys of older versions have none: make a new one.";
            return Err(SqlError::fatal(code::INVALID_AUTHORIZATION, message).with_hint(hint).into());
        }
        None => own(scram(Verifier::impossible(&server.secret, user), input, output).await?),
    };
    let Some(account) = proven else {
        let message = format!("password authentication failed for user \"{user}\"");
        return Err(SqlError::fatal(code::INVALID_PASSWORD, message).into());
    };
    put(output, Authentication::Ok)?;
    Ok(account)
}

/// Whether what this peer says can be heard by nobody else.
fn is_unheard(peer: IpAddr, is_encrypted: bool) -> bool {
    is_encrypted || peer.to_canonical().is_loopback()
}

fn put<S: AsyncWrite>(output: &mut ServerOutput<S>, message: Authentication) -> Result<(), SqlError> {
    output.put(PgWireBackendMessage::Authentication(message))
}

pub(super) fn unavailable(error: AccountError) -> SqlError {
    let code = match error {
        AccountError::Unavailable(_) => code::INTERNAL,
        AccountError::Denied(_) => code::INSUFFICIENT_PRIVILEGE,
    };
    SqlError::fatal(code, error.to_string())
}

async fn password<S: AsyncRead>(input: &mut ClientInput<S>) -> Result<Bytes, Stop> {
    match input.next().await? {
        Frontend::Password(message) => Ok(message),
        Frontend::Terminate => Err(Stop::Closed),
        _ => Err(SqlError::protocol("expected password response").into()),
    }
}

async fn scram<S: AsyncRead + AsyncWrite>(
    verifier: Verifier,
    input: &mut ClientInput<S>,
    output: &mut ServerOutput<S>,
) -> Result<bool, Stop> {
    put(output, Authentication::SASL(vec![MECHANISM.to_owned()]))?;
    output.flush().await?;
    let message = password(input).await?;
    let first = initial_response(&message).ok_or_else(|| SqlError::protocol("invalid SASL message"))?;
    let (exchange, answer) = Exchange::start(verifier, first)?;
    put(output, Authentication::SASLContinue(answer.into()))?;
    output.flush().await?;
    let message = password(input).await?;
    match exchange.finish(&message)? {
        None => Ok(false),
        Some(answer) => {
            put(output, Authentication::SASLFinal(answer.into()))?;
            Ok(true)
        }
    }
}

/// What a SASLInitialResponse carries: behind the mechanism's name and a length.
fn initial_response(message: &[u8]) -> Option<&[u8]> {
    let rest = message.strip_prefix(MECHANISM.as_bytes())?.strip_prefix(b"\0")?;
    let (length, data) = rest.split_first_chunk::<4>()?;
    (usize::try_from(i32::from_be_bytes(*length)).ok()? == data.len()).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_startup_packet_names_the_user_and_settings() {
        let body = [
            "user\0acme\0database\0x\0options\0-c statement_timeout=5s --search-path=a\0",
            "application_name\0psql\0\0",
        ];
        let parameters = parameters(body.concat().as_bytes(), 0).unwrap();
        assert_eq!((parameters.user.as_str(), parameters.database.as_str()), ("acme", "x"));
        let settings: Vec<(&str, &str)> =
            parameters.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            settings,
            [("application_name", "psql"), ("search_path", "a"), ("statement_timeout", "5s")]
        );
    }

    #[test]
    fn a_key_in_clear_text_is_asked_of_this_machine_alone_unless_the_connection_is_encrypted() {
        for (peer, is_here) in [
            ("127.0.0.1", true),
            ("127.8.9.10", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.7", false),
            ("::ffff:10.0.0.7", false),
            ("2001:db8::7", false),
            ("0.0.0.0", false),
        ] {
            let address: IpAddr = peer.parse().unwrap();
            assert_eq!(is_unheard(address, false), is_here, "{peer}");
            assert!(is_unheard(address, true), "{peer} by TLS");
        }
    }

    #[test]
    fn a_startup_packet_without_a_user_or_an_end_is_refused() {
        for body in [b"\0".as_slice(), b"user\0\0", b"user\0a", b"", b"database\0a\0\0", b"user\0a\0x\0\0"] {
            assert!(parameters(body, 0).is_err(), "{body:?}");
        }
    }
}
