//! Operators over HTTP: keys, tenants, weights, usage of all; links that sign somebody in.

use base::Millis;
use gateway::services::old_usage::{self, MergePosition};
use gateway::services::sign_ins;
use serde_json::{Value, json};
use serving::clock::Clock;
use store::{
    DEFAULT_TENANT, KeyScope, NewKey, SignIn, Store, UnixMillis, UsageKey, UsageRow, UsageWrite, Used,
    month_start,
};

use crate::common::client::Client;
use crate::common::{Parties, Server, config, lasting_store, model, serve_on, serve_parties};

/// A server on a store, and a client with an operator's own key.
pub async fn serve_operator(mut config: gateway::config::Config, store: Store) -> (Server, Client) {
    config.auth.remember_ms = Millis(0);
    let new = NewKey {
        tenant: DEFAULT_TENANT,
        name: "desk",
        expires: None,
        is_operator: true,
        scope: KeyScope::ALL,
    };
    let key = store.create_key(new, UnixMillis(1)).await.unwrap().plaintext;
    let server = serve_on(config, model(), store).await;
    let operator = server.client.with_key(&key);
    (server, operator)
}

/// Every route of operators.
const ROUTES: [(&str, &str); 8] = [
    ("GET", "/v1/keys"),
    ("POST", "/v1/keys"),
    ("DELETE", "/v1/keys/1"),
    ("GET", "/v1/tenants"),
    ("POST", "/v1/tenants"),
    ("POST", "/v1/tenants/default"),
    ("GET", "/v1/usage/tenants"),
    ("POST", "/v1/sign-in/links"),
];

#[actix_web::test]
async fn only_operators_come_in() {
    let Parties { server, operators, .. } = serve_parties(config()).await;
    let ask = |client: Client, (method, path): (&'static str, &'static str)| async move {
        client.raw(&client.request(method, path, "application/json", b"{}")).await
    };
    let mut nobody = server.client.clone();
    nobody.key = None;
    for route in ROUTES {
        assert_eq!(ask(nobody.clone(), route).await.status, 401, "{route:?}");
        assert_eq!(ask(server.client.with_key("rs-wrong"), route).await.status, 401, "{route:?}");
        let refused = ask(server.client.clone(), route).await;
        assert_eq!(refused.status, 403, "{route:?}");
        assert_eq!(refused.json()["error"]["code"], "operator_key_required", "{}", refused.error());
    }
    for path in ["/v1/keys", "/v1/tenants", "/v1/usage/tenants"] {
        assert_eq!(operators.get(path).await.status, 200, "the configured key: {path}");
    }
}

#[actix_web::test]
async fn an_operator_makes_lists_and_revokes_keys() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    store.create_tenant("acme", 1.0, UnixMillis(1)).await.unwrap();
    let (server, operator) = serve_operator(config(), store).await;
    let body = json!({"name": "laptop", "tenant": "acme", "days": 3});
    let made = operator.post("/v1/keys", &body).await;
    assert_eq!((made.status, made.header("cache-control")), (200, Some("no-store")), "{}", made.body);
    let made = made.json();
    let theirs = server.client.with_key(made["key"].as_str().unwrap());
    assert_eq!(theirs.get("/v1/usage").await.status, 200);
    assert_eq!(theirs.get("/v1/keys").await.status, 403);
    assert_eq!((&made["tenant"], &made["operator"]), (&json!("acme"), &json!(false)));
    assert_eq!(made["sql_user"], json!(format!("acme-{}", made["id"])));
    assert_eq!(made["expires"].as_u64().unwrap() - made["created"].as_u64().unwrap(), 3 * 86_400);

    let list = operator.get("/v1/keys").await.json();
    let listed = list["data"].as_array().unwrap();
    let names: Vec<_> = listed.iter().map(|key| key["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["desk", "test", "laptop"]);
    assert!(!list.to_string().contains(made["key"].as_str().unwrap()), "a key is told once");
    let path = format!("/v1/keys/{}", made["id"]);
    assert_eq!(operator.delete(&path).await.status, 200);
    assert_eq!(theirs.get("/v1/usage").await.status, 401);
    assert!(operator.get("/v1/keys").await.json()["data"][2]["revoked"].is_u64());
    for id in ["99", "x"] {
        let unknown = operator.delete(&format!("/v1/keys/{id}")).await;
        assert_eq!(unknown.status, 404);
        assert!(unknown.error().contains(&format!("`{id}`")), "{}", unknown.body);
    }
    let unknown = operator.post("/v1/keys", &json!({"name": "n", "tenant": "nobody"})).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.error().contains("`nobody`"), "{}", unknown.body);

    let second =
        operator.post("/v1/keys", &json!({"name": "n", "tenant": "acme", "operator": true})).await.json();
    assert_eq!(server.client.with_key(second["key"].as_str().unwrap()).get("/v1/keys").await.status, 200);
}

