//! What operators find and name: tenants and keys by the beginnings of their names, and names that show what they are.

use serde_json::{Value, json};
use store::{DEFAULT_TENANT, KeyScope, NewKey, Store, UnixMillis};

use crate::common::config;
use crate::people::serve_operator;

/// The names of a page, in its order.
fn names(page: &Value) -> Vec<&str> {
    page["data"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[actix_web::test]
async fn tenants_are_found_by_the_beginning_of_a_name_and_the_one_of_that_name_comes_first() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    for name in ["acme", "zeta", "acme one", "acme two", "acme three", "an acme"] {
        let tenant = store.create_tenant(name, 1.0, UnixMillis(1)).await.unwrap().id;
        let new = NewKey { tenant, name: "desk", expires: None, is_operator: false, scope: KeyScope::ALL };
        store.create_key(new, UnixMillis(1)).await.unwrap();
    }
    let (_server, operator) = serve_operator(config(), store).await;
    let page = operator.get("/v1/tenants?name=acme%20t").await.json();
    assert_eq!((names(&page), &page["has_more"]), (vec!["acme two", "acme three"], &json!(false)));
    let page = operator.get("/v1/tenants?name=acme&rows=2").await.json();
    assert_eq!(names(&page), ["acme three", "acme"], "the last is the first that people see");
    let older = operator.get(&format!("/v1/tenants?name=acme&rows=2&before={}", page["before"])).await.json();
    assert_eq!((names(&older), &older["has_more"]), (vec!["acme one", "acme two"], &json!(false)));
    let alone = operator.get("/v1/tenants?name=acme&rows=1").await.json();
    assert_eq!((names(&alone), &alone["has_more"]), (vec!["acme"], &json!(true)));
    let next = operator.get(&format!("/v1/tenants?name=acme&rows=1&before={}", alone["before"])).await.json();
    assert_eq!(names(&next), ["acme three"], "none is passed over");
    let none = operator.get("/v1/tenants?name=cme").await;
    assert_eq!((none.status, names(&none.json())), (200, vec![]), "not in the midst of a name");
    // What a page tells of a tenant is that tenant's, wherever it stands.
    let page = operator.get("/v1/tenants?name=acme").await.json();
    let keys: Vec<_> = page["data"].as_array().unwrap().iter().map(|tenant| tenant["keys"].clone()).collect();
    assert_eq!(keys, vec![json!(1); 4]);
}

#[actix_web::test]
async fn keys_are_found_by_their_names_and_their_tenants() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let acme = store.create_tenant("acme", 1.0, UnixMillis(1)).await.unwrap().id;
    for (tenant, name) in [(acme, "night"), (DEFAULT_TENANT, "acme's"), (DEFAULT_TENANT, "nightly")] {
        let new = NewKey { tenant, name, expires: None, is_operator: false, scope: KeyScope::ALL };
        store.create_key(new, UnixMillis(1)).await.unwrap();
    }
    let (_server, operator) = serve_operator(config(), store).await;
    for (sought, found) in [
        ("acme", &["night", "acme's"][..]),
        ("night", &["night", "nightly"]),
        ("ight", &[]),
        ("desk", &["desk"]),
    ] {
        let page = operator.get(&format!("/v1/keys?name={sought}")).await.json();
        assert_eq!((names(&page), &page["has_more"]), (found.to_vec(), &json!(false)), "{sought}");
    }
    let page = operator.get("/v1/keys?name=night&rows=1").await.json();
    assert_eq!((names(&page), &page["before"]), (vec!["nightly"], &page["data"][0]["id"]));
    let older = operator.get(&format!("/v1/keys?name=night&rows=1&before={}", page["before"])).await.json();
    assert_eq!((names(&older), &older["has_more"]), (vec!["night"], &json!(false)));
}

#[actix_web::test]
async fn a_name_that_shows_something_else_than_it_is_makes_no_tenant_and_no_key() {
    let (_server, operator) = serve_operator(config(), Store::open("sqlite::memory:").await.unwrap()).await;
    for (hidden, code) in [('\u{202e}', "U+202E"), ('\u{200b}', "U+200B"), ('\u{1b}', "U+001B")] {
        let name = format!("acme{hidden}gro");
        for (path, body) in
            [("/v1/tenants", json!({"name": name})), ("/v1/keys", json!({"name": name, "tenant": "default"}))]
        {
            let reply = operator.post(path, &body).await;
            assert_eq!(
                (reply.status, &reply.json()["error"]["param"]),
                (400, &json!("name")),
                "{}",
                reply.body
            );
            assert!(reply.error().contains(code), "{}", reply.body);
        }
    }
    assert_eq!(names(&operator.get("/v1/tenants").await.json()), ["default"]);
    for name in ["Žatec 株式会社", "می\u{200c}خواهم", "👩\u{200d}💻"] {
        assert_eq!(operator.post("/v1/tenants", &json!({"name": name})).await.status, 200, "{name}");
    }
}
