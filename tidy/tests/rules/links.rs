//! Documents lead somewhere: every relative link and every named document exists, anchors included, and each
//! "DESIGN n" is a section of `docs/DESIGN.md`.
//!
//! It reads Markdown as far as links need it: code is skipped, a heading's anchor is made as GitHub makes it.

use std::path::{Component, Path, PathBuf};

use super::report;
use super::tree::{File, files, root};

/// The document that "DESIGN n" refers to.
const DESIGN: &str = "docs/DESIGN.md";

fn documents() -> Vec<File> {
    files().into_iter().filter(|file| file.path.ends_with(".md")).collect()
}

/// Lines (from 1) outside fenced code and HTML comments.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let (mut in_fence, mut in_comment) = (false, false);
    let mut lines = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
            continue;
        }
        in_comment |= line.trim_start().starts_with("<!--");
        if !in_fence && !in_comment {
            lines.push((number, line));
        }
        in_comment &= !line.contains("-->");
    }
    lines
}

/// A line without its code spans.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Targets of a line's links and images.
fn targets(line: &str) -> Vec<String> {
    let text = without_code(line);
    let ends = text.split("](").skip(1).filter_map(|rest| rest.split(')').next().map(str::to_owned));
    ends.collect()
}

/// Names like `docs/BULK.md`, as text or as code.
fn named_documents(line: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/.-_".contains(c);
    let words = line.split(|c| !is_part(c)).map(|word| word.trim_end_matches('.'));
    words.filter(|word| word.starts_with("docs/") && word.ends_with(".md")).collect()
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(text: &str) -> Vec<String> {
    prose(text).into_iter().filter(|(_, line)| line.starts_with('#')).map(|(_, line)| anchor(line)).collect()
}

/// A path without `.` and `..`, from the root.
fn plain(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

/// What is wrong with a link from `file`, if anything.
fn problem(file: &File, target: &str, all: &[File]) -> Option<String> {
    if ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
        return None;
    }
    let (path, part) = target.split_once('#').map_or((target, None), |(path, part)| (path, Some(part)));
    let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let full = if path.is_empty() { PathBuf::from(&file.path) } else { plain(&folder.join(path)) };
    if !root().join(&full).exists() {
        return Some(format!("`{target}` leads nowhere"));
    }
    let part = part?;
    let linked = all.iter().find(|other| Path::new(&other.path) == full)?;
    let is_known = anchors(&linked.text).iter().any(|known| known == part);
    (!is_known).then(|| format!("`{target}`: {} has no such heading", linked.path))
}

#[test]
fn every_link_leads_somewhere() {
    let all = documents();
    let mut findings = Vec::new();
    for file in &all {
        for (number, line) in prose(&file.text) {
            let broken = targets(line).into_iter().filter_map(|target| problem(file, &target, &all));
            findings.extend(broken.map(|what| format!("{}:{number}: {what}", file.path)));
        }
        for (line, number) in file.text.lines().zip(1..) {
            let missing = named_documents(line).into_iter().filter(|name| !root().join(name).exists());
            findings.extend(missing.map(|name| format!("{}:{number}: there is no {name}", file.path)));
        }
    }
    report("links", &findings);
}

#[test]
fn every_document_is_in_the_index() {
    let all = documents();
    let index = all.iter().find(|file| file.path == "docs/INDEX.md").expect("docs/INDEX.md is there");
    let name = |file: &File| file.path.strip_prefix("docs/").map(str::to_owned);
    let is_listed = |name: &String| name == "INDEX.md" || index.text.contains(&format!("({name})"));
    let missing: Vec<String> = all.iter().filter_map(name).filter(|name| !is_listed(name)).collect();
    report("documents that docs/INDEX.md does not list", &missing);
}

/// The numbers behind "DESIGN" in a line: "DESIGN 3 and 4" names two sections.
fn design_sections(line: &str) -> Vec<&str> {
    let mut numbers = Vec::new();
    for rest in line.split("DESIGN ").skip(1) {
        let words = rest.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let named = words.take_while(|word| *word == "and" || word.bytes().all(|byte| byte.is_ascii_digit()));
        numbers.extend(named.filter(|word| *word != "and"));
    }
    numbers
}

#[test]
fn every_reference_to_the_design_has_a_section() {
    let all = files();
    let design = all.iter().find(|file| file.path == DESIGN).expect("docs/DESIGN.md is there");
    let has = |number: &str| design.text.lines().any(|line| line.starts_with(&format!("## {number}. ")));
    let mut findings = Vec::new();
    for file in all.iter().filter(|file| file.path.ends_with(".rs") || file.path.ends_with(".md")) {
        for (line, number) in file.text.lines().zip(1..) {
            let unknown = design_sections(line).into_iter().filter(|section| !has(section));
            findings.extend(unknown.map(|section| format!("{}:{number}: DESIGN {section}", file.path)));
        }
    }
    report("sections that docs/DESIGN.md does not have", &findings);
}

#[test]
fn links_anchors_and_sections_are_found_in_a_line() {
    assert_eq!(targets("see [a](X.md#b) and ![c](d.png), not `[e](f)`"), ["X.md#b", "d.png"]);
    assert_eq!(anchor("## What it *gives*, on `x`: a table"), "what-it-gives-on-x-a-table");
    assert_eq!(design_sections("blocks (DESIGN 3 and 4). DESIGN 9 says, DESIGN n is none"), ["3", "4", "9"]);
    assert_eq!(named_documents("`docs/BULK.md` (docs/A-B.md)."), ["docs/BULK.md", "docs/A-B.md"]);
}
