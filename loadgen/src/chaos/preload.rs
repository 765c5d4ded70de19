//! Libraries that are loaded into the processes under test (`LD_PRELOAD`), to stand between them and the system.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::Error;

/// Makes a library of its source in C; `None` where no C compiler is installed.
pub async fn library(dir: &Path, name: &str, source: &str) -> Result<Option<PathBuf>, Error> {
    let library = dir.join(format!("{name}.so"));
    let is_made = compile(source, &library, &["-shared", "-fPIC"]).await?;
    Ok(is_made.then_some(library))
}

/// Compiles a source in C, which is kept beside what is made of it; false where no C compiler is installed.
pub(super) async fn compile(source: &str, output: &Path, options: &[&str]) -> Result<bool, Error> {
    let file = output.with_extension("c");
    std::fs::write(&file, source).map_err(|error| Error::file(&file, error))?;
    let mut compiler = Command::new("cc");
    compiler.args(options).arg("-o").arg(output).arg(&file).arg("-ldl").stdin(Stdio::null());
    let Ok(made) = compiler.output().await else { return Ok(false) };
    if !made.status.success() {
        return Err(Error::file(&file, String::from_utf8_lossy(&made.stderr)));
    }
    Ok(true)
}

/// What a library is made of, and how it learns what to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreloadSource {
    /// What its files are called after.
    pub(super) name: &'static str,
    /// In C.
    pub(super) text: &'static str,
    /// The variable of the environment that names the file in which stands what to do.
    pub(super) variable: &'static str,
}

/// A library for several processes. Each of them has a file of its own that tells the library there what to do.
#[derive(Clone, Debug)]
pub(super) struct Preload {
    source: PreloadSource,
    library: PathBuf,
    dir: PathBuf,
}

impl Preload {
    /// Makes the library; `None` where no C compiler is installed.
    pub(super) async fn make(dir: &Path, source: PreloadSource) -> Result<Option<Self>, Error> {
        let library = library(dir, source.name, source.text).await?;
        Ok(library.map(|library| Self { source, library, dir: dir.to_owned() }))
    }

    /// What has a process load the library.
    pub(super) fn environment(&self, process: &str) -> Vec<(String, String)> {
        let settings = [("LD_PRELOAD", self.library.clone()), (self.source.variable, self.file(process))];
        settings.map(|(name, path)| (name.to_owned(), path.display().to_string())).into()
    }

    /// The file that tells what to do in a process.
    pub(super) fn file(&self, process: &str) -> PathBuf {
        self.dir.join(format!("{process}.{}", self.source.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_source_that_does_not_compile_is_an_error_and_no_missing_compiler() {
        let folder = tempfile::tempdir().expect("a folder");
        let sound = library(folder.path(), "sound", "int sound;").await.expect("it compiles");
        let Some(sound) = sound else {
            eprintln!("skipped: no C compiler is installed");
            return;
        };
        assert!(sound.is_file());
        let broken = library(folder.path(), "broken", "int broken(").await;
        assert!(broken.expect_err("it does not compile").to_string().contains("broken.c"));
    }
}
