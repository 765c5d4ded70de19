//! What is done when the local engine loses its device.

use base::Millis;
use serde::{Deserialize, Serialize};

use super::{InvalidConfig, invalid};

/// What is done when the local engine loses its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RestartConfig {
    /// Attempts in a row to load the model again that may fail before the engine counts as dead; 0: it is
    /// never loaded again.
    pub failures_max: u32,
    /// Pause after the first failed attempt, or after a fresh engine that ran nothing; it doubles with each
    /// in a row.
    pub pause_ms: Millis,
    /// The longest pause.
    pub pause_ms_max: Millis,
    /// Time for the lost engine to give its memory back before the model is loaded beside it.
    pub drop_ms_max: Millis,
    /// `/healthz` fails when an attempt takes longer.
    pub attempt_ms_max: Millis,
}

impl Default for RestartConfig {
    fn default() -> Self {
        Self {
            failures_max: 5,
            pause_ms: Millis(1_000),
            pause_ms_max: Millis(30_000),
            drop_ms_max: Millis(10_000),
            attempt_ms_max: Millis(600_000),
        }
    }
}

impl RestartConfig {
    /// Time to wait after so many troubles in a row.
    pub fn pause(&self, troubles: u32) -> Millis {
        match troubles.checked_sub(1) {
            None => Millis(0),
            Some(doubled) => {
                let factor = 1u64.checked_shl(doubled).unwrap_or(u64::MAX);
                Millis(self.pause_ms.0.saturating_mul(factor).min(self.pause_ms_max.0))
            }
        }
    }

    /// Refuses what could not work, and names the field.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        match self.attempt_ms_max.0 {
            0 => Err(invalid("restart.attempt_ms_max", "must be positive")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_with_each_trouble_up_to_the_longest() {
        let config = RestartConfig::default();
        let pauses: Vec<u64> = [0, 1, 2, 3, 6, 70, u32::MAX].map(|troubles| config.pause(troubles).0).into();
        assert_eq!(pauses, [0, 1_000, 2_000, 4_000, 30_000, 30_000, 30_000]);
    }
}