#[actix_web::test]
async fn an_operator_makes_tenants_and_sets_weights_and_sees_what_each_has() {
    let mut config = config();
    config.sql.budgets = vec![gateway::config::SqlBudget {
        tenant: Some("acme".into()),
        day_calls_max: Some(7),
        ..Default::default()
    }];
    let store = Store::open("sqlite::memory:").await.unwrap();
    let (server, operator) = serve_operator(config, store.clone()).await;
    let made = operator.post("/v1/tenants", &json!({"name": "acme"})).await.json();
    assert_eq!((&made["name"], &made["weight"]), (&json!("acme"), &json!(1.0)));
    let twice = operator.post("/v1/tenants", &json!({"name": "acme"})).await;
    assert_eq!((twice.status, &twice.json()["error"]["param"]), (400, &json!("name")), "{}", twice.body);
    let changed = operator.post("/v1/tenants/acme", &json!({"weight": 2.5})).await.json();
    assert_eq!(changed["weight"], json!(2.5));
    for nobody in ["nobody", "%00"] {
        let path = format!("/v1/tenants/{nobody}");
        assert_eq!(operator.post(&path, &json!({"weight": 2.5})).await.status, 404, "{path}");
    }
    assert_eq!(operator.post("/v1/tenants/acme", &json!({"weight": 0})).await.status, 400);

    let key = operator.post("/v1/keys", &json!({"name": "n", "tenant": "acme"})).await.json();
    let theirs = server.client.with_key(key["key"].as_str().unwrap());
    let body = json!({"name": "W", "content": {}, "base": 0});
    assert_eq!(theirs.post("/v1/workbooks/w", &body).await.status, 200);
    let spent = store::Spending { tokens: 40, calls: 3 };
    let today = UnixMillis(Clock::start().unix_ms()).day();
    let acme = store.tenant_named("acme").await.unwrap().unwrap().id;
    store.add_spending(acme, today, spent).await.unwrap();

    let list = operator.get("/v1/tenants").await.json();
    let of = |name: &str| -> Value {
        list["data"].as_array().unwrap().iter().find(|tenant| tenant["name"] == name).unwrap().clone()
    };
    assert_eq!((&of("default")["keys"], &of("default")["weight"]), (&json!(2), &json!(1.0)));
    let acme = of("acme");
    assert_eq!((&acme["keys"], &acme["weight"]), (&json!(1), &json!(2.5)));
    assert_eq!(acme["workbooks"]["used"], 1);
    assert_eq!(
        acme["workbook_bytes"],
        json!({
            "used": 3, "max": 256 << 20, "setting": "workbooks.tenant_bytes_max"
        })
    );
    assert_eq!(
        acme["sql_day_calls"],
        json!({
            "used": 3, "max": 7, "setting": "sql.budgets[acme].day_calls_max"
        })
    );
    assert_eq!(acme["sql_day_tokens"], json!({"used": 40, "max": null, "setting": null}));
}

