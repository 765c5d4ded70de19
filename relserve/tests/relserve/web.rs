//! The page: as the server sends it, its own tests, and a real browser that fills cells through it.
//!
//! `./test` builds the page and installs the browser; where one is missing the test says so and is skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{browser, serve};
use crate::program::{OPERATOR_KEY, Program};

fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards/web")
}

/// Why the page's own tools cannot run here, where they cannot.
fn missing() -> Option<&'static str> {
    let installed = web().join("node_modules/installed-lock.json");
    (!installed.exists()).then_some("dashboards/web/build.sh has not been run")
}

/// Runs a command in the page's folder and gives what it said; it must succeed.
fn run(command: &mut Command) -> String {
    let output = command.current_dir(web()).output().expect("it can be started");
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{said}");
    said
}

/// What follows each `NAME="` in a page.
fn attributes<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let starts = format!("{name}=\"");
    page.split(starts.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[actix_web::test]
async fn the_page_comes_with_the_program_and_asks_nobody_else() {
    let server = serve().await;
    let page = server.client.get("/").await;
    assert!(page.body.contains("<title>RelServe</title>"));
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe") && !policy.contains("http"));
    assert_eq!(server.client.get("/assets/none.js").await.status, 404);
    assert_eq!(server.client.get("/.gitignore").await.status, 404);
    if missing().is_some() {
        assert!(page.body.contains("not in this build") || page.body.contains("./assets/"));
        return;
    }
    let linked = [attributes(&page.body, "src"), attributes(&page.body, "href")].concat();
    let files: Vec<_> = linked.iter().filter_map(|link| link.strip_prefix("./")).collect();
    assert!(
        files.iter().any(|file| file.ends_with(".js")) && files.iter().any(|file| file.ends_with(".css")),
        "{linked:?}"
    );
    assert!(!linked.iter().any(|link| link.starts_with("http") || link.starts_with("//")), "{linked:?}");
    for file in files {
        let reply = server.client.get(&format!("/{file}")).await;
        assert_eq!(reply.status, 200, "{file}");
        let forever = reply.header("cache-control").is_some_and(|value| value.contains("immutable"));
        assert_eq!(forever, file.starts_with("assets/"), "{file}");
    }
}

#[test]
fn the_pages_own_tests_pass() {
    if let Some(reason) = missing() {
        return eprintln!("skipped: {reason}");
    }
    run(Command::new("npm").arg("test"));
}

#[test]
fn a_browser_fills_edits_undoes_reloads_and_exports_a_sheet() {
    if let Some(reason) = missing() {
        return eprintln!("skipped: {reason}");
    }
    let Some(browser) = browser() else {
        return eprintln!("skipped: no Chromium (Debian's package `chromium`, or its path in CHROMIUM)");
    };
    let folder = tempfile::tempdir().unwrap();
    // More than the browser's cells compute, and less than it then asks for at once.
    let limits = "[limits]\ntenant_day_cell_tokens_max = 1_500_000\n";
    // The page is tried, not the model: it may say anything to any function.
    let server = Program::start(folder.path(), &format!("[model]\ndemo_functions = \"all\"\n{limits}"));
    let mut command = Command::new("node");
    command
        .args(["e2e/run.mjs", &server.address])
        .env("RELSERVE_KEY", &server.key)
        .env("RELSERVE_ADMIN_KEY", OPERATOR_KEY)
        .env("CHROMIUM", browser);
    let said = run(&mut command);
    assert!(said.contains("e2e: all passed"), "{said}");
    println!("{said}");
}

#[test]
fn a_workbook_a_formula_and_the_live_view_choose_among_two_models() {
    if let Some(reason) = missing() {
        return eprintln!("skipped: {reason}");
    }
    let Some(browser) = browser() else {
        return eprintln!("skipped: no Chromium (Debian's package `chromium`, or its path in CHROMIUM)");
    };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let behind = Program::start(folders[0].path(), "");
    let sections = format!(
        "[model]\nname = \"first\"\n[[models]]\nname = \"second\"\n[[models.replicas]]\nurl = \"{}\"\n\
         model = \"relserve-demo\"\napi_key = \"{}\"\ndialect = \"vllm\"\n\
         health_path = \"/healthz\"\nhealth_ms = 100\n",
        behind.address, behind.key
    );
    let server = Program::start(folders[1].path(), &sections);
    let mut command = Command::new("node");
    command
        .args(["e2e/two-models.mjs", &server.address])
        .env("RELSERVE_KEY", &server.key)
        .env("CHROMIUM", browser);
    let said = run(&mut command);
    assert!(said.contains("two models: all passed"), "{said}");
}

/// Debian's Firefox, or the one in `FIREFOX`.
fn firefox() -> Option<PathBuf> {
    let named = std::env::var_os("FIREFOX").map(PathBuf::from);
    named.or_else(|| Some("/usr/bin/firefox-esr".into())).filter(|path| path.exists())
}

/// A server, and a link that signs in to it.
fn invitation(folder: &Path) -> (Program, String) {
    // Every save is a version of its own, so that there are some to go back to.
    let config = folder.join("config.toml");
    std::fs::write(&config, "[workbooks]\nversion_ms = 0\n").unwrap();
    let server = Program::configured(folder, |command| {
        command.arg("--config").arg(&config);
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.arg("--data-dir").arg(folder).args(["sign-in", "--url", &server.address]);
    let said = run(&mut command);
    let link = said.lines().find(|line| line.contains("#sign-in=")).unwrap().to_owned();
    (server, link)
}

#[test]
fn people_sign_in_by_a_link_share_sheets_and_lose_no_letter() {
    if let Some(reason) = missing() {
        return eprintln!("skipped: {reason}");
    }
    let Some(browser) = browser() else {
        return eprintln!("skipped: no Chromium (Debian's package `chromium`, or its path in CHROMIUM)");
    };
    let folder = tempfile::tempdir().unwrap();
    let (_server, link) = invitation(folder.path());
    let mut command = Command::new("node");
    command.arg("e2e/people.mjs").env("RELSERVE_SIGN_IN", link).env("CHROMIUM", browser);
    let said = run(&mut command);
    assert!(said.contains("people: all passed"), "{said}");
    println!("{said}");
}

#[test]
fn firefox_signs_in_fills_a_column_stops_a_run_and_shows_the_live_view() {
    if let Some(reason) = missing() {
        return eprintln!("skipped: {reason}");
    }
    let Some(firefox) = firefox() else {
        return eprintln!("skipped: no Firefox (Debian's package `firefox-esr`, or its path in FIREFOX)");
    };
    let folder = tempfile::tempdir().unwrap();
    let (_server, link) = invitation(folder.path());
    let mut command = Command::new("node");
    command.arg("e2e/firefox.mjs").env("RELSERVE_SIGN_IN", link).env("FIREFOX", firefox);
    let said = run(&mut command);
    assert!(said.contains("firefox: all passed"), "{said}");
    println!("{said}");
}
