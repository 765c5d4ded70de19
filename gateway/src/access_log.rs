//! The access log: a line of JSON for each request, written by a thread of its own. A request never waits for the
//! disk: lines beyond the bound are lost and counted.
//!
//! A line has the template of a path and not the path itself, no query, no header and no body: nothing in it is a key.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use serde::Serialize;

/// Lines that wait to be written.
const WAITING_MAX: usize = 4_096;

/// What is said of a request.
#[derive(Debug, Serialize)]
pub struct AccessLine<'a> {
    /// When its head was read: RFC 3339, UTC.
    pub time: String,
    /// Its method.
    pub method: &'a str,
    /// The template of its path; nothing where no route has it.
    pub path: Option<&'a str>,
    /// The status of its reply.
    pub status: u16,
    /// From its head to the last byte of its reply that was taken.
    pub duration_ms: f64,
    /// Bytes of the reply's body.
    pub bytes: u64,
    /// The tenant's number, where its key named one.
    pub tenant: Option<u64>,
    /// Its id.
    pub request_id: &'a str,
    /// Its trace, where it is in one.
    pub trace_id: Option<String>,
}

enum Message {
    Line(String),
    /// Take the file that has the path now.
    Reopen,
}

/// A way to the thread that writes.
pub struct AccessLog {
    /// Both go when it is closed.
    writer: Mutex<Option<(SyncSender<Message>, JoinHandle<()>)>>,
}

/// Where lines go.
#[derive(Clone, Debug)]
enum Target {
    Stdout,
    Stderr,
    File(PathBuf),
}

impl Target {
    fn of(path: &Path) -> Self {
        match path.to_str() {
            Some("stdout") => Self::Stdout,
            Some("stderr") => Self::Stderr,
            _ => Self::File(path.to_owned()),
        }
    }

    fn open(&self) -> std::io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Self::Stdout => Box::new(std::io::stdout()),
            Self::Stderr => Box::new(std::io::stderr()),
            // Others have no business with who asked what.
            Self::File(path) => {
                Box::new(OpenOptions::new().append(true).create(true).mode(0o640).open(path)?)
            }
        })
    }
}

impl AccessLog {
    /// Opens one: `stdout`, `stderr`, or a file, to whose end lines are written.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let target = Target::of(path);
        let out = BufWriter::new(target.open()?);
        let (sender, messages) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("relserve-access-log".into());
        let thread = thread.spawn(move || write(&messages, out, &target))?;
        Ok(Self { writer: Mutex::new(Some((sender, thread))) })
    }

    fn send(&self, message: Message) -> bool {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.as_ref().is_some_and(|(sender, _)| sender.try_send(message).is_ok())
    }

    /// Has a line written; false: it is lost.
    pub fn write(&self, line: &AccessLine<'_>) -> bool {
        let line = serde_json::to_string(line).expect("a line is plain data");
        self.send(Message::Line(line))
    }

    /// Has the file opened again, which may have been moved away.
    pub fn reopen(&self) {
        if !self.send(Message::Reopen) {
            tracing::warn!("too many lines of the access log wait: it goes on in its old file");
        }
    }

    /// Waits until all is written.
    pub fn close(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((sender, thread)) = writer {
            drop(sender);
            if thread.join().is_err() {
                tracing::error!("what writes the access log did not end well");
            }
        }
    }
}

/// Writes until nobody has a line any more.
fn write(messages: &Receiver<Message>, mut out: BufWriter<Box<dyn Write + Send>>, target: &Target) {
    let mut is_broken = false;
    while let Ok(first) = messages.recv() {
        let mut result = Ok(());
        for message in std::iter::once(first).chain(messages.try_iter()) {
            let one = match message {
                Message::Line(line) => writeln!(out, "{line}"),
                Message::Reopen => out.flush().and_then(|()| {
                    out = BufWriter::new(target.open()?);
                    Ok(())
                }),
            };
            result = result.and(one);
        }
        let result = result.and_then(|()| out.flush());
        let was_broken = std::mem::replace(&mut is_broken, result.is_err());
        // Once, and not for each line.
        if let Err(error) = result
            && !was_broken
        {
            tracing::error!(%error, "the access log cannot be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(request_id: &str) -> AccessLine<'_> {
        AccessLine {
            time: "2026-11-26T08:16:26.123Z".into(),
            method: "GET",
            path: Some("/v1/relqueries/{id}"),
            status: 200,
            duration_ms: 1.5,
            bytes: 7,
            tenant: None,
            request_id,
            trace_id: None,
        }
    }

    #[test]
    fn a_line_is_json_and_a_moved_file_is_left_for_a_new_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
        let log = AccessLog::open(&path).expect("it opens");
        assert!(log.write(&line("a")));
        std::fs::rename(&path, &old).expect("it is moved");
        log.reopen();
        assert!(log.write(&line("b")));
        log.close();
        assert!(!log.write(&line("c")), "it is closed");
        let ids = |path: &Path| {
            let text = std::fs::read_to_string(path).expect("it is there");
            let id = |line: &str| {
                let line: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
                line["request_id"].as_str().expect("an id").to_owned()
            };
            text.lines().map(id).collect::<Vec<_>>()
        };
        assert_eq!((ids(&old), ids(&path)), (vec!["a".to_owned()], vec!["b".to_owned()]));
    }
}
