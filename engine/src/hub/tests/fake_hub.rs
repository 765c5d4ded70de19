//! A hub with one model, whatever its name, on the loopback address: for tests of pulls, the program's too.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

/// The model's only commit.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub with one model.
pub(crate) struct Hub {
    pub(crate) endpoint: String,
    /// Requests so far: path and first byte of the range.
    pub(crate) log: Arc<Mutex<Vec<(String, u64)>>>,
    /// A file of which the next answer breaks off half way.
    pub(crate) breaks: Arc<Mutex<Option<String>>>,
    /// A file of which the next whole answer has another byte at its end.
    pub(crate) spoils: Arc<Mutex<Option<String>>>,
}

impl Hub {
    pub(crate) fn with(files: BTreeMap<String, Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
        let hub = Self { endpoint, log: Arc::default(), breaks: Arc::default(), spoils: Arc::default() };
        let (log, faults) = (hub.log.clone(), [hub.breaks.clone(), hub.spoils.clone()]);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that goes away early is its own affair.
                let _ = stream.and_then(|stream| answer(stream, &files, &log, &faults));
            }
        });
        hub
    }
}

/// Answers one request and closes.
fn answer(
    mut stream: TcpStream,
    files: &BTreeMap<String, Vec<u8>>,
    log: &Mutex<Vec<(String, u64)>>,
    [breaks, spoils]: &[Arc<Mutex<Option<String>>>; 2],
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let path = lines.next().transpose()?.unwrap_or_default().split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut start, mut end) = (0, None);
    for line in lines {
        let line = line?.to_lowercase();
        if let Some((from, to)) = line.strip_prefix("range: bytes=").and_then(|range| range.split_once('-')) {
            (start, end) = (from.parse().unwrap_or(0), to.parse::<u64>().ok());
        }
        if line.is_empty() {
            break;
        }
    }
    log.lock().expect("no panic").push((path.clone(), start));
    let revision = path.strip_prefix("/api/models/").and_then(|rest| rest.split_once("/revision/"));
    if revision.is_some_and(|(_, revision)| ["main", COMMIT].contains(&revision)) {
        let names: Vec<_> = files.keys().map(|name| serde_json::json!({ "rfilename": name })).collect();
        let body = serde_json::json!({ "sha": COMMIT, "siblings": names }).to_string();
        return write!(
            stream,
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
    }
    let name = path.split_once(&format!("/resolve/{COMMIT}/")).map_or("", |(_, name)| name);
    let Some(content) = files.get(name) else {
        return write!(stream, "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    };
    let last = end.map_or(content.len(), |end| end as usize + 1);
    if start as usize >= content.len() {
        return write!(
            stream,
            "HTTP/1.1 416 Range Not Satisfiable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        );
    }
    let mut body = content[start as usize..last].to_vec();
    // Large files are named by their content, others by a name.
    let etag = if name.ends_with(".safetensors") {
        format!("{:x}", Sha256::digest(content))
    } else {
        format!("etag-{name}")
    };
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\nConnection: close\r\nETag: \"{etag}\"\r\nX-Repo-Commit: {COMMIT}\r\n\
         Content-Range: bytes {start}-{}/{}\r\nContent-Length: {}\r\n\r\n",
        last - 1,
        content.len(),
        body.len()
    )?;
    let is_whole = end.is_some() || breaks.lock().expect("no panic").take_if(|file| file == name).is_none();
    if end.is_none() && spoils.lock().expect("no panic").take_if(|file| file == name).is_some() {
        *body.last_mut().expect("files have content") ^= 1;
    }
    stream.write_all(if is_whole { &body } else { &body[..body.len() / 2] })
}
