//! The add-ins as the server serves them: with its own address, and nothing else's.
//!
//! `addins/build.sh` builds them; where that was not run the page says so, and the rest is skipped.

use std::path::Path;

use crate::common::client::Client;
use crate::common::serve;

fn is_built() -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../addins/dist/page/index.html").exists()
}

/// Asks as a browser does that reached the server through a proxy.
async fn through_proxy(client: &Client, path: &str, host: &str) -> crate::common::client::Reply {
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: inside\r\nConnection: close\r\nX-Forwarded-Proto: https\r\n\
         X-Forwarded-Host: {host}\r\n\r\n"
    );
    client.raw(head.as_bytes()).await
}

#[actix_web::test]
async fn the_add_ins_come_with_the_servers_own_address() {
    let server = serve().await;
    let page = server.client.get("/addins").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(server.client.get("/addins/excel/none.js").await.status, 404);
    assert_eq!(server.client.get("/addins/page/.gitignore").await.status, 404);
    if !is_built() {
        assert!(page.body.contains("not in this build"));
        return eprintln!("skipped: `addins/build.sh` has not been run");
    }
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let pictures = page.body.split("src=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut count = 0;
    for picture in pictures {
        let reply = server.client.get(picture).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("image/svg+xml")), "{picture}");
        count += 1;
    }
    assert_eq!(count, 10, "three steps each, and the product's sign");

    for path in ["/addins", "/addins/excel/manifest.xml", "/addins/sheets/RelServe.gs"] {
        let reply = through_proxy(&server.client, path, "sheets.example.org").await;
        assert_eq!(reply.status, 200, "{path}");
        assert!(!reply.body.contains("relserve.invalid"), "{path}");
        assert!(reply.body.contains("https://sheets.example.org"), "{path}");
        let own = server.client.get(path).await;
        assert!(own.body.contains("http://test"), "the host that was asked: {path}");
    }
    let manifest = through_proxy(&server.client, "/addins/excel/manifest.xml", "sheets.example.org").await;
    let urls = manifest.body.split("DefaultValue=\"https://sheets.example.org").skip(1);
    let mut count = 0;
    for path in urls.filter_map(|rest| rest.split('"').next()) {
        assert_eq!(server.client.get(path).await.status, 200, "{path}");
        count += 1;
    }
    assert!(count >= 9, "{count} files are named");
    let pane = server.client.get("/addins/excel/taskpane.html").await;
    let policy = pane.header("content-security-policy").unwrap();
    assert!(
        policy.contains("https://appsforoffice.microsoft.com") && !policy.contains("frame-ancestors"),
        "{policy}"
    );

    let script = through_proxy(&server.client, "/addins/sheets/RelServe.gs", "sheets.example.org").await;
    assert_eq!(script.header("content-type"), Some("text/plain; charset=utf-8"));
    assert!(script.body.contains("const RELSERVE_URL = \"https://sheets.example.org\";"));
    assert!(
        script.body.contains("function AI_CLASSIFY(") && script.body.contains("RELSERVE_PANEL"),
        "one file"
    );
}

#[actix_web::test]
async fn libreoffices_extension_is_a_zip_with_the_servers_own_address() {
    if !is_built() {
        return eprintln!("skipped: `addins/build.sh` has not been run");
    }
    let server = serve().await;
    let reply = through_proxy(&server.client, "/addins/relserve.oxt", "sheets.example.org").await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("application/vnd.openofficeorg.extension"))
    );
    assert!(reply.body.starts_with("PK"), "a zip");
    // It is stored without compression: its files can be read in it.
    for file in ["META-INF/manifest.xml", "description.xml", "Addons.xcu", "relserve.py"] {
        assert!(reply.body.contains(file), "{file}");
    }
    assert!(reply.body.contains("ADDRESS = \"https://sheets.example.org\""));
    assert!(!reply.body.contains("relserve.invalid"));
}

#[actix_web::test]
async fn an_address_that_is_none_is_not_written_into_a_script() {
    if !is_built() {
        return eprintln!("skipped: `addins/build.sh` has not been run");
    }
    let server = serve().await;
    for host in ["a\";alert(1)//", "a b", "<x>"] {
        let reply = through_proxy(&server.client, "/addins/sheets/RelServe.gs", host).await;
        assert_eq!(reply.status, 400, "{host}: {}", reply.body.chars().take(100).collect::<String>());
    }
}
