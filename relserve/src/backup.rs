//! Backups: one archive (a zip file) of the database and of what lies beside it, with a manifest of every member's
//! digest.
//!
//! [`contents`] says what belongs to a backup, [`pack`] writes an archive while servers run, [`unpack`] checks one as a
//! whole before anything is written, and [`place`] puts what it held where a server looks for it.

pub(crate) mod contents;
pub(crate) mod pack;
pub(crate) mod place;
pub(crate) mod unpack;

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The database's file: as a member, and in the folder that it is restored to.
pub(crate) const DATABASE: &str = "relserve.db";
/// The folder of tenants' tables, in both places.
pub(crate) const TABLES: &str = "tables";
/// The member that names all others.
const MANIFEST: &str = "manifest.json";
/// The version of the archives' form.
const FORMAT: u64 = 1;

/// What an archive holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub(crate) format: u64,
    /// The version of the program that wrote it.
    pub(crate) program: String,
    /// When, in unix milliseconds.
    pub(crate) created_ms: u64,
    /// The version of the database's schema; none where the database is not in the archive, but a server's.
    pub(crate) schema: Option<i64>,
    pub(crate) members: Vec<Member>,
}

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Member {
    /// Where it lies in the data folder, with `/`.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// Of its content, in hexadecimal digits.
    pub(crate) sha256: String,
}

impl Manifest {
    /// Of an archive without members.
    pub(crate) fn new(created_ms: u64, schema: Option<i64>) -> Self {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Self { format: FORMAT, program, created_ms, schema, members: Vec::new() }
    }

    /// Bytes of all members.
    pub(crate) fn bytes(&self) -> u64 {
        self.members.iter().map(|member| member.bytes).sum()
    }
}

/// Copies all of `from`; how many bytes that was, and their digest.
fn copy_hashed(mut from: impl Read, mut to: impl Write) -> io::Result<(u64, String)> {
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok((bytes, format!("{:x}", hash.finalize()))),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
        bytes += count as u64;
    }
}