#[actix_web::test]
async fn an_operator_sees_the_usage_and_the_cache_of_every_tenant() {
    let (_dir, store) = lasting_store().await;
    let acme = store.create_tenant("acme", 1.0, UnixMillis(1)).await.unwrap().id;
    let key = crate::common::key_of(&store, acme).await;
    let (server, _) = serve_operator(config(), store.clone()).await;
    let body = json!({"template": "Say {w}", "rows": [["x"], ["y"]]});
    server.relquery(body.clone()).await;
    server.client.with_key(&key).post("/v1/relqueries", &body).await;
    server.running.drain(std::future::pending()).await;

    let (_server, operator) = serve_operator(config(), store).await;
    let usage = operator.get("/v1/usage/tenants?days=2").await.json();
    let rows = usage["data"].as_array().unwrap();
    let told: Vec<_> =
        rows.iter().map(|row| (row["tenant"].as_str().unwrap(), row["rows"].as_u64())).collect();
    assert_eq!(told, [("default", Some(2)), ("acme", Some(2))]);
    assert_eq!((&rows[0]["model"], &rows[0]["route"]), (&json!("double"), &json!("relqueries")));
    assert_eq!(usage["has_more"], false);
    assert_eq!(operator.get("/v1/usage/tenants?days=0").await.status, 400);
    assert_eq!(operator.get("/v1/usage/tenants?rows=0").await.status, 400);
    // A page that a day fills ends with it.
    let page = operator.get("/v1/usage/tenants?days=2&rows=2").await.json();
    let today = rows[0]["day"].as_u64().unwrap();
    assert_eq!(
        (&page["data"], &page["has_more"], &page["before"]),
        (&usage["data"], &json!(true), &json!(today.to_string()))
    );
    let older = operator.get(&format!("/v1/usage/tenants?days=2&before={today}")).await.json();
    assert_eq!(
        (&older["data"], &older["has_more"], &older["before"]),
        (&json!([]), &json!(false), &json!(null))
    );
    let list = operator.get("/v1/tenants").await.json();
    let cached: Vec<_> =
        list["data"].as_array().unwrap().iter().map(|one| one["cached_answers"].clone()).collect();
    assert_eq!(cached, [2, 2]);
    let scheduler = operator.get("/v1/scheduler").await.json();
    assert!(
        scheduler["kv_blocks"]["total"].is_u64(),
        "an operator's own key opens what the tenant's does too"
    );
}

#[actix_web::test]
async fn usage_of_long_ago_is_one_sum_a_month_and_what_can_be_asked_for_stays_by_day() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let today = UnixMillis(Clock::start().unix_ms()).day();
    let oldest_shown = today - 399;
    let month = month_start(today - 450);
    let previous = month_start(month - 1);
    let days = [previous, previous + 1, previous + 2, month + 3, month + 4, oldest_shown, today];
    let row = |day| UsageRow {
        key: UsageKey { tenant: DEFAULT_TENANT, day, model: "m".into(), route: "sql".into() },
        used: Used { rows: 1, ..Used::default() },
    };
    let rows = days.map(row);
    let write = UsageWrite { writer: "another", number: 1, rows: &rows, at: UnixMillis(1) };
    store.add_usage(write).await.unwrap();
    let kept = async || {
        let all = store.usage(None, 0..=u64::MAX).await.unwrap();
        all.iter().map(|row| (row.key.day, row.used.rows)).collect::<Vec<_>>()
    };
    let mut config = config();
    assert_eq!(config.store.usage_days_max, None, "by default all days stay");
    config.store.usage_days_max = Some(400);
    let (server, operator) = serve_operator(config, store.clone()).await;
    assert!(merge_all(&server, 1).await >= 3, "two months, and then nothing");
    assert_eq!(kept().await, [(previous, 3), (month, 2), (oldest_shown, 1), (today, 1)]);
    let usage = operator.get("/v1/usage/tenants?days=400").await.json();
    assert_eq!(usage["data"].as_array().map(Vec::len), Some(2), "{usage}");
}

/// Merges until nothing is left, in passes of so many steps; says how many passes.
async fn merge_all(server: &Server, steps_max: usize) -> usize {
    let mut position = MergePosition::default();
    for passes in 1..100 {
        let reached = old_usage::merge(&server.running.app, position, steps_max).await;
        if reached == position {
            return passes;
        }
        position = reached;
    }
    panic!("it has no end");
}

