//! Two dashboards of eight tiles that are refreshed at once beside a bulk refresh: how long a tile waits.

use std::path::Path;

use futures_util::future::try_join_all;
use gateway::config::Config;
use scheduler::Policy;
use serde_json::{Value, json};

use super::super::BenchError;
use super::super::server::BenchServer;
use super::{SqlSizes, text};

const DASHBOARDS: u32 = 2;
const TILES: u32 = 8;
/// Tiles look at rows behind the first ones, up to here.
pub(super) const TILES_FROM: u32 = 1_000;

/// What one policy came to, in seconds.
struct RefreshTimes {
    mean: f64,
    longest: f64,
    bulk: f64,
}

pub(super) async fn measure(
    config: &Config,
    sizes: &SqlSizes,
    folder: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    say(&format!(
        "{DASHBOARDS} dashboards of {TILES} tiles, {} rows each, beside a bulk refresh of {} rows:",
        sizes.tile_rows, sizes.bulk_rows
    ));
    let mut means = Vec::new();
    for (name, policy) in [("marginal-work", Policy::MarginalWork), ("fcfs", Policy::Fcfs)] {
        let mut config = config.clone();
        config.scheduler.policy = policy;
        let server = BenchServer::start(config, folder, None).await?;
        let took = refresh(&server, sizes).await?;
        server.end().await;
        say(&format!(
            "{name:<15} tile {:.3} s on average, {:.3} s at most; bulk {:.3} s",
            took.mean, took.longest, took.bulk
        ));
        means.push(took.mean);
    }
    say(&format!("fcfs / marginal-work {:.2} (mean tile latency)", means[1] / means[0]));
    Ok(())
}

/// The bulk refresh; once its first row is out, all tiles.
async fn refresh(server: &BenchServer, sizes: &SqlSizes) -> Result<RefreshTimes, BenchError> {
    let rows: Vec<Value> = (1..=sizes.bulk_rows).map(|id| json!([text(id)])).collect();
    let bulk = json!({
        "template": "Overnight: what went wrong? {text}", "columns": ["text"], "rows": rows,
        "max_tokens": 8, "temperature": 0, "class": "bulk", "stream": true,
    });
    let tiles = std::cell::RefCell::new(Vec::new());
    let show = async || {
        let all = (0..DASHBOARDS * TILES).map(|number| tile(server, sizes, number));
        let took = try_join_all(all).await?;
        tiles.replace(took);
        Ok::<(), BenchError>(())
    };
    let bulk = server.post_and("/v1/relqueries", &bulk, show).await?.seconds;
    let tiles = tiles.into_inner();
    let mean = tiles.iter().sum::<f64>() / tiles.len().max(1) as f64;
    Ok(RefreshTimes { mean, longest: tiles.iter().copied().fold(0.0, f64::max), bulk })
}

/// One tile: how many rows say yes to a question of its own.
async fn tile(server: &BenchServer, sizes: &SqlSizes, number: u32) -> Result<f64, BenchError> {
    let from = number * sizes.tile_rows % TILES_FROM;
    let query = format!(
        "SELECT count(*) AS rows FROM texts WHERE id > {from} AND id <= {} \
         AND ai_if(text, 'tile {number}: was the parcel late?')",
        from + sizes.tile_rows
    );
    Ok(server.sql(&query, &json!({})).await?.seconds)
}
