//! `relserve calibrate`: the cost model of a model on this machine.

use gateway::config::Config;
use serving::clock::Clock;
use serving::load;

use super::measured::Measured;
use super::{Failure, say};

/// Measures and prints.
pub(crate) fn run(measured: Measured, config: Config) -> Result<(), Failure> {
    let config = measured.apply(config);
    let mut engine = load::load(config.backend())?;
    let model = load::model_of(&engine, config.backend(), Clock::start());
    say!("{}: {}", model.name, model.description);
    say!("{}", serving::calibrate::measure(&mut engine.executor, &model)?.text());
    Ok(())
}