#[actix_web::test]
async fn a_month_of_usage_that_cannot_be_merged_keeps_no_other_waiting() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let zeta = store.create_tenant("zeta", 1.0, UnixMillis(1)).await.unwrap().id;
    let today = UnixMillis(Clock::start().unix_ms()).day();
    let next = month_start(today - 450);
    let month = month_start(next - 1);
    let row = |tenant, day, requests| UsageRow {
        key: UsageKey { tenant, day, model: "m".into(), route: "sql".into() },
        used: Used { requests, ..Used::default() },
    };
    // A sum that no database holds.
    let mut rows = [1, 2].map(|day| row(DEFAULT_TENANT, month + day, u64::MAX)).to_vec();
    for day in [month, month + 1, next, next + 1] {
        rows.push(row(zeta, day, 1));
    }
    let write = UsageWrite { writer: "another", number: 1, rows: &rows, at: UnixMillis(1) };
    store.add_usage(write).await.unwrap();
    let mut config = config();
    config.store.usage_days_max = Some(400);
    let (server, _operator) = serve_operator(config, store.clone()).await;
    let mut position = MergePosition::default();
    for _ in 0..4 {
        position = old_usage::merge(&server.running.app, position, 1).await;
    }
    let kept = store.usage(Some(zeta), 0..=u64::MAX).await.unwrap();
    let kept: Vec<_> = kept.iter().map(|row| (row.key.day, row.used.requests)).collect();
    assert_eq!(kept, [(month, 2), (next, 2)]);
    let failed = store.usage(Some(DEFAULT_TENANT), 0..=u64::MAX).await.unwrap();
    let failed: Vec<_> = failed.iter().map(|row| row.key.day).collect();
    assert_eq!(failed, [month + 1, month + 2], "nothing of it is lost");
    assert_eq!(store.health().outage(), None);
}

#[actix_web::test]
async fn a_day_of_more_tenants_than_a_page_holds_comes_in_several_pages() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let today = UnixMillis(Clock::start().unix_ms()).day();
    let mut rows = Vec::new();
    for number in 0..9 {
        let tenant = store.create_tenant(&format!("tenant {number}"), 1.0, UnixMillis(1)).await.unwrap().id;
        for (day, route) in [(today - 1, "sql"), (today, "cells"), (today, "sql")] {
            let key = UsageKey { tenant, day, model: "org/model-1.5".into(), route: route.into() };
            rows.push(UsageRow { key, used: Used { rows: number + 1, ..Used::default() } });
        }
    }
    let write = UsageWrite { writer: "another", number: 1, rows: &rows, at: UnixMillis(1) };
    store.add_usage(write).await.unwrap();
    let (_server, operator) = serve_operator(config(), store).await;
    let whole = operator.get("/v1/usage/tenants?days=3").await.json();
    let whole = whole["data"].as_array().unwrap();
    assert_eq!(whole.len(), 27);
    for most in [1, 4, 9, 18, 26, 27] {
        let (mut read, mut before) = (Vec::new(), String::new());
        loop {
            let page = operator.get(&format!("/v1/usage/tenants?days=3&rows={most}{before}")).await.json();
            let mut data = page["data"].as_array().unwrap().clone();
            assert!(data.len() <= most, "{most}: {page}");
            data.append(&mut read);
            read = data;
            let Some(cursor) = page["before"].as_str() else {
                assert_eq!(page["has_more"], false);
                break;
            };
            assert_eq!(page["has_more"], true);
            before = format!("&before={cursor}");
        }
        assert_eq!(read, *whole, "{most} at a time: each once, in order");
    }
    // A day alone is what `before` was when pages had whole days.
    let older = operator.get(&format!("/v1/usage/tenants?days=3&before={today}")).await.json();
    assert_eq!(older["data"].as_array().unwrap()[..], whole[..9]);
    for bad in ["x", "1.x.sql.m", "1.2.sql", ""] {
        let reply = operator.get(&format!("/v1/usage/tenants?before={bad}")).await;
        assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some("before")), "{bad}");
    }
}

