//! RelQueries over the wire: rows in, rows out.

use crate::common::{serve, serve_with};
use serde_json::json;

#[actix_web::test]
async fn rows_come_back_in_input_order_with_their_usage() {
    let server = serve().await;
    let body = json!({"template": "Say {word}", "rows": [["one"], ["two"], ["three"]]});
    let reply = server.relquery(body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let json = reply.json();
    assert_eq!(json["object"], "relquery");
    assert_eq!(json["status"], "completed");
    let texts: Vec<_> = json["rows"].as_array().unwrap().iter().map(|row| row["text"].clone()).collect();
    assert_eq!(texts, ["one", "two", "three"]);
    assert_eq!(json["rows"][2]["index"], 2);
    assert_eq!(json["rows"][2]["finish_reason"], "stop");
    assert_eq!(json["rows"][2]["usage"]["prompt_tokens"], 9);
    assert_eq!(json["progress"], json!({"total": 3, "done": 3, "failed": 0}));
    assert_eq!(json["usage"]["prompt_tokens"], 7 + 7 + 9);
    assert!(json["timing"]["total_ms"].as_f64().unwrap() > 0.0);
    assert!(json.get("ticket").is_none());
}
