//! What the program writes beside its answers: bars and colours on a terminal, plain lines in a file.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::fake_hub::{COMMIT, Hub};
use crate::terminal;

/// What begins a code of a terminal.
const ESCAPE: char = '\u{1b}';

#[test]
fn the_log_has_colours_on_a_terminal_alone_and_none_where_they_are_not_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    let command =
        command.arg("model-info").current_dir(folder.path()).env("TERM", "xterm").stdin(Stdio::null());
    let output = command.env_remove("NO_COLOR").output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(log.contains("WARN") && log.contains("the built-in demo model"), "{log}");
    assert!(!log.contains(ESCAPE), "{log:?}");

    let command = format!("{} model-info", terminal::program());
    let coloured = terminal::run(folder.path(), &command, "", |_| ());
    assert!(coloured.text.contains("WARN") && coloured.text.contains(ESCAPE), "{:?}", coloured.text);
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = terminal::run(folder.path(), &command, "", |script| {
            script.env(name, value);
        });
        assert!(plain.text.contains("WARN") && !plain.text.contains(ESCAPE), "{name}: {:?}", plain.text);
    }
    let in_file = terminal::run(folder.path(), &format!("{command} 2>log.txt"), "", |_| ());
    assert_eq!(in_file.code, Some(0), "{}", in_file.text);
    let log = std::fs::read_to_string(folder.path().join("log.txt")).unwrap();
    assert!(log.contains("WARN") && !log.contains(ESCAPE), "{log:?}");
}

#[test]
fn a_job_has_a_bar_on_a_terminal_and_lines_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in.csv"), "review\nA wonderful film.\nTwo lost hours.\n").unwrap();
    let command = format!(
        "{} batch --input in.csv --output out.csv --template 'Is it good? {{review}}' --choice yes --choice no --restart",
        terminal::program()
    );
    let seen = terminal::run(folder.path(), &command, "", |_| ());
    assert_eq!(seen.code, Some(0), "{}", seen.text);
    assert!(seen.text.contains('░') && seen.text.contains("0%"), "a bar: {:?}", seen.text);
    assert!(seen.text.contains("2/2 rows"), "{:?}", seen.text);
    let dumb = terminal::run(folder.path(), &command, "", |script| {
        script.env("TERM", "dumb");
    });
    assert!(dumb.text.contains("2/2 rows") && !dumb.text.contains(['░', ESCAPE]), "{:?}", dumb.text);
    let in_file = terminal::run(folder.path(), &format!("{command} 2>log.txt"), "", |_| ());
    assert!(in_file.code == Some(0) && !in_file.text.contains('░'), "{:?}", in_file.text);
    let log = std::fs::read_to_string(folder.path().join("log.txt")).unwrap();
    assert!(log.contains("2/2 rows") && !log.contains(['\r', '░', ESCAPE]), "{log:?}");
}

#[test]
fn a_pull_has_a_bar_on_a_terminal_and_a_line_for_each_file_in_a_file() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let names = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"];
    let read = |name: &str| (name.to_owned(), std::fs::read(demo.join(name)).unwrap());
    let hub = Hub::with(names.map(read).into_iter().collect::<BTreeMap<_, _>>());
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    let command = command.args(["pull", "org/model", "--into", "a", "--endpoint", &hub.endpoint]);
    let output = command.current_dir(folder.path()).stdin(Stdio::null()).output().unwrap();
    let [said, lines] =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(
        said.starts_with(&format!("{COMMIT} is in a; serve it with: ")) && said.lines().count() == 1,
        "{said}"
    );
    for name in names {
        let own = lines.lines().filter(|line| line.starts_with(&format!("{name} (")));
        assert_eq!(own.count(), 1, "{lines}");
    }
    assert!(!lines.contains(['\r', '░', ESCAPE]), "{lines:?}");
    let command = format!("{} pull org/model --into b --endpoint {}", terminal::program(), hub.endpoint);
    let seen = terminal::run(folder.path(), &command, "", |_| ());
    assert!(seen.code == Some(0) && seen.text.contains('%') && seen.text.contains("MiB"), "{:?}", seen.text);
    assert!(folder.path().join("b/model.safetensors").exists());
}
