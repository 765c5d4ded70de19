//! Writes an archive: under another name until it is whole and on disk, readable by its owner alone.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use tempfile::NamedTempFile;
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

use super::contents::Source;
use super::{DATABASE, MANIFEST, Manifest, Member, copy_hashed};
use crate::terminal::Failure;

/// The fastest: a database shrinks to a part of its size even so.
const LEVEL: i64 = 1;

/// Writes the archive `out`, which must not be there, of these files. The manifest with all members.
pub(crate) fn pack(out: &Path, mut manifest: Manifest, sources: &[Source]) -> Result<Manifest, Failure> {
    let failed = |cause: &dyn std::fmt::Display| format!("cannot write {}: {cause}", out.display());
    let folder = out.parent().unwrap_or(Path::new("/"));
    // Mode 600.
    let file =
        tempfile::Builder::new().prefix(".backup-").tempfile_in(folder).map_err(|error| failed(&error))?;
    let mut archive = ZipWriter::new(file);
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(LEVEL))
        .large_file(true)
        .unix_permissions(0o600);
    for Source { path, file } in sources {
        let content = match File::open(file) {
            Ok(content) => content,
            // A table that was dropped meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound && path != DATABASE => continue,
            Err(error) => return Err(format!("cannot read {}: {error}", file.display()).into()),
        };
        archive.start_file(path.as_str(), options).map_err(|error| failed(&error))?;
        let (bytes, sha256) = copy_hashed(content, &mut archive).map_err(|error| failed(&error))?;
        manifest.members.push(Member { path: path.clone(), bytes, sha256 });
    }
    archive.start_file(MANIFEST, options).map_err(|error| failed(&error))?;
    archive.write_all(&serde_json::to_vec_pretty(&manifest)?).map_err(|error| failed(&error))?;
    let file: NamedTempFile = archive.finish().map_err(|error| failed(&error))?;
    file.as_file().sync_all().map_err(|error| failed(&error))?;
    file.persist_noclobber(out).map_err(|error| failed(&error.error))?;
    Ok(manifest)
}
