//! Loading a model against reading its files: both with the files out of the system's memory and with them in it.
//!
//! ```text
//! cargo bench -p engine --bench load --profile dev --config profile.dev.package.engine.debug-assertions=false -- DIR
//! ```
//!
//! DIR is a folder with weights in safetensors, on the disk that is meant: `target/` of a container may lie in memory.
//! Reading is what a copy would do, a few megabytes at a time; loading packs all weights for the kernels of the
//! machine, with a KV pool of 64 MiB. Both take turns; a number behind DIR is how many rounds, of which the middle
//! one counts. Limit: out of memory a load takes 1.2 times as long as reading.
#![expect(clippy::print_stdout, reason = "the table is the bench's result")]

mod common;

use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use base::Bytes;
use common::median;
use engine::{Device, EngineConfig, load_dir};

/// Rounds where none are asked for.
const ROUNDS: usize = 3;

/// Bytes read at a time.
const PIECE_BYTES: usize = 8 << 20;

type Failure = Box<dyn std::error::Error>;

/// Has the system forget what it holds of files; pages that are mapped or not yet written stay.
#[cfg(target_os = "linux")]
fn forget(files: &[PathBuf]) -> Result<(), Failure> {
    for file in files {
        let file = File::open(file)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn forget(_: &[PathBuf]) -> Result<(), Failure> {
    Err("no system but Linux is known to forget files".into())
}

/// Seconds that `work` takes.
fn timed(work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

fn read(files: &[PathBuf]) -> Result<(), Failure> {
    let mut piece = vec![0; PIECE_BYTES];
    for file in files {
        let mut file = File::open(file)?;
        while file.read(&mut piece)? > 0 {
            black_box(&piece);
        }
    }
    Ok(())
}

fn load(folder: &Path) -> Result<(), Failure> {
    let config =
        EngineConfig { device: Device::Cpu, kv_bytes: Some(Bytes(64 << 20)), ..EngineConfig::default() };
    black_box(load_dir(folder, &config, &Arc::default())?.info);
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let Some(folder) = arguments.first().map(Path::new) else {
        return Err("which folder? name it behind `--`".into());
    };
    let rounds = arguments.get(1).map_or(Ok(ROUNDS), |rounds| rounds.parse())?.max(1);
    let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let is_weights = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "safetensors");
    let files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(is_weights).collect();
    let bytes: u64 = files.iter().map(|file| Ok(file.metadata()?.len())).sum::<Result<u64, Failure>>()?;
    println!("{} files of {:.2} GB, rounds: {rounds}", files.len(), bytes as f64 / 1e9);
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        forget(&files)?;
        let reading = timed(|| read(&files))?;
        forget(&files)?;
        cold.push((reading, timed(|| load(folder))?));
        warm.push((timed(|| read(&files))?, timed(|| load(folder))?));
    }
    println!("{:<24}{:>10}{:>10}{:>10}{:>20}", "", "read, s", "GB/s", "load, s", "load / read");
    for (name, times) in [("files on disk", cold), ("files in memory", warm)] {
        let reading = median(times.iter().map(|(read, _)| *read));
        let loading = median(times.iter().map(|(_, load)| *load));
        let rate = bytes as f64 / 1e9 / reading;
        println!("{name:<24}{reading:>10.2}{rate:>10.2}{loading:>10.2}{:>20.2}", loading / reading);
    }
    Ok(())
}
