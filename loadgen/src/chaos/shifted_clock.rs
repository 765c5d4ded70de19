//! Wall clocks that are wrong. A library that is loaded into the process (`LD_PRELOAD`) stands between it and the
//! system's wall clock; a file beside the process's folder says how far that is off. What measures spans goes on as it did.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::preload::{Preload, PreloadSource};
use crate::Error;

const SOURCE: PreloadSource = PreloadSource {
    name: "shifted-clock",
    text: include_str!("shifted_clock.c"),
    variable: "CLOCK_SHIFT_FILE",
};

/// The library, made.
#[derive(Clone, Debug)]
pub(super) struct ShiftedClocks(Preload);

impl ShiftedClocks {
    /// Makes the library; `None` where no C compiler is installed.
    pub(super) async fn make(dir: &Path) -> Result<Option<Self>, Error> {
        Ok(Preload::make(dir, SOURCE).await?.map(Self))
    }

    /// The environment of a process whose clock may jump. It is right still.
    pub(super) fn environment(&self, process: &str) -> Result<Vec<(String, String)>, Error> {
        self.set(process, 0)?;
        Ok(self.0.environment(process))
    }

    /// How many seconds ahead of the system's a process's wall clock is from now on.
    pub(super) fn set(&self, process: &str, seconds: i64) -> Result<(), Error> {
        let file = self.0.file(process);
        // In place: the process has mapped it, and must never find it shorter.
        let opened = File::options().write(true).create(true).truncate(false).open(&file);
        let written = opened.and_then(|opened| opened.write_all_at(&seconds.to_ne_bytes(), 0));
        written.map_err(|error| Error::file(&file, error))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::chaos::preload::compile;

    /// Says how many hours each way to the wall clock is off, and last the clock that only goes forward.
    const READER: &str = include_str!("reads_clocks.c");

    #[tokio::test]
    async fn a_process_finds_its_wall_clock_shifted_at_once_and_its_other_clock_never() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(clocks) = ShiftedClocks::make(folder.path()).await.expect("it can be written") else {
            eprintln!("skipped: no C compiler is installed");
            return;
        };
        let program = folder.path().join("reader");
        assert!(compile(READER, &program, &[]).await.expect("it compiles"));
        let mut command = Command::new(&program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut reader =
            command.envs(clocks.environment("reader").expect("written")).spawn().expect("it runs");
        let (mut ask, answers) = (reader.stdin.take().expect("piped"), reader.stdout.take().expect("piped"));
        let mut answers = BufReader::new(answers).lines();
        for hours in [0, 3, -2, 0] {
            clocks.set("reader", hours * 3_600).expect("written");
            ask.write_all(b"\n").expect("it reads");
            let wall = format!("{hours} ").repeat(5);
            assert_eq!(answers.next().expect("a line").expect("read"), format!("{wall}0"));
        }
        drop(ask);
        assert!(reader.wait().expect("it ends").success());
    }
}
