//! Libraries that are loaded into the processes under test (`LD_PRELOAD`), to stand between them and the system.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::Error;

/// Makes a library of its source in C; `None` where no C compiler is installed.
pub(super) async fn library(dir: &Path, name: &str, source: &str) -> Result<Option<PathBuf>, Error> {
    let (file, library) = (dir.join(format!("{name}.c")), dir.join(format!("{name}.so")));
    std::fs::write(&file, source).map_err(|error| Error::file(&file, error))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&file).arg("-ldl");
    let made = compiler.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().await;
    Ok(made.is_ok_and(|status| status.success()).then_some(library))
}
