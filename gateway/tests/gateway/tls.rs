//! Encrypted listeners, certificates that are read again, and the Unix socket.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use gateway::config::Config;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::common::{Server, config, model, serve_with};

/// Writes a certificate for 127.0.0.1 that nobody else has signed, and its key; the certificate.
pub fn write_pair(folder: &Path) -> rcgen::Certificate {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(folder.join("server.crt"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("server.key"), made.signing_key.serialize_pem()).unwrap();
    made.cert
}

/// A client that trusts this certificate alone.
fn trusting(certificate: &rcgen::Certificate) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let trusted = reqwest::Certificate::from_pem(certificate.pem().as_bytes()).unwrap();
    Client::builder().tls_certs_only([trusted]).build().unwrap()
}

/// A handshake in which these protocols are offered.
pub async fn handshake(
    server: &Server,
    certificate: &rcgen::Certificate,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    handshake_at(server.running.address, certificate, protocols).await
}

/// The same at an address.
pub async fn handshake_at(
    address: SocketAddr,
    certificate: &rcgen::Certificate,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    handshake_over(TcpStream::connect(address).await?, certificate, protocols).await
}

/// A handshake with the listener of the Postgres protocol, which is asked for TLS first.
async fn handshake_of_sql(
    server: &Server,
    certificate: &rcgen::Certificate,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut socket = TcpStream::connect(server.running.sql_address.unwrap()).await?;
    // SSLRequest, and the byte that says yes.
    socket.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).await?;
    assert_eq!(socket.read_u8().await?, b'S');
    handshake_over(socket, certificate, &[]).await
}

async fn handshake_over(
    socket: TcpStream,
    certificate: &rcgen::Certificate,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, socket).await
}

/// The certificate that a connection was shown.
fn shown(connection: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    connection.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

/// The configuration of a server with this folder's certificate.
pub fn encrypted(folder: &Path) -> Config {
    let mut config = config();
    config.server.certificate = Some(folder.join("server.crt"));
    config.server.certificate_key = Some(folder.join("server.key"));
    config.server.health_listen = Some(([127, 0, 0, 1], 0).into());
    config
}

async fn serve_encrypted(folder: &Path) -> Server {
    serve_with(encrypted(folder), model()).await
}

#[actix_web::test]
async fn with_a_certificate_all_is_encrypted_and_http_2_is_spoken_to_whoever_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = write_pair(folder.path());
    let server = serve_encrypted(folder.path()).await;
    let url = server.running.url();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");

    let client = trusting(&certificate);
    let body = json!({"template": "Say {w}", "rows": [["a"], ["b"]]});
    let request = client.post(format!("{url}/v1/relqueries")).json(&body);
    let reply = request.bearer_auth(server.client.key.as_deref().unwrap()).send().await.unwrap();
    assert_eq!(reply.status(), 200);
    assert_eq!(reply.json::<Value>().await.unwrap()["status"], "completed");
    let health = server.running.health_address.unwrap();
    assert_eq!(client.get(format!("https://{health}/healthz")).send().await.unwrap().status(), 200);

    let both = handshake(&server, &certificate, &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(both.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let older = handshake(&server, &certificate, &["http/1.1"]).await.unwrap();
    assert_eq!(older.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    // Frames of HTTP/2 are what the server begins with there.
    let mut both = both;
    both.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut head = [0; 9];
    both.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "settings");

    let plain = server.client.send(&server.client.request("GET", "/healthz", "", b"")).await;
    let mut answer = Vec::new();
    let mut plain = plain;
    // Closed or reset: clear text is not answered in either case.
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains("200 OK"));
}

#[actix_web::test]
async fn a_new_certificate_is_taken_when_told_and_a_broken_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let first = write_pair(folder.path());
    let server = serve_encrypted(folder.path()).await;
    let early = handshake(&server, &first, &["http/1.1"]).await.unwrap();
    assert_eq!(shown(&early), *first.der());

    let second = write_pair(folder.path());
    assert_eq!(shown(&handshake(&server, &first, &[]).await.unwrap()), *first.der(), "nobody was told");
    assert_eq!(server.running.reload_certificates().unwrap(), 1);
    assert_eq!(shown(&handshake(&server, &second, &[]).await.unwrap()), *second.der());
    handshake(&server, &first, &[]).await.expect_err("it is another's now");
    // A connection from before is still served.
    let mut early = early;
    early.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await.unwrap();
    let mut head = [0; 15];
    early.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");

    for (file, text) in [("server.key", "no key"), ("server.crt", "")] {
        write_pair(folder.path());
        std::fs::write(folder.path().join(file), text).unwrap();
        let error = server.running.reload_certificates().unwrap_err().to_string();
        assert!(error.contains("server."), "it names the file: {error}");
        assert_eq!(shown(&handshake(&server, &second, &[]).await.unwrap()), *second.der());
    }
    // A key that belongs to another certificate.
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    write_pair(folder.path());
    std::fs::write(folder.path().join("server.key"), other.signing_key.serialize_pem()).unwrap();
    server.running.reload_certificates().expect_err("they do not belong together");
    assert_eq!(shown(&handshake(&server, &second, &[]).await.unwrap()), *second.der());
}

#[actix_web::test]
async fn a_certificate_of_sqls_own_is_read_again_too_and_a_broken_one_changes_neither() {
    let (folder, of_sql) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (http, first) = (write_pair(folder.path()), write_pair(of_sql.path()));
    let mut config = encrypted(folder.path());
    config.store.data_dir = folder.path().to_owned();
    config.sql.listen = Some(([127, 0, 0, 1], 0).into());
    config.sql.certificate = Some(of_sql.path().join("server.crt"));
    config.sql.certificate_key = Some(of_sql.path().join("server.key"));
    let server = serve_with(config, model()).await;
    let shows = async |of_http: &rcgen::Certificate, of_sql: &rcgen::Certificate| {
        assert_eq!(shown(&handshake(&server, of_http, &[]).await.unwrap()), *of_http.der());
        assert_eq!(shown(&handshake_of_sql(&server, of_sql).await.unwrap()), *of_sql.der());
    };
    shows(&http, &first).await;

    let second = write_pair(of_sql.path());
    shows(&http, &first).await;
    assert_eq!(server.running.reload_certificates().unwrap(), 2, "one of each listener");
    shows(&http, &second).await;
    handshake_of_sql(&server, &first).await.expect_err("it is another's now");

    std::fs::write(of_sql.path().join("server.key"), "no key").unwrap();
    let error = server.running.reload_certificates().unwrap_err().to_string();
    let file = of_sql.path().join("server.key").display().to_string();
    assert!(error.contains(&file), "it names the file: {error}");
    shows(&http, &second).await;
}

#[actix_web::test]
async fn a_unix_socket_answers_beside_the_port_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relserve.sock");
    let mut config = config();
    config.server.unix_socket = Some(path.clone());
    let server = serve_with(config, model()).await;
    let body = json!({"template": "Say {w}", "rows": [["a"]]}).to_string();
    let mut socket = UnixStream::connect(&path).await.unwrap();
    let request = server.client.request("POST", "/v1/relqueries", "application/json", body.as_bytes());
    socket.write_all(&request).await.unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 OK") && reply.contains("\"completed\""), "{reply}");
    assert_eq!(server.client.get("/healthz").await.status, 200);
    server.running.drain(std::future::pending()).await;
    assert!(!path.exists());
}
