//! What is held against the ledger once all faults are over: promises to their ends, usage, what processes hold and
//! what they said.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::judge::{BatchOutput, JudgedAnswer, output, reply, statement_rows};
use super::ledger::Promise;
use super::load::{ONCE, ROWS, RawReply, SharedLoad, path_of};
use super::process::IdleFootprint;
use super::request::{ChaosRequest, RequestKind};

pub(super) const COMPLETE: &str = "every ticket and batch is complete";
pub(super) const USAGE: &str = "usage is exact";
pub(super) const FLAT: &str = "memory and files are flat";
pub(super) const LIVES: &str = "no process ends, panics or stays busy";

/// Pause between two looks at what is promised.
const LOOK: Duration = Duration::from_millis(250);
/// Files that a process at rest may have open beyond those of its beginning: connections that are kept for reuse.
const FILES_MORE_MAX: u64 = 48;
/// Memory that it may hold beyond that of its beginning: caches that fill up to their bounds, and the allocator's own.
const RSS_MORE_MAX: u64 = 256 << 20;

/// How one look at a promise ended.
enum Look {
    Over,
    /// Not yet, or nobody can tell.
    Running,
}

/// What was checked, by promise.
pub(super) type Checked = BTreeMap<&'static str, u64>;

/// Follows everything that was promised to its end; what has none within the span is broken.
pub(super) async fn until_kept(load: &SharedLoad, batches: &mut Batches, span: Duration) {
    let deadline = Instant::now() + span;
    loop {
        let open: Vec<(usize, Promise)> = {
            let ledger = load.ledger();
            let open = ledger.promises.iter().cloned().enumerate();
            open.filter(|(_, promise)| promise.over.is_none()).collect()
        };
        if open.is_empty() {
            return;
        }
        for (place, promise) in &open {
            if let Look::Over = look(load, batches, promise).await {
                let now = load.now();
                load.ledger().promises[*place].over = Some(now);
            }
        }
        if Instant::now() > deadline {
            for (_, promise) in open {
                let what = format!("{} {} never ended", promise.request.kind.name(), promise.id);
                load.ledger().broke(COMPLETE, what);
            }
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What outputs of batches hold, by tenant.
pub(super) type Batches = BTreeMap<usize, BatchOutput>;

async fn look(load: &SharedLoad, batches: &mut Batches, promise: &Promise) -> Look {
    let request = &promise.request;
    let Some(reply) = get(load, request, &path_of(promise)).await else { return Look::Running };
    let broke = |promised, what: &str| {
        let what = format!("{} {}: {what}", request.kind.name(), promise.id);
        load.ledger().broke(promised, what);
        Look::Over
    };
    if reply.status == 404 {
        return broke(COMPLETE, "it was acknowledged and is not there");
    }
    let text = reply.text;
    let Ok(body) = serde_json::from_str::<Value>(&text) else { return Look::Running };
    if reply.status != 200 {
        return Look::Running;
    }
    match body["status"].as_str() {
        Some("running" | "partial" | "in_progress" | "validating" | "finalizing" | "cancelling") => {
            Look::Running
        }
        Some("cancelled") if promise.is_cancelled => match request.kind {
            RequestKind::Batch { .. } => batch(load, batches, promise, &body).await,
            _ => Look::Over,
        },
        Some("completed") => {
            let judged = match request.kind {
                RequestKind::Batch { .. } => return batch(load, batches, promise, &body).await,
                RequestKind::SqlTicket => {
                    let rows = body["rows"].as_array().map_or(&[][..], Vec::as_slice);
                    statement_rows(request, rows, body["first_row"].as_u64().unwrap_or_default())
                }
                _ => self::reply(request, &body),
            };
            match judged {
                Ok(JudgedAnswer::Whole { failed: 0 }) => Look::Over,
                Ok(answer) => broke(COMPLETE, &format!("{answer:?}: {text}")),
                Err(problem) => broke(ROWS, &problem),
            }
        }
        _ => broke(COMPLETE, &format!("it ended as {text}")),
    }
}

/// Holds a batch's files against its requests.
async fn batch(load: &SharedLoad, batches: &mut Batches, promise: &Promise, body: &Value) -> Look {
    let request = &promise.request;
    let read = async |file: &Value| match file.as_str() {
        Some(id) => get(load, request, &format!("/v1/files/{id}/content")).await.map(|reply| reply.text),
        None => Some(String::new()),
    };
    let (Some(lines), Some(errors)) =
        (read(&body["output_file_id"]).await, read(&body["error_file_id"]).await)
    else {
        return Look::Running;
    };
    let name = format!("batch {} of {}", request.number, promise.id);
    match output(request, &lines) {
        Ok(sum) => {
            if !promise.is_cancelled && (sum.lines != request.rows || !errors.is_empty()) {
                let what = format!("{name}: {} of {} lines; errors: {errors}", sum.lines, request.rows);
                load.ledger().broke(COMPLETE, what);
            }
            let all = batches.entry(request.tenant).or_default();
            all.lines += sum.lines;
            all.prompt_tokens += sum.prompt_tokens;
            all.completion_tokens += sum.completion_tokens;
        }
        Err(problem) => load.ledger().broke(ROWS, format!("{name}: {problem}")),
    }
    Look::Over
}

async fn get(load: &SharedLoad, request: &ChaosRequest, path: &str) -> Option<RawReply> {
    let target = load.target(request.tenant, request.gateway)?;
    load.read(request.tenant, target.get(path)).await.ok()
}

/// Each acknowledged batch is there once, whatever its request met; says how many were looked for.
pub(super) async fn batches_once(load: &SharedLoad) -> u64 {
    let mut looked = 0;
    for tenant in 0..load.tenants.len() {
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        let mut after = String::new();
        while let Some(target) = load.target(tenant, 0) {
            let page = load.read(tenant, target.get(&format!("/v1/batches?limit=100{after}"))).await;
            let page = page.ok().filter(|page| page.status == 200);
            let Some(page) = page.and_then(|page| serde_json::from_str::<Value>(&page.text).ok()) else {
                break;
            };
            for batch in page["data"].as_array().into_iter().flatten() {
                let number = batch["metadata"]["number"].as_str().unwrap_or_default();
                *found.entry(number.to_owned()).or_default() += 1;
            }
            match (page["has_more"].as_bool(), page["last_id"].as_str()) {
                (Some(true), Some(last)) => after = format!("&after={last}"),
                _ => break,
            }
        }
        let mut ledger = load.ledger();
        let acknowledged: Vec<String> = ledger
            .promises
            .iter()
            .filter(|promise| promise.request.tenant == tenant && promise.id.starts_with("batch_"))
            .map(|promise| promise.request.number.to_string())
            .collect();
        looked += acknowledged.len() as u64;
        for number in &acknowledged {
            found.entry(number.clone()).or_default();
        }
        for (number, count) in found {
            if count > 1 || count == 0 && acknowledged.contains(&number) {
                ledger.broke(ONCE, format!("batch {number} is there {count} times"));
            }
        }
    }
    looked
}

/// What usage says of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    batches: BatchOutput,
    /// Rows of all other routes.
    rows: u64,
}

/// Holds usage against what was delivered and recorded. It is written a while after that: what is too little is looked
/// at again until the span is over.
pub(super) async fn usage(load: &SharedLoad, batches: &Batches, span: Duration) -> Vec<String> {
    let deadline = Instant::now() + span;
    let mut lines = Vec::new();
    for (tenant, named) in load.tenants.iter().enumerate() {
        let exact = batches.get(&tenant).copied().unwrap_or_default();
        let uncertain = load.ledger().bounds(tenant, load.now());
        let is_batch = |kind| matches!(kind, RequestKind::Batch { .. });
        let called_off = load.ledger().called_off(tenant, load.now(), is_batch);
        let (recorded, counted) = loop {
            // Rows of a ticket that was called off may still come: with their usage, so the rows are looked at first.
            let recorded = ticket_rows(load, tenant).await;
            let counted = counted(load, tenant).await;
            let is_enough = recorded.zip(counted).is_some_and(|(recorded, counted)| {
                uncertain.with(recorded).holds(counted.rows) && counted.batches.lines >= exact.lines
            });
            if is_enough || Instant::now() > deadline {
                break (recorded.unwrap_or_default(), counted.unwrap_or_default());
            }
            tokio::time::sleep(LOOK).await;
        };
        let bounds = uncertain.with(recorded);
        if !counted.batches.is_of(exact, called_off) {
            let what = format!(
                "{}: batches have {exact:?}, at most {called_off} rows more were called off, usage {:?}",
                named.name, counted.batches
            );
            load.ledger().broke(USAGE, what);
        }
        if !bounds.holds(counted.rows) {
            let what = format!("{}: {} rows, and there were {bounds:?}", named.name, counted.rows);
            load.ledger().broke(USAGE, what);
        }
        lines.push(format!(
            "{}: {} rows of batches, of {} and at most {called_off} that were called off; {} others, of {} to {}, with \
             {recorded} of tickets",
            named.name, counted.batches.lines, exact.lines, counted.rows, bounds.least, bounds.most
        ));
    }
    lines
}

/// Rows that a tenant's tickets of relQueries have: all of them, but for those that were called off. `None`: nobody can
/// tell now.
async fn ticket_rows(load: &SharedLoad, tenant: usize) -> Option<u64> {
    let tickets: Vec<Promise> = load.ledger().tickets(tenant).cloned().collect();
    let mut rows = 0;
    for ticket in &tickets {
        rows += match ticket.is_cancelled {
            false => ticket.request.rows,
            true => {
                let reply = get(load, &ticket.request, &path_of(ticket)).await?;
                answered_rows(&serde_json::from_str(&reply.text).ok()?)?
            }
        };
    }
    Some(rows)
}

/// Rows of a reply that have ended.
fn answered_rows(reply: &Value) -> Option<u64> {
    let rows = reply["rows"].as_array()?.iter();
    Some(rows.filter(|row| row["text"].is_string() || row["error"].is_object()).count() as u64)
}

async fn counted(load: &SharedLoad, tenant: usize) -> Option<Counted> {
    let target = load.target(tenant, 0)?;
    let reply = load.read(tenant, target.get("/v1/usage?days=3")).await.ok()?;
    let body: Value = serde_json::from_str(&reply.text).ok()?;
    let mut counted = Counted::default();
    for sum in body["data"].as_array()? {
        let of = |name: &str| sum[name].as_u64().unwrap_or_default();
        match sum["route"].as_str() {
            Some("batches") => {
                counted.batches.lines += of("rows");
                counted.batches.prompt_tokens += of("prompt_tokens");
                counted.batches.completion_tokens += of("completion_tokens");
            }
            _ => counted.rows += of("rows"),
        }
    }
    Some(counted)
}

/// Holds what processes hold at rest against what they held at their beginning. Connections that are not used any more
/// close by themselves, after a while: what is too much is looked at again until the span is over.
pub(super) async fn flat(
    load: &SharedLoad,
    before: &[(String, IdleFootprint)],
    now: impl Fn() -> Vec<(String, IdleFootprint)>,
    span: Duration,
) -> Vec<String> {
    let deadline = Instant::now() + span;
    loop {
        let after = now();
        let pairs: Vec<(&str, IdleFootprint, IdleFootprint)> = before
            .iter()
            .zip(&after)
            .map(|((name, before), (_, after))| (name.as_str(), *before, *after))
            .collect();
        let grown: Vec<_> = pairs.iter().filter(|(_, before, after)| has_grown(*before, *after)).collect();
        if !grown.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        for (name, before, after) in grown {
            load.ledger().broke(FLAT, format!("{name}: {before:?}, then {after:?}"));
        }
        let shown = |(name, before, after): (&str, IdleFootprint, IdleFootprint)| {
            let [was, is] = [before, after].map(|held| held.rss_bytes >> 20);
            format!("{name}: {was} to {is} MiB, {} to {} files", before.files, after.files)
        };
        return pairs.into_iter().map(shown).collect();
    }
}

fn has_grown(before: IdleFootprint, after: IdleFootprint) -> bool {
    after.rss_bytes > before.rss_bytes + RSS_MORE_MAX || after.files > before.files + FILES_MORE_MAX
}

/// Lines of a log that no fault excuses.
pub(super) fn panics(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains("panicked at")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_beyond_its_bound_is_seen_and_caches_are_not() {
        let before = IdleFootprint { rss_bytes: 100 << 20, files: 80 };
        assert!(!has_grown(before, IdleFootprint { rss_bytes: 300 << 20, files: 120 }));
        assert!(has_grown(before, IdleFootprint { files: 129, ..before }));
        assert!(has_grown(before, IdleFootprint { rss_bytes: 357 << 20, ..before }));
    }

    #[test]
    fn of_a_ticket_rows_count_that_have_ended() {
        let reply = serde_json::json!({"rows": [
            {"index": 0, "text": "yes"}, {"index": 1, "pending": true}, {"index": 2, "error": {"message": "no"}}
        ]});
        assert_eq!(answered_rows(&reply), Some(2));
        assert_eq!(answered_rows(&serde_json::json!({"error": {"message": "no"}})), None);
    }

    #[test]
    fn a_panic_is_found_in_a_log() {
        let log = "INFO a\nthread 'loop' panicked at serving/src/x.rs:1:2:\nboom\n";
        assert_eq!(panics(log), ["thread 'loop' panicked at serving/src/x.rs:1:2:"]);
        assert_eq!(panics("INFO nobody panics\n"), Vec::<&str>::new());
    }
}