#[actix_web::test]
async fn keys_and_tenants_come_in_pages_from_the_newest_back() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    for number in 0..5 {
        let name = format!("tenant {number}");
        let tenant = store.create_tenant(&name, 1.0, UnixMillis(1)).await.unwrap().id;
        let new = NewKey { tenant, name: &name, expires: None, is_operator: false, scope: KeyScope::ALL };
        let key = store.create_key(new, UnixMillis(1)).await.unwrap().info.id;
        if number == 3 {
            store.revoke_key(key, UnixMillis(2)).await.unwrap();
        }
    }
    let (_server, operator) = serve_operator(config(), store).await;
    let names = |list: &Value, field: &str| -> Vec<String> {
        list.as_array().unwrap().iter().map(|entry| entry[field].as_str().unwrap().to_owned()).collect()
    };
    for path in ["/v1/keys", "/v1/tenants"] {
        let whole = operator.get(path).await.json();
        assert_eq!((&whole["has_more"], &whole["before"]), (&json!(false), &Value::Null));
        let whole = &whole["data"];
        let count = whole.as_array().unwrap().len();
        for most in [1, 2, count - 1, count, count + 1] {
            let (mut read, mut before) = (Vec::new(), String::new());
            loop {
                let page = operator.get(&format!("{path}?rows={most}{before}")).await.json();
                let mut data = page["data"].as_array().unwrap().clone();
                assert!((1..=most).contains(&data.len()), "{most}: {page}");
                data.append(&mut read);
                read = data;
                let Some(cursor) = page["before"].as_u64() else {
                    assert_eq!(page["has_more"], false);
                    break;
                };
                assert_eq!((&page["has_more"], &page["before"]), (&json!(true), &page["data"][0]["id"]));
                before = format!("&before={cursor}");
            }
            assert_eq!(json!(read), *whole, "{most} at a time: each once, in order");
        }
        for (bad, param, wanted) in [
            ("rows=0", "rows", "an integer from 1 to 50000"),
            ("rows=50001", "rows", "an integer from 1 to 50000"),
            ("rows=x", "rows", "an integer from 1 to 50000"),
            ("before=x", "before", "must be a whole number"),
            ("before=-1", "before", "must be a whole number"),
            ("after=1", "query", "unknown field `after`"),
        ] {
            let reply = operator.get(&format!("{path}?{bad}")).await;
            assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some(param)), "{bad}");
            assert!(reply.error().contains(wanted), "{bad}: {}", reply.body);
        }
        let none = operator.get(&format!("{path}?before=1")).await.json();
        assert_eq!(none, json!({"object": "list", "data": [], "has_more": false, "before": null}));
    }
    let keys = operator.get("/v1/keys?rows=3&before=6").await.json();
    assert_eq!(names(&keys["data"], "tenant"), ["tenant 2", "tenant 3", "tenant 4"]);
    let tenants = operator.get("/v1/tenants").await.json();
    assert_eq!(names(&tenants["data"], "name")[..2], ["default", "tenant 0"]);
    let works: Vec<_> =
        tenants["data"].as_array().unwrap().iter().map(|tenant| tenant["keys"].as_u64().unwrap()).collect();
    assert_eq!(works, [2, 1, 1, 1, 0, 1], "revoked ones do not work");
}

