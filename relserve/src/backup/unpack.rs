//! Reads an archive: all of it is checked before anything is written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

use store::{Error, SCHEMA_VERSION};
use zip::ZipArchive;

use super::{DATABASE, FORMAT, MANIFEST, Manifest, Member, TABLES, copy_hashed};
use crate::terminal::Failure;

/// Bytes of a manifest at most: a line for each of a million files.
const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// An archive whose members are those that its manifest names.
pub(crate) struct Archive {
    path: PathBuf,
    zip: ZipArchive<File>,
    pub(crate) manifest: Manifest,
}

impl Archive {
    /// Opens an archive and reads it from its beginning to its end.
    ///
    /// # Errors
    /// What is no archive, one whose members are not what its manifest says (the first of them is named), and one of a
    /// newer program.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let file = File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
        let mut zip = ZipArchive::new(file)
            .map_err(|error| format!("{shown} is no backup, or not all of one: {error}"))?;
        let manifest = manifest(&mut zip).map_err(|reason| format!("{shown}: {reason}"))?;
        let mut archive = Self { path: path.to_owned(), zip, manifest };
        archive.check_names()?;
        for member in archive.manifest.members.clone() {
            archive.copy(&member, io::sink())?;
        }
        Ok(archive)
    }

    /// Writes all members into a folder that has none of them, for their owner's eyes alone.
    pub(crate) fn unpack(&mut self, folder: &Path) -> Result<(), Failure> {
        for member in self.manifest.members.clone() {
            let target = folder.join(&member.path);
            let failed = |cause: io::Error| format!("cannot write {}: {cause}", target.display());
            fs::create_dir_all(target.parent().unwrap_or(folder)).map_err(failed)?;
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&target).map_err(failed)?;
            // What was checked may have been changed since.
            self.copy(&member, &mut file)?;
            file.sync_all().map_err(failed)?;
        }
        Ok(())
    }

    /// Whether every member is named once, by the manifest too, and lies where a backup has files.
    fn check_names(&self) -> Result<(), Failure> {
        let shown = self.path.display();
        let mut named: Vec<&str> = self.manifest.members.iter().map(|member| member.path.as_str()).collect();
        if let Some(path) = named.iter().find(|path| !is_member(path)) {
            return Err(format!("{shown}: a backup has no member `{path}`").into());
        }
        named.push(MANIFEST);
        named.sort_unstable();
        let mut found: Vec<String> = Vec::with_capacity(self.zip.len());
        for name in self.zip.file_names() {
            found.push(name.map_err(|error| format!("{shown}: a member's name: {error}"))?.into_owned());
        }
        found.sort_unstable();
        if self.zip.has_duplicate_names() || named.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(format!("{shown}: a member is there twice").into());
        }
        if let Some(missing) =
            named.iter().find(|name| found.binary_search_by(|other| (**other).cmp(name)).is_err())
        {
            return Err(format!("{shown}: the member `{missing}` is missing").into());
        }
        if let Some(other) = found.iter().find(|name| named.binary_search(&name.as_str()).is_err()) {
            return Err(format!("{shown}: the member `{other}` is not in the manifest").into());
        }
        let has_database = named.binary_search(&DATABASE).is_ok();
        if has_database != self.manifest.schema.is_some() {
            return Err(format!("{shown}: the manifest does not say what is with the database").into());
        }
        Ok(())
    }

    /// Copies a member; refuses what is not what the manifest says.
    fn copy(&mut self, member: &Member, to: impl io::Write) -> Result<(), Failure> {
        let shown = self.path.display();
        let damaged = |reason: &dyn std::fmt::Display| {
            format!("{shown}: the member `{}` is damaged: {reason}", member.path)
        };
        let content = self.zip.by_name(&member.path).map_err(|error| damaged(&error))?;
        // More than is said is not read to its end.
        let content = content.take(member.bytes.saturating_add(1));
        let (bytes, sha256) = copy_hashed(content, to).map_err(|error| damaged(&error))?;
        match (bytes, sha256) == (member.bytes, member.sha256.clone()) {
            true => Ok(()),
            false => Err(damaged(&"its digest is not the manifest's").into()),
        }
    }
}

/// The manifest of an archive that this program can restore.
fn manifest(zip: &mut ZipArchive<File>) -> Result<Manifest, String> {
    let damaged = |reason: &dyn std::fmt::Display| format!("the member `{MANIFEST}` is damaged: {reason}");
    let mut text = Vec::new();
    let member =
        zip.by_name(MANIFEST).map_err(|error| format!("no backup of RelServe: `{MANIFEST}`: {error}"))?;
    member.take(MANIFEST_BYTES_MAX).read_to_end(&mut text).map_err(|error| damaged(&error))?;
    let fields: serde_json::Value = serde_json::from_slice(&text).map_err(|error| damaged(&error))?;
    // A newer form may have other fields.
    if let Some(format) = fields["format"].as_u64().filter(|format| *format != FORMAT) {
        return Err(format!("its form is version {format}, this program reads version {FORMAT}"));
    }
    let manifest: Manifest = serde_json::from_value(fields).map_err(|error| damaged(&error))?;
    match manifest.schema {
        Some(found) if found > SCHEMA_VERSION => {
            Err(Error::Newer { found, known: SCHEMA_VERSION }.to_string())
        }
        _ => Ok(manifest),
    }
}

/// Whether a member may be called so: the database, or a file below the tables' folder.
fn is_member(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    let is_below = parts.next() == Some(Component::Normal(TABLES.as_ref()));
    let rest: Vec<Component<'_>> = parts.collect();
    let is_plain = rest.iter().all(|part| matches!(part, Component::Normal(_)));
    path == DATABASE || (is_below && is_plain && !rest.is_empty() && !path.contains('\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_lies_where_a_backup_has_files() {
        for path in ["relserve.db", "tables/1/a.csv", "tables/a", "tables/1/.definitions/x.sql"] {
            assert!(is_member(path), "{path}");
        }
        for path in [
            "tables",
            "tables/",
            "tables/../x",
            "/tables/x",
            "x",
            "relserve.db-wal",
            "../relserve.db",
            "",
            "tables/..\\x",
        ] {
            assert!(!is_member(path), "{path}");
        }
    }
}
