//! When a relQuery has waited too long (RelServe, Eq. 13).

use base::{Millis, Nanos, Time};

/// The instant from which `unit_waiting_time(R) = waiting_time(R) / req(R_0)` exceeds `unit`
/// (RelServe, Eq. 13): an instant instead of a quotient per step, so that nobody scans the queue.
pub fn starves_at(arrival: Time, unit: Millis, rows: u64) -> Time {
    let span = Nanos::from(unit).0.saturating_mul(rows);
    arrival + Nanos(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relquery_of_many_rows_waits_longer_before_it_starves() {
        assert_eq!(starves_at(Time(5), Millis(2), 3), Time(6_000_005));
        assert_eq!(starves_at(Time(5), Millis(u64::MAX), 3), Time(u64::MAX));
    }
}