#[actix_web::test]
async fn keys_of_one_tenant_and_a_tenant_of_a_name_are_listed_alone() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let acme = store.create_tenant("acme & co", 2.0, UnixMillis(1)).await.unwrap().id;
    for (tenant, name) in [(acme, "a"), (DEFAULT_TENANT, "b"), (acme, "c"), (acme, "d")] {
        let new = NewKey { tenant, name, expires: None, is_operator: false, scope: KeyScope::ALL };
        store.create_key(new, UnixMillis(1)).await.unwrap();
    }
    let (_server, operator) = serve_operator(config(), store).await;
    let page = operator.get("/v1/keys?tenant=acme%20%26%20co&rows=2").await.json();
    let names = |page: &Value| -> Vec<Value> {
        page["data"].as_array().unwrap().iter().map(|entry| entry["name"].clone()).collect()
    };
    assert_eq!((names(&page), &page["has_more"]), (vec![json!("c"), json!("d")], &json!(true)));
    let next = format!("/v1/keys?tenant=acme%20%26%20co&rows=2&before={}", page["before"]);
    let page = operator.get(&next).await.json();
    assert_eq!(
        (names(&page), &page["has_more"], &page["before"]),
        (vec![json!("a")], &json!(false), &Value::Null)
    );
    let page = operator.get("/v1/tenants?name=acme%20%26%20co").await.json();
    assert_eq!((names(&page), &page["has_more"]), (vec![json!("acme & co")], &json!(false)));
    assert_eq!((&page["data"][0]["keys"], &page["data"][0]["weight"]), (&json!(3), &json!(2.0)));
    let none = operator.get(&format!("/v1/tenants?name=acme%20%26%20co&before={}", acme.0)).await.json();
    assert_eq!(names(&none), Vec::<Value>::new());
    for (name, status) in [("acme", 404), ("", 404), ("%00", 400)] {
        let unknown = format!("/v1/keys?tenant={name}");
        assert_eq!(operator.get(&unknown).await.status, status, "{unknown}");
    }
    for wrong in ["/v1/keys?name=a&tenant=default", "/v1/tenants?tenant=acme", "/v1/tenants?name=%00"] {
        assert_eq!(operator.get(wrong).await.status, 400, "{wrong}");
    }
}

#[actix_web::test]
async fn a_list_has_a_thousand_of_many_where_nobody_says_how_many() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    for number in 0..1_000 {
        store.create_tenant(&format!("tenant {number}"), 1.0, UnixMillis(1)).await.unwrap();
    }
    let (_server, operator) = serve_operator(config(), store).await;
    let page = operator.get("/v1/tenants").await.json();
    assert_eq!((page["data"].as_array().unwrap().len(), &page["before"]), (1_000, &json!(2)));
    let rest = operator.get("/v1/tenants?before=2").await.json();
    assert_eq!((&rest["data"][0]["name"], &rest["has_more"]), (&json!("default"), &json!(false)));
}

/// A link's token, made as the program makes it at its terminal.
async fn token_of(store: &Store, is_operator: bool, span: Millis) -> String {
    let sign_in = SignIn { tenant: DEFAULT_TENANT, is_operator };
    sign_ins::create(store, sign_in, span, UnixMillis(Clock::start().unix_ms())).await.unwrap()
}

#[actix_web::test]
async fn a_link_signs_in_once_with_a_key_of_its_own() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let server = serve_on(config(), model(), store.clone()).await;
    let mut nobody = server.client.clone();
    nobody.key = None;
    let token = token_of(&store, true, Millis(60_000)).await;
    let body = json!({"token": token});
    let (one, other) = tokio::join!(nobody.post("/v1/sign-in", &body), nobody.post("/v1/sign-in", &body));
    let (good, bad) = if one.status == 200 { (one, other) } else { (other, one) };
    assert_eq!((good.status, bad.status), (200, 401), "once: {} {}", good.body, bad.body);
    assert_eq!(bad.json()["error"]["code"], "invalid_link");
    assert!(bad.error().contains("relserve sign-in"), "{}", bad.body);
    assert_eq!(good.header("cache-control"), Some("no-store"));
    let good = good.json();
    assert_eq!((&good["tenant"], &good["operator"]), (&json!("default"), &json!(true)));
    assert_ne!(good["key"], server.client.key.clone().unwrap(), "nobody else's key is given away");
    let signed_in = nobody.with_key(good["key"].as_str().unwrap());
    assert_eq!(signed_in.get("/v1/usage").await.status, 200);
    let keys = signed_in.get("/v1/keys").await.json();
    let last = keys["data"].as_array().unwrap().last().unwrap().clone();
    let lives = last["expires"].as_u64().unwrap() - last["created"].as_u64().unwrap();
    assert_eq!(lives, 30 * 86_400, "auth.sign_in_key_ms_max");

    let late = token_of(&store, false, Millis(0)).await;
    assert_eq!(nobody.post("/v1/sign-in", &json!({"token": late})).await.status, 401, "past its date");
    assert_eq!(nobody.post("/v1/sign-in", &json!({"token": "si-wrong"})).await.status, 401);
    let empty = nobody.post("/v1/sign-in", &json!({})).await;
    assert_eq!((empty.status, &empty.json()["error"]["param"]), (400, &json!("token")));
    assert_eq!(signed_in.with_key(&token).get("/v1/usage").await.status, 401, "a token is no key");
}

