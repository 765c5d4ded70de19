//! Documents that tests write: compared with what is committed, or written where `UPDATE_DOCS` is set
//! (`cargo xtask docs`).

use std::path::{Path, PathBuf};

/// Columns of a document's text.
pub const WIDTH: usize = 110;

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// A committed document.
pub fn read(name: &str) -> String {
    std::fs::read_to_string(place(name)).unwrap_or_default()
}

/// Whether documents are written and not compared.
pub fn is_written() -> bool {
    std::env::var_os("UPDATE_DOCS").is_some()
}

/// Compares a document with what it ought to be, or writes it.
pub fn same(name: &str, text: &str) {
    let was = read(name);
    if is_written() {
        std::fs::write(place(name), text).unwrap();
        return;
    }
    let differs = was.lines().zip(text.lines()).find(|(was, is)| was != is);
    let line = differs.map(|(was, is)| format!("\n- {was}\n+ {is}")).unwrap_or_default();
    assert!(was == text, "{name} is not what the code says; `cargo xtask docs` writes it anew.{line}");
}

/// Text in lines of [`WIDTH`], broken at spaces, all but the first behind `indent`.
pub fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("{indent}{word}"));
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join("\n")
}
