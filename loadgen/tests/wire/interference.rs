//! Few cells beside a column, against a server of a few lines.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use loadgen::client::ApiTarget;
use loadgen::interference::{Asking, Interference, InterferenceReport, measure};
use serde_json::{Value, json};

use crate::support::{Reply, Request, serve};

async fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> [ApiTarget; 2] {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    tokio::spawn(serve(listener, Arc::new(answer)));
    let target =
        |key: &str| ApiTarget::new(&url, Some(key.into()), Duration::from_secs(60)).expect("a client");
    [target("rs-few"), target("rs-column")]
}

/// All cells answered, at once or as a stream.
fn answered(request: &Request) -> Reply {
    let count = request.body["calls"].as_array().expect("calls").len();
    if request.body["stream"] == true {
        let cell =
            |index: usize| format!("event: cell\ndata: {{\"index\":{index},\"value\":\"positive\"}}\n\n");
        let cells: String = (0..count).map(cell).collect();
        return Reply::events(cells + "event: done\ndata: {\"status\":\"completed\"}\n\n");
    }
    let cells = vec![json!({"value": "negative"}); count];
    Reply::json(200, json!({"status": "completed", "cells": cells}))
}

const SMALL: Interference = Interference { rows: 40, cells: 5, rounds: 3, seed: 1 };

#[tokio::test]
async fn cells_are_asked_at_rest_and_beside_a_column_of_another_tenant_and_never_twice_the_same() {
    let seen: Arc<Mutex<Vec<(bool, Value)>>> = Arc::default();
    let log = Arc::clone(&seen);
    let [few, column] = start(move |request: &Request| {
        assert_eq!(request.path, "/v1/cells");
        let is_few = request.head.contains("bearer rs-few");
        log.lock().expect("sound").push((is_few, request.body.clone()));
        answered(request)
    })
    .await;
    let outcome = measure(&few, &column, SMALL).await.expect("measured");
    assert_eq!((outcome.idle.len(), outcome.busy.len(), outcome.rows), (3, 3, 40));
    // This server sends a column in one piece: nothing can be asked while it runs, and that is said.
    assert!(!outcome.is_sound() && outcome.ratio().is_none());
    assert!(outcome.text().contains("only 0 of 3"), "{}", outcome.text());
    let seen = seen.lock().expect("sound");
    let rows = |few: bool| seen.iter().filter(move |(is_few, _)| *is_few == few).map(|(_, body)| body);
    assert_eq!(
        rows(true).map(|body| body["calls"].as_array().expect("calls").len()).collect::<Vec<_>>(),
        [5; 7]
    );
    assert_eq!(
        rows(false).map(|body| body["calls"].as_array().expect("calls").len()).collect::<Vec<_>>(),
        [40; 2]
    );
    assert!(seen.iter().all(|(_, body)| body["cache"] == false));
    let mut texts: Vec<&Value> = seen
        .iter()
        .flat_map(|(_, body)| body["calls"].as_array().expect("calls"))
        .map(|call| &call["args"][0])
        .collect();
    let all = texts.len();
    texts.sort_by_key(|text| text.to_string());
    texts.dedup();
    assert_eq!(texts.len(), all, "no text twice");
}

#[tokio::test]
async fn a_cell_that_fails_ends_the_measurement() {
    for (part, broken) in [("quota", false), ("of the column failed", true)] {
        let [few, column] = start(move |request: &Request| {
            let error = "{\"error\":{\"message\":\"quota\"}}";
            match (broken, request.body["stream"] == true) {
                (false, false) => Reply::json(200, json!({"cells": [{"error": {"message": "quota"}}]})),
                (true, true) => Reply::events(format!("event: cell\ndata: {error}\n\n")),
                _ => answered(request),
            }
        })
        .await;
        let error = measure(&few, &column, SMALL).await.expect_err("it fails").to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn the_table_compares_medians_of_what_was_answered_while_the_column_ran() {
    let asked = |ms, after| Asking { ms, before: 10, after };
    let outcome = InterferenceReport {
        idle: vec![10.0, 30.0, 20.0],
        busy: vec![asked(60.0, 25), asked(50.0, 20), asked(40.0, 15)],
        column_alone_ms: 2_000.0,
        column_ms: 2_500.0,
        rows: 100,
        cells: 5,
    };
    assert!(outcome.is_sound());
    assert_eq!(outcome.ratio(), Some(2.5));
    let text = outcome.text();
    for part in [
        "5 cells, server at rest",
        "20.0     30.0",
        "50.0     60.0",
        "2.50",
        "10       15",
        "2.00 s alone, 2.50 s",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let late = InterferenceReport { busy: vec![asked(60.0, 25), asked(1.0, 100)], ..outcome };
    assert_eq!(
        (late.is_sound(), late.ratio()),
        (false, Some(3.0)),
        "what came after the column's end is no measure"
    );
}
