//! Disks that are slow: what writes to one waits first. A library that is loaded into the process (`LD_PRELOAD`) stands
//! between it and the system's writes; a file beside the process's folder says how long each of them waits.

use std::path::Path;

use super::preload::{Preload, PreloadSource};
use crate::Error;

const SOURCE: PreloadSource =
    PreloadSource { name: "slow-disk", text: include_str!("slow_disk.c"), variable: "SLOW_DISK_FILE" };

/// The library, made.
#[derive(Clone, Debug)]
pub(super) struct SlowDisks(Preload);

impl SlowDisks {
    /// Makes the library; `None` where no C compiler is installed.
    pub(super) async fn make(dir: &Path) -> Result<Option<Self>, Error> {
        Ok(Preload::make(dir, SOURCE).await?.map(Self))
    }

    /// The environment of a process whose disk may become slow. It is not yet.
    pub(super) fn environment(&self, process: &str) -> Result<Vec<(String, String)>, Error> {
        self.set(process, 0)?;
        Ok(self.0.environment(process))
    }

    /// How long each write of a process waits from now on.
    pub(super) fn set(&self, process: &str, ms: u64) -> Result<(), Error> {
        let file = self.0.file(process);
        std::fs::write(&file, format!("{ms}\n")).map_err(|error| Error::file(&file, error))
    }
}

#[cfg(test)]
mod tests {
    use tokio::process::Command;

    use super::*;

    /// A program that writes and syncs a file, and says how often it was told to wait.
    #[tokio::test]
    async fn writes_of_a_process_wait_for_as_long_as_its_file_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(disks) = SlowDisks::make(folder.path()).await.expect("it can be written") else {
            eprintln!("skipped: no C compiler is installed");
            return;
        };
        let written = folder.path().join("written");
        // `dd` syncs once with each of these.
        let wrote = async |process: &str, conv: &str| {
            let begun = tokio::time::Instant::now();
            let mut command = Command::new("dd");
            command.args(["if=/dev/zero", "bs=1", "count=1", "status=none", conv]);
            command.arg(format!("of={}", written.display()));
            command.envs(disks.environment(process).expect("written"));
            if process == "slow" {
                disks.set(process, 300).expect("written");
            }
            assert!(command.status().await.expect("dd is there").success());
            begun.elapsed()
        };
        for conv in ["conv=fsync", "conv=fdatasync"] {
            assert!(wrote("slow", conv).await.as_millis() >= 300, "{conv}");
        }
        wrote("usual", "conv=fsync").await;
        assert_eq!(std::fs::read(&written).expect("written"), [0]);
    }
}
