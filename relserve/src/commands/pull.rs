//! `relserve pull`: a model from a hub into a folder.

use std::path::{Path, PathBuf};

use clap::Args;
use engine::hub::{self, PullRequest};
use engine::memory;
use gateway::config::Config;
use indicatif::BinaryBytes;
use serving::known_models::{self, KnownModel};

use super::{Failure, say};
use crate::models::{FileMeter, Sources, fetch};
use crate::terminal::with_default;

/// Models of a hub, or of the list that the command prints without a name.
#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// ORG/NAME, or a name of the list [default: prints the list, with what fits this machine].
    model: Option<String>,
    /// The folder [default: NAME under the data folder's `models`].
    #[arg(long)]
    into: Option<PathBuf>,
    /// The hub.
    #[arg(long, value_name = "URL", help = with_default("The hub's address", hub::ENDPOINT))]
    endpoint: Option<String>,
    /// Branch, tag or commit.
    #[arg(long, help = with_default("Branch, tag or commit", PullRequest::new("").revision))]
    revision: Option<String>,
}

impl Pull {
    pub(crate) fn run(self, config: &Config) -> Result<(), Failure> {
        let data_dir = &config.store.data_dir;
        let Some(model) = self.model else {
            list(data_dir);
            return Ok(());
        };
        let Sources { hub: mut request, is_offline } = Sources::usual();
        request.repo.clone_from(&model);
        request.endpoint = self.endpoint.unwrap_or(request.endpoint);
        request.revision = self.revision.unwrap_or(request.revision);
        let mut files = FileMeter::new();
        let named = known_models::named(&model).filter(|_| self.into.is_none());
        let (subject, place) = match named {
            Some(known) => {
                let sources = Sources { hub: request, is_offline };
                let place = fetch(known, data_dir, &sources, &mut |progress| files.show(progress))?;
                (known.name.clone(), place)
            }
            None => {
                if let Some(known) = known_models::named(&model) {
                    request.repo.clone_from(&known.repo);
                }
                let name = request.repo.rsplit('/').next().unwrap_or(&request.repo);
                let folder = self.into.unwrap_or_else(|| data_dir.join("models").join(name));
                let commit = hub::pull(&request, &folder, &mut |progress| files.show(progress))?;
                (commit, folder)
            }
        };
        files.end();
        let place = place.display();
        say!("{subject} is in {place}; serve it with: relserve serve --model {place}");
        Ok(())
    }
}

/// The models that have names, and which of them this machine can serve.
fn list(data_dir: &Path) {
    let memory = memory::available();
    say!("{:<22} {:>10} {:>10}  {:<10}  ", "NAME", "DOWNLOAD", "MEMORY", "LICENCE");
    for model in known_models::all() {
        let KnownModel { name, licence, about, .. } = model;
        let state = match memory {
            _ if model.fetched(data_dir).is_some() => " (fetched)",
            Some(memory) if !model.fits(memory) => " (more than this machine has free)",
            _ => "",
        };
        let (download, memory) = (BinaryBytes(model.download().0), BinaryBytes(model.memory().0));
        let (download, memory) = (download.to_string(), memory.to_string());
        say!("{name:<22} {download:>10} {memory:>10}  {licence:<10}  {about}{state}");
    }
    say!("Fetch one with: relserve pull NAME; any other in safetensors with: relserve pull ORG/NAME");
}
