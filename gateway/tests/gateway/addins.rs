//! The add-ins' own tests against this server: npm runs them, with its address and a key in their
//! environment.
//!
//! `./test` installs what they need (`./npm-ci.sh addins`); where that was not done the test says so and is
//! skipped.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::{Server, browser, config, model, serve_with};

/// What is missing, or the folder.
fn folder() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../addins");
    if !folder.join("node_modules/installed-lock.json").exists() {
        return Err("`./npm-ci.sh addins` has not been run".into());
    }
    match std::process::Command::new("npm").arg("--version").output() {
        Ok(output) if output.status.success() => Ok(folder),
        Ok(output) => Err(format!("npm does not run: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("npm does not run: {error}")),
    }
}

/// Runs npm with the server's address and key; gives what it printed.
async fn npm(folder: &Path, server: &Server, arguments: &[&str], late: bool) -> String {
    let mut command = tokio::process::Command::new("npm");
    command
        .args(arguments)
        .current_dir(folder)
        .env("RELSERVE_URL", format!("http://{}", server.client.address))
        .env("RELSERVE_KEY", server.client.key.as_deref().unwrap_or_default())
        .env("RELSERVE_CORS", "1")
        .env("NO_COLOR", "1");
    if let Some(browser) = browser() {
        command.env("CHROMIUM", browser);
    }
    if late {
        command.env("RELSERVE_LATE", "1");
    }
    let Output { status, stdout, stderr } = command.kill_on_drop(true).output().await.unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "npm {arguments:?}:\n{said}");
    said
}

#[actix_web::test]
async fn the_add_ins_are_served_tickets_included() {
    let folder = match folder() {
        Ok(folder) => folder,
        Err(reason) => return eprintln!("skipped: the add-ins' tests: {reason}"),
    };
    let mut config = config();
    config.server.cors_origins = vec!["*".into()];
    let server = serve_with(config, model()).await;
    let said = npm(&folder, &server, &["test"], false).await;
    let ran = |file: &str| said.lines().any(|line| line.contains(file) && !line.contains("skipped"));
    assert!(ran("sheets/test/server.test.ts") && ran("excel/test/server.test.ts"), "{said}");
    if browser().is_some() {
        assert!(ran("excel/test/browser.server.test.ts"), "{said}");
    } else {
        eprintln!(
            "skipped: the task pane: no Chromium (Debian's package `chromium`, or its path in CHROMIUM)"
        );
    }
    for half in ["sheets", "excel"] {
        let before = server.metric("relserve_partial_replies_total");
        server.gate.shut();
        let test = format!("{half}/test/late.server.test.ts");
        let arguments = ["exec", "--", "vitest", "run", &test];
        let release = async {
            let made = |server: &Server| server.metric("relserve_partial_replies_total") > before;
            server.until("a ticket is made", made).await;
            server.gate.release();
        };
        tokio::join!(npm(&folder, &server, &arguments, true), release);
    }
    server.until("everything is free", |server| server.is_free()).await;
}
