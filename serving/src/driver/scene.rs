//! What the loop shows of itself to those who look: queue and memory now and then, and all that waits to be told.

use super::Driver;
use crate::live::{Name, Scene};

impl Driver {
    /// Puts what there is to tell where readers find it. Never waits, and does nothing where there is nothing.
    pub(super) fn show(&mut self) {
        if self.shared.live.is_watched() {
            let now = self.shared.clock.now();
            if self.teller.wants_scene(now, self.flights.is_empty()) {
                let scene = self.scene(now);
                self.teller.seen(scene);
            }
        }
        self.teller.hand_over();
    }

    fn scene(&self, at: base::Time) -> Scene {
        let (stats, survey) = self.plant.survey(self.shared.live.settings().relqueries_max);
        let name = |id| match self.flights.get(&id) {
            Some(flight) => {
                Name { route: flight.account.route, request: flight.owner.as_ref().map(|board| board.id) }
            }
            None => Name { route: "", request: None },
        };
        let names = survey.relqueries.listed.iter().map(|standing| name(standing.id)).collect();
        Scene { at, stats, survey, names }
    }
}