#[actix_web::test]
async fn keys_of_links_are_not_listed_for_ever() {
    let (_dir, store) = lasting_store().await;
    let server = serve_on(config(), model(), store.clone()).await;
    let token = token_of(&store, false, Millis(60_000)).await;
    let now = UnixMillis(Clock::start().unix_ms());
    let created = sign_ins::exchange(&store, &token, Millis(0), now).await.unwrap();
    let past = created.expect("the link is new").info.id;
    let listed = |keys: Vec<store::ListedKey>| keys.iter().any(|listed| listed.key.id == past);
    assert!(listed(store.keys(None, 9).await.unwrap()));
    server.running.drain(std::future::pending()).await;
    assert!(!listed(store.keys(None, 9).await.unwrap()), "upkeep has deleted it");
}

#[actix_web::test]
async fn who_is_not_known_yet_sends_little() {
    let server = crate::common::serve().await;
    let mut nobody = server.client.clone();
    nobody.key = None;
    let reply = nobody.post("/v1/sign-in", &json!({"token": "x".repeat(5_000)})).await;
    assert_eq!(reply.status, 413, "{}", reply.body);
    assert!(reply.error().contains("4096 bytes"), "{}", reply.body);
}

#[actix_web::test]
async fn an_operator_invites_somebody_to_a_tenant_by_a_link() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    store.create_tenant("acme", 1.0, UnixMillis(1)).await.unwrap();
    let (server, operator) = serve_operator(config(), store).await;
    let link = operator.post("/v1/sign-in/links", &json!({"tenant": "acme"})).await.json();
    assert_eq!(link["path"], json!(format!("/#sign-in={}", link["token"].as_str().unwrap())));
    let signed_in = server.client.post("/v1/sign-in", &json!({"token": link["token"]})).await.json();
    assert_eq!((&signed_in["tenant"], &signed_in["operator"]), (&json!("acme"), &json!(false)));
    let theirs = server.client.with_key(signed_in["key"].as_str().unwrap());
    assert_eq!((theirs.get("/v1/usage").await.status, theirs.get("/v1/keys").await.status), (200, 403));
    assert_eq!(operator.post("/v1/sign-in/links", &json!({"tenant": "nobody"})).await.status, 404);
}

#[actix_web::test]
async fn a_caller_learns_who_it_is() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let acme = store.create_tenant("acme", 1.0, UnixMillis(1)).await.unwrap().id;
    let key = crate::common::key_of(&store, acme).await;
    let (server, operator) = serve_operator(config(), store).await;
    let [own, theirs, desk] = [
        server.client.get("/v1/me").await,
        server.client.with_key(&key).get("/v1/me").await,
        operator.get("/v1/me").await,
    ]
    .map(|reply| reply.json());
    assert_eq!((&own["tenant"], &own["operator"]), (&json!("default"), &json!(false)));
    assert_eq!((&theirs["tenant"], &desk["operator"]), (&json!("acme"), &json!(true)));
    assert_eq!(own["workbooks"], desk["workbooks"]);
    assert_ne!(own["workbooks"], theirs["workbooks"], "each tenant has its own");
    let elsewhere = crate::common::serve().await.client.get("/v1/me").await.json();
    assert_ne!(own["workbooks"], elsewhere["workbooks"], "and each database");
    assert_eq!(server.client.with_key("rs-wrong").get("/v1/me").await.status, 401);
}
