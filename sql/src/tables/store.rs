//! The only files that a session's readers can open: those in the tenant's folder, and those listed for it.
//!
//! It takes the place of the whole file system under `file://`, with paths of its own: `folder/..` and
//! `files/..`. A path is resolved with all its links before it is opened, and must lie in the folder then.

use std::fmt;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::files::{FILES, Files};

/// First segment of paths in the tenant's folder.
pub(super) const FOLDER: &str = "folder";
/// Levels of folders that are looked into.
const DEPTH_MAX: usize = 8;
/// Files in the folder of one table.
pub(super) const PARTS_MAX: usize = 100_000;

/// A tenant's files.
#[derive(Debug)]
pub(super) struct TenantStore {
    inner: LocalFileSystem,
    /// The folder, without links.
    root: PathBuf,
    files: Arc<Files>,
}

impl fmt::Display for TenantStore {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("the tenant's files")
    }
}

/// Where a path in the folder leads with all its links; an error where that is not in the folder.
pub(super) fn resolved(root: &FilePath, path: &FilePath) -> io::Result<PathBuf> {
    let real = path.canonicalize()?;
    if !real.starts_with(root) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it leads out of the tenant's folder"));
    }
    Ok(real)
}

impl TenantStore {
    pub(super) fn new(root: PathBuf, files: Arc<Files>) -> Self {
        Self { inner: LocalFileSystem::new(), root, files }
    }

    fn locate(&self, location: &Path) -> Result<PathBuf> {
        let (first, rest) = location.as_ref().split_once('/').unwrap_or((location.as_ref(), ""));
        match first {
            FOLDER => resolved(&self.root, &self.root.join(rest)),
            FILES => self
                .files
                .path(rest)
                .ok_or_else(|| io::ErrorKind::NotFound.into())
                .and_then(|path| path.canonicalize()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
        .map_err(|error| at_location(location, error))
    }
}

/// An error that names the path as the tenant knows it, never where it lies.
fn at_location(location: &Path, error: io::Error) -> Error {
    let path = location.to_string();
    match error.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path, source: "there is no such file".into() },
        io::ErrorKind::PermissionDenied => Error::PermissionDenied { path, source: error.into() },
        kind => Error::Generic { store: "files", source: format!("{path}: {kind}").into() },
    }
}

fn refused<T>(operation: &str) -> Result<T> {
    Err(Error::NotSupported { source: format!("{operation}: the tenant's files are only read").into() })
}

/// The files under a folder, in the order of their names. Hidden ones and links that lead out are left out.
pub(super) fn walk(root: &FilePath, real: &FilePath, location: &Path) -> Result<Vec<ObjectMeta>> {
    let mut found = Vec::new();
    walk_into(root, real, location, 0, &mut found)?;
    found.sort_by(|a, b| a.location.cmp(&b.location));
    Ok(found)
}

fn walk_into(
    root: &FilePath,
    real: &FilePath,
    location: &Path,
    depth: usize,
    found: &mut Vec<ObjectMeta>,
) -> Result<()> {
    for entry in std::fs::read_dir(real).map_err(|error| at_location(location, error))? {
        let entry = entry.map_err(|error| at_location(location, error))?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
        let Ok(child) = Path::parse(format!("{location}/{name}")) else { continue };
        let Ok(path) = resolved(root, &entry.path()) else { continue };
        let about = path.metadata().map_err(|error| at_location(&child, error))?;
        if about.is_dir() && depth < DEPTH_MAX {
            walk_into(root, &path, &child, depth + 1, found)?;
        } else if about.is_file() {
            if found.len() == PARTS_MAX {
                let source = format!("{location}: more than {PARTS_MAX} files in a table's folder").into();
                return Err(Error::Generic { store: "files", source });
            }
            let last_modified = about.modified().map_err(|error| at_location(&child, error))?.into();
            found.push(ObjectMeta {
                location: child,
                last_modified,
                size: about.len(),
                e_tag: None,
                version: None,
            });
        }
    }
    Ok(())
}

#[async_trait]
impl ObjectStore for TenantStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let real = Path::from_absolute_path(self.locate(location)?)?;
        let got = self.inner.get_opts(&real, options).await;
        let mut got = got.map_err(|error| match error {
            Error::NotFound { .. } => at_location(location, io::ErrorKind::NotFound.into()),
            Error::Precondition { source, .. } => Error::Precondition { path: location.to_string(), source },
            Error::NotModified { source, .. } => Error::NotModified { path: location.to_string(), source },
            _ => at_location(location, io::ErrorKind::Other.into()),
        })?;
        got.meta.location = location.clone();
        Ok(got)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.cloned().unwrap_or_default();
        let real = match self.locate(&prefix) {
            Ok(real) if real.is_dir() => real,
            // As of an object store: nothing is there.
            Ok(_) | Err(Error::NotFound { .. }) => return stream::empty().boxed(),
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let root = self.root.clone();
        let walked = tokio::task::spawn_blocking(move || walk(&root, &real, &prefix));
        let found = async { walked.await.map_err(|source| Error::JoinError { source }).flatten() };
        stream::once(found).map_ok(|found| stream::iter(found.into_iter().map(Ok))).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let under = prefix.cloned().unwrap_or_default();
        let mut result = ListResult { common_prefixes: Vec::new(), objects: Vec::new() };
        for object in self.list(prefix).try_collect::<Vec<_>>().await? {
            let rest =
                object.location.prefix_match(&under).map(|mut rest| (rest.next(), rest.next().is_some()));
            let Some((Some(first), deeper)) = rest else { continue };
            let child = under.clone().join(first);
            if !deeper {
                result.objects.push(object);
            } else if result.common_prefixes.last() != Some(&child) {
                result.common_prefixes.push(child);
            }
        }
        Ok(result)
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        refused("put")
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        refused("put")
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        stream::once(async { refused("delete") }).boxed()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        refused("copy")
    }
}
