//! Pins: independent sections whose blocks are held whoever reads them (Prompt Cache, section 4.1).
//!
//! A pin takes over what the rows of its relQueries leave of their independent sections when they end. All
//! pins together hold a bounded share of the pool: beyond it the oldest gives way, and so it does where no
//! row could run otherwise. Who asked for a pin hears of its loss, and may have its sections computed again.

use std::collections::{BTreeMap, BTreeSet};

use base::{BlockId, PinId, RelQueryId, Sees};

use crate::Scheduler;
use crate::cache_view::CacheView;
use crate::kv::{BlockPlace, Ledger};

/// All pins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pins {
    /// The blocks of each, oldest first: ids only grow.
    held: BTreeMap<PinId, BTreeSet<BlockId>>,
    /// Pins that gave way since this was last taken.
    lost: Vec<PinId>,
    /// Blocks of all; one of two pins counts twice.
    blocks: u32,
}

impl Pins {
    /// Blocks of all pins, one for each pin that holds it.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.held.values().flatten().copied()
    }

    /// How many those are.
    pub(crate) fn len(&self) -> u32 {
        self.blocks
    }

    /// Gives up a pin's blocks.
    fn release(&mut self, pin: PinId, ledger: &mut Ledger) -> bool {
        let Some(blocks) = self.held.remove(&pin) else { return false };
        self.blocks -= blocks.len() as u32;
        // As of a row: what comes later in a section grows old before what it stands on.
        blocks.into_iter().rev().for_each(|block| ledger.release(block));
        true
    }

    /// Gives up the oldest pin that holds anything.
    fn release_oldest(&mut self, ledger: &mut Ledger) -> bool {
        let oldest = self.held.iter().find(|(_, blocks)| !blocks.is_empty()).map(|(pin, _)| *pin);
        let Some(oldest) = oldest else { return false };
        self.lost.push(oldest);
        self.release(oldest, ledger)
    }
}

impl Scheduler {
    /// Has a pin hold the independent sections of a relQuery's rows, each from its row's end on. False: there
    /// is no such relQuery (any more).
    pub fn pin(&mut self, id: RelQueryId, pin: PinId) -> bool {
        let Some(relquery) = self.relqueries.get_mut(&id) else { return false };
        relquery.pin = Some(pin);
        self.kv.pins.held.entry(pin).or_default();
        true
    }

    /// Lets a pin go. What it held can still be hit, until its memory is needed.
    pub fn unpin(&mut self, pin: PinId) -> bool {
        self.kv.pins.release(pin, &mut self.kv.ledger)
    }

    /// Blocks that a pin holds; `None` where there is no such pin (any more).
    pub fn pinned(&self, pin: PinId) -> Option<u32> {
        self.kv.pins.held.get(&pin).map(|blocks| blocks.len() as u32)
    }

    /// Pins that gave way since this was last asked: they are gone.
    pub fn drain_lost_pins(&mut self) -> Vec<PinId> {
        std::mem::take(&mut self.kv.pins.lost)
    }

    /// A row ends well: its relQuery's pin, if it has one, holds its independent sections.
    pub(crate) fn keep_sections(&mut self, id: RelQueryId, index: u32) {
        let Some(relquery) = self.relqueries.get_mut(&id) else { return };
        let Some(pin) = relquery.pin else { return };
        let Some(held) = self.kv.pins.held.get_mut(&pin) else { return };
        let scope = relquery.scope;
        let row = relquery.row_mut(index);
        let view = CacheView::new(&self.kv.ledger, &self.kv.hasher, &self.config);
        // What others can hit, which need not be what the row holds.
        let mut found = Vec::new();
        for number in 0..row.parts.len() {
            if row.parts[number].section.sees != Sees::Before {
                view.resident(scope, row, number, |place| {
                    // What has left the pool is not held.
                    if let BlockPlace::Device(block) = place {
                        found.push(block);
                    }
                });
            }
        }
        for block in found {
            if held.insert(block) {
                self.kv.ledger.hold(block);
                self.kv.pins.blocks += 1;
            }
        }
        while self.kv.pins.blocks > self.config.pinned_blocks_max() {
            self.release_oldest_pin();
        }
    }

    /// The oldest pin gives way. False: there is none.
    pub(crate) fn release_oldest_pin(&mut self) -> bool {
        self.kv.pins.release_oldest(&mut self.kv.ledger)
    }

    /// All pins give way: what they held is gone.
    pub(crate) fn release_all_pins(&mut self) {
        while self.release_oldest_pin() {}
    }
}
