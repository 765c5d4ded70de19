//! `relserve bench sql`: what the SQL layer costs and gains, each as a ratio of two measurements of one run.

mod dashboards;
mod overhead;
mod predicates;

use std::path::Path;

use gateway::config::Config;

use super::BenchError;
use super::server::{BenchServer, saying_anything};

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct SqlSizes {
    /// Only parts whose name has this in it: overhead, dashboards, predicates [default: all].
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,
    /// Rows of the column of which SQL is compared with HTTP.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    rows: u32,
    /// How often that column runs in each way; medians count.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Output tokens of its rows.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    output: u32,
    /// Rows of the statement whose first row is waited for: several windows.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    scanned_rows: u32,
    /// Rows of the bulk refresh beside the dashboards.
    #[arg(long, default_value_t = 3_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    bulk_rows: u32,
    /// Rows of a tile.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    tile_rows: u32,
    /// Rows that the three conditions are asked about.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    condition_rows: u32,
}

impl SqlSizes {
    fn has(&self, part: &str) -> bool {
        part.contains(&self.only)
    }
}

/// Runs the parts; each line is said as soon as it is known.
pub async fn measure(config: &Config, sizes: &SqlSizes, say: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    let config = &saying_anything(config);
    let folder = tempfile::tempdir().map_err(BenchError::file(Path::new("a temporary folder")))?;
    let rows = sizes.rows.max(dashboards::TILES_FROM + sizes.tile_rows);
    let table = BenchServer::tables(folder.path())?.join("texts.csv");
    let lines = (1..=rows).map(|id| format!("{id},{}\n", text(id))).collect::<String>();
    std::fs::write(&table, format!("id,text\n{lines}")).map_err(BenchError::file(&table))?;
    if sizes.has("overhead") {
        overhead::measure(config, sizes, folder.path(), say).await?;
    }
    if sizes.has("dashboards") {
        dashboards::measure(config, sizes, folder.path(), say).await?;
    }
    if sizes.has("predicates") {
        predicates::measure(sizes, say).await?;
    }
    Ok(())
}

/// The text of a row; no two are alike.
fn text(id: u32) -> String {
    format!(
        "parcel {id} came {} days late and the box was {}",
        id % 9,
        ["wet", "torn", "fine"][id as usize % 3]
    )
}

/// The one in the middle.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix_web::test]
    async fn each_part_says_its_ratio() {
        let sizes = SqlSizes {
            only: String::new(),
            rows: 40,
            rounds: 1,
            output: 2,
            scanned_rows: 5_000,
            bulk_rows: 60,
            tile_rows: 4,
            condition_rows: 400,
        };
        let mut lines = Vec::new();
        measure(&Config::default(), &sizes, &mut |line| lines.push(line.to_owned()))
            .await
            .expect("the demo model runs");
        let has = |what: &str| lines.iter().any(|line| line.contains(what));
        assert!(has("SQL / HTTP"), "{lines:#?}");
        assert!(has("of 5000 rows were scanned"), "{lines:#?}");
        assert!(has("fcfs / marginal-work"), "{lines:#?}");
        let calls = |name: &str| -> usize {
            let line = lines.iter().find_map(|line| line.strip_prefix(name)).expect("a line of that name");
            line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number of calls")
        };
        let [written, ours, best] = ["as written", "ours", "best by hindsight"].map(calls);
        assert!(ours < written, "{lines:#?}");
        assert!(ours * 100 <= best * 115, "a sample of the rows is what it costs to know: {lines:#?}");
    }
}
