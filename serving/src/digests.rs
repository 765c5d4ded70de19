//! Digests of a checkpoint: where a file `SHA256SUMS` lies beside its files, as `sha256sum` writes one, what it lists is
//! checked before it is loaded. Weights with flipped bits load as well as others, and answer nonsense.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The file that lists digests.
pub const LIST: &str = "SHA256SUMS";

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// Why a checkpoint is not what its list says.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    /// A file, or the list itself, cannot be read.
    #[error("{}: {cause}", path.display())]
    Read { path: PathBuf, cause: std::io::Error },
    /// A line of the list is none of `sha256sum`.
    #[error("{}: line {line} is not a SHA-256 and a file's name", path.display())]
    Line { path: PathBuf, line: usize },
    /// A file has changed.
    #[error("{} is damaged: {LIST} says {expected}, and it has {found}", path.display())]
    Damaged { path: PathBuf, expected: String, found: String },
}

/// Checks a folder's files against the list in it, or one file against the list beside it; says how many were listed.
/// Without a list nothing is checked.
pub fn check(checkpoint: &Path) -> Result<usize, DigestError> {
    let only = checkpoint.is_file().then(|| checkpoint.file_name()).flatten();
    let folder = if only.is_some() { checkpoint.parent().unwrap_or(Path::new("")) } else { checkpoint };
    let path = folder.join(LIST);
    let list = match std::fs::read_to_string(&path) {
        Ok(list) => list,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(cause) => return Err(DigestError::Read { path, cause }),
    };
    let mut checked = 0;
    for (line, text) in (1..).zip(list.lines()).filter(|(_, text)| !text.trim().is_empty()) {
        let Some((expected, name)) = entry(text) else { return Err(DigestError::Line { path, line }) };
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let path = folder.join(name);
        let found = digest(&path).map_err(|cause| DigestError::Read { path: path.clone(), cause })?;
        if !found.eq_ignore_ascii_case(expected) {
            return Err(DigestError::Damaged { path, expected: expected.to_owned(), found });
        }
        checked += 1;
    }
    Ok(checked)
}

/// The digest and the name of a line: a space or an asterisk parts them, after a space.
fn entry(line: &str) -> Option<(&str, &str)> {
    let (digest, name) = line.split_once(' ')?;
    let name = name.strip_prefix([' ', '*'])?;
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_digest && !name.is_empty()).then_some((digest, name))
}

fn digest(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            bytes => hash.update(&chunk[..bytes]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_is_named_with_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("a.safetensors"), b"abc").expect("written");
        std::fs::write(file("b.gguf"), b"").expect("written");
        assert_eq!(check(folder.path()).expect("no list"), 0);
        // Of `sha256sum`, one in its binary form.
        let list = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a.safetensors\n\
                    e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 *b.gguf\n";
        std::fs::write(file(LIST), list).expect("written");
        assert_eq!(check(folder.path()).expect("as listed"), 2);
        std::fs::write(file("a.safetensors"), b"abb").expect("written");
        let error = check(folder.path()).expect_err("a bit is another").to_string();
        assert!(error.contains("a.safetensors is damaged"), "{error}");
        assert_eq!(check(&file("b.gguf")).expect("one file is checked alone"), 1);
        std::fs::remove_file(file("a.safetensors")).expect("removed");
        assert!(check(folder.path()).expect_err("one is missing").to_string().contains("a.safetensors"));
        std::fs::write(file(LIST), format!("{list}no digest\n")).expect("written");
        let error = check(&file("b.gguf")).expect_err("a bad line").to_string();
        assert!(error.contains("line 3"), "{error}");
    }
}
