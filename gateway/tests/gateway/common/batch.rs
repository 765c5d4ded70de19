//! Files and batches as a client makes and reads them.

use serde_json::{Value, json};

use super::client::{Client, Reply};

/// Between the parts of a form.
pub const BOUNDARY: &str = "a-boundary";

/// A form with these parts: name, file name, text.
pub fn form(parts: &[(&str, Option<&str>, &str)]) -> Vec<u8> {
    let parts: Vec<_> = parts.iter().map(|(name, file, text)| (*name, *file, text.as_bytes())).collect();
    form_of_bytes(&parts)
}

/// The same of bytes.
pub fn form_of_bytes(parts: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file, content) in parts {
        let file = file.map_or(String::new(), |file| format!("; filename=\"{file}\""));
        let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    body
}

pub async fn send(client: &Client, parts: &[(&str, Option<&str>, &str)]) -> Reply {
    send_form(client, &form(parts)).await
}

pub async fn send_form(client: &Client, form: &[u8]) -> Reply {
    send_form_to(client, "/v1/files", form).await
}

pub async fn send_form_to(client: &Client, path: &str, form: &[u8]) -> Reply {
    client.raw(&form_request(client, path, form)).await
}

/// The bytes of a request with a form.
pub fn form_request(client: &Client, path: &str, form: &[u8]) -> Vec<u8> {
    client.request("POST", path, &format!("multipart/form-data; boundary={BOUNDARY}"), form)
}

/// Uploads a file for a batch; its id.
pub async fn upload(client: &Client, text: &str) -> String {
    let reply = send(client, &[("purpose", None, "batch"), ("file", Some("in.jsonl"), text)]).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()["id"].as_str().unwrap().to_owned()
}

pub fn line(id: &str, body: Value) -> String {
    json!({"custom_id": id, "method": "POST", "url": "/v1/completions", "body": body}).to_string()
}

/// A line for each of these words, which is its answer.
pub fn lines(words: impl IntoIterator<Item = String>) -> String {
    let line = |word: String| {
        line(&format!("id of {word}"), json!({"prompt": format!("Say {word}"), "temperature": 0})) + "\n"
    };
    words.into_iter().map(line).collect()
}

/// Makes a batch of a file.
pub async fn make(client: &Client, file: &str) -> Value {
    let body = json!({"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"});
    let reply = client.post("/v1/batches", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

/// Looks at a batch until it is as expected.
pub async fn until(client: &Client, id: &str, expected: impl Fn(&Value) -> bool) -> Value {
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(2));
    for _ in 0..20_000 {
        looks.tick().await;
        let reply = client.get(&format!("/v1/batches/{id}")).await;
        // While a database is away there is nothing to see.
        let batch = reply.json();
        if reply.status == 200 && expected(&batch) {
            return batch;
        }
    }
    panic!("never as expected: {}", client.get(&format!("/v1/batches/{id}")).await.body);
}

pub async fn until_over(client: &Client, id: &str) -> Value {
    let words = ["completed", "failed", "cancelled", "expired"];
    until(client, id, |batch| words.contains(&batch["status"].as_str().unwrap())).await
}

/// The lines of a file: custom_id, and the answer's text or the error's message.
pub async fn read(client: &Client, file: &Value) -> Vec<(String, String)> {
    let Some(file) = file.as_str() else { return Vec::new() };
    let reply = client.get(&format!("/v1/files/{file}/content")).await;
    assert_eq!(reply.status, 200);
    let read = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let body = &line["response"]["body"];
        let text = body["choices"][0]["text"].as_str();
        let text = text.or(body["error"]["message"].as_str()).or(line["error"]["code"].as_str());
        (line["custom_id"].as_str().unwrap().to_owned(), text.unwrap_or_default().to_owned())
    };
    reply.body.lines().map(read).collect()
}
