//! `relserve pull`: a model from a hub into a folder.

use std::path::PathBuf;

use clap::Args;
use gateway::config::Config;

use super::{Failure, say};

#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// ORG/NAME.
    repo: String,
    /// The folder; by default NAME under the data folder's `models`.
    #[arg(long)]
    into: Option<PathBuf>,
    /// The hub.
    #[arg(long)]
    endpoint: Option<String>,
    /// Branch, tag or commit.
    #[arg(long)]
    revision: Option<String>,
}

impl Pull {
    pub(crate) fn run(self, config: &Config) -> Result<(), Failure> {
        let folder = self.into.unwrap_or_else(|| {
            let name = self.repo.rsplit('/').next().unwrap_or(&self.repo);
            config.store.data_dir.join("models").join(name)
        });
        let mut request = engine::hub::PullRequest::new(self.repo);
        request.token = gateway::config::hub_token();
        request.endpoint = self.endpoint.unwrap_or(request.endpoint);
        request.revision = self.revision.unwrap_or(request.revision);
        let mut last = String::new();
        let commit = engine::hub::pull(&request, &folder, &mut |progress| {
            if progress.file != last {
                last = progress.file.to_owned();
                say!("{} ({} bytes)", progress.file, progress.total);
            }
        })?;
        say!(
            "{} is in {}; serve it with: relserve serve --model {}",
            commit,
            folder.display(),
            folder.display()
        );
        Ok(())
    }
}
