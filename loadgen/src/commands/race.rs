//! `loadgen race`: servers on the same relQueries, one after another.

use loadgen::Error;
use loadgen::contest::Contest;
use loadgen::race::{Lap, TableStyle, race, table};

use super::files::{create_folder, load, read_json, write_json};
use super::print;
use crate::cli::RaceArguments;

pub(super) async fn perform(arguments: RaceArguments) -> Result<bool, Error> {
    let RaceArguments { scenario, servers, table: kept, rounds, out } = arguments;
    let (Some(scenario), Some(servers)) = (scenario, servers) else {
        let mut laps: Vec<Lap> = Vec::new();
        for file in kept.unwrap_or_default() {
            laps.extend(read_json::<Vec<Lap>>(&file)?);
        }
        print(&table(&laps, TableStyle::Markdown));
        return Ok(true);
    };
    let (scenario, trace) = load(&scenario, None)?;
    let contest = Contest::load(&servers)?;
    create_folder(&out)?;
    let tell = |lap: &Lap| {
        eprintln!("round {}, {}: {:.0} ms", lap.round, lap.server, lap.total_ms);
    };
    let laps = race(&contest, &scenario, &trace, rounds, tell).await?;
    write_json(&out.join("race.json"), &laps)?;
    print(&table(&laps, TableStyle::Text));
    Ok(laps.iter().all(|lap| lap.failed.is_none()))
}
