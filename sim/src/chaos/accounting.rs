//! What the outside knows of each row: what it asked for, what it was told, and whether that adds up.

use std::collections::BTreeMap;

use base::{End, RelQueryId, RowError, Time, WorkItem};
use scheduler::Event;

use super::memory::token;

/// One row that was taken.
#[derive(Clone, Debug)]
pub(super) struct RowAccount {
    pub(super) seed: u64,
    pub(super) output_max: u64,
    pub(super) prompt: u64,
    /// Every step it is part of fails.
    pub(super) is_poison: bool,
    /// Its sampling fails.
    pub(super) is_broken: bool,
    /// Steps of it alone that failed.
    pub(super) alone: u32,
    /// Steps with it that lost the executor, and whether the last that failed was such a one, with nobody
    /// else in it.
    pub(super) losses: u32,
    pub(super) lost_alone: bool,
    /// The executor once forgot to answer for it.
    pub(super) was_missed: bool,
    /// Steps planned when it was taken.
    added: u64,
    has_started: bool,
    tokens: u64,
    has_ended: bool,
}

/// One relQuery that was taken and has not been told done.
#[derive(Clone, Debug)]
pub(super) struct OpenRelQuery {
    arrival: Time,
    pub(super) rows: BTreeMap<u32, RowAccount>,
}

/// What rows may fail of.
pub(super) const POISON: &str = "poison";
pub(super) const OUTAGE: &str = "outage";

/// Everything that is open.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounting {
    /// How often a step of one row alone must fail before the row does.
    pub(super) attempts_max: u32,
    pub(super) open: BTreeMap<RelQueryId, OpenRelQuery>,
    pub(super) rows_done: u64,
    pub(super) rows_failed: u64,
}

impl Accounting {
    /// Rows were taken; `odd` says whether one is poison and whether it is broken.
    pub(super) fn take(
        &mut self,
        id: RelQueryId,
        arrival: Time,
        items: &[WorkItem],
        added: u64,
        mut odd: impl FnMut() -> (bool, bool),
    ) {
        let open = self.open.entry(id).or_insert_with(|| OpenRelQuery { arrival, rows: BTreeMap::new() });
        for item in items {
            let (is_poison, is_broken) = odd();
            let row = RowAccount {
                seed: item.seed,
                output_max: item.generation.output_max.0,
                prompt: item.prompt.len() as u64,
                is_poison,
                is_broken,
                alone: 0,
                losses: 0,
                lost_alone: false,
                was_missed: false,
                added,
                has_started: false,
                tokens: 0,
                has_ended: false,
            };
            open.rows.insert(item.row, row);
        }
    }

    /// The open row with this seed.
    pub(super) fn row(&mut self, seed: u64) -> Option<&mut RowAccount> {
        let mut rows = self.open.values_mut().flat_map(|open| open.rows.values_mut());
        rows.find(|row| row.seed == seed && !row.has_ended)
    }

    /// A row was called off: nothing more is heard of it.
    pub(super) fn cancel_row(&mut self, id: RelQueryId, row: u32) -> Result<(), String> {
        let row = self.open.get_mut(&id).and_then(|open| open.rows.get_mut(&row));
        match row {
            Some(row) if !row.has_ended => row.has_ended = true,
            _ => return Err("a row that is not there was called off".into()),
        }
        Ok(())
    }

    /// Takes events in; says which relQueries had rows started.
    pub(super) fn note(&mut self, events: &[Event]) -> Result<Vec<RelQueryId>, String> {
        let mut started = Vec::new();
        for event in events {
            if let Event::RelQueryDone { relquery, .. } = event {
                let open = self.open.remove(relquery).ok_or(format!("relQuery {relquery} was done twice"))?;
                if open.rows.values().any(|row| !row.has_ended) {
                    return Err(format!("relQuery {relquery} is done, a row of it is not"));
                }
                continue;
            }
            self.note_row(event, &mut started).map_err(|wrong| format!("{wrong}: {event:?}"))?;
        }
        Ok(started)
    }

    fn note_row(&mut self, event: &Event, started: &mut Vec<RelQueryId>) -> Result<(), &'static str> {
        let (id, number) = match event {
            Event::Started { relquery, row } => (relquery, row),
            Event::Prompt { relquery, row, .. }
            | Event::Token { relquery, row, .. }
            | Event::Text { relquery, row, .. }
            | Event::RowDone { relquery, row, .. }
            | Event::RowFailed { relquery, row, .. } => (relquery, row),
            Event::RelQueryDone { .. } => return Ok(()),
        };
        let open = self.open.get_mut(id).ok_or("of a relQuery that has ended")?;
        let row = open.rows.get_mut(number).ok_or("of a row nobody submitted")?;
        if row.has_ended {
            return Err("after the row's end");
        }
        match event {
            Event::Started { .. } => {
                if std::mem::replace(&mut row.has_started, true) {
                    return Err("a second start");
                }
                started.push(*id);
            }
            Event::Token { token: reported, .. } => {
                if !row.has_started || *reported != token(row.seed, row.tokens as usize) {
                    return Err("a token out of turn");
                }
                row.tokens += 1;
            }
            Event::Prompt { .. } => return Err("likelihoods of a prompt that nobody asked for"),
            Event::Text { .. } => return Err("text without a token"),
            Event::RowDone { end, usage, .. } => {
                let is_full = row.tokens == row.output_max;
                if usage.output.0 != row.tokens || row.tokens == 0 || (*end == End::Length) != is_full {
                    return Err("an end that does not fit the tokens");
                }
                let (computed, cached) = (usage.computed.0, usage.cached.0);
                if usage.prompt.0 != row.prompt || cached >= row.prompt || computed + cached < row.prompt {
                    return Err("a usage that does not fit the prompt");
                }
                row.has_ended = true;
                self.rows_done += 1;
            }
            Event::RowFailed { error, .. } => {
                let deserved = match error {
                    RowError::NotANumber => row.is_broken,
                    RowError::Failed(reason) if reason.starts_with("quarantined") => {
                        row.losses >= 4 || row.losses >= 2 && row.lost_alone
                    }
                    RowError::Failed(reason) if reason == POISON => {
                        row.is_poison && row.alone >= self.attempts_max
                    }
                    RowError::Failed(reason) if reason == OUTAGE => row.alone >= self.attempts_max,
                    RowError::Failed(_) | RowError::Refused(_) => row.was_missed,
                };
                if !deserved {
                    return Err("a failure of a row with nothing wrong");
                }
                row.has_ended = true;
                self.rows_failed += 1;
            }
            Event::RelQueryDone { .. } => {}
        }
        Ok(())
    }

    /// First come, first served: while a row started, none waited that belongs to a relQuery before it.
    pub(super) fn check_in_order(&self, started: &[RelQueryId], step: u64) -> Result<(), String> {
        let Some(last) = started.iter().filter_map(|id| Some((self.open.get(id)?.arrival, *id))).max() else {
            return Ok(());
        };
        let before = self.open.iter().filter(|(id, open)| (open.arrival, **id) < last);
        for (id, open) in before {
            if open.rows.values().any(|row| !row.has_started && !row.has_ended && row.added < step) {
                return Err(format!("relQuery {} started a row before relQuery {id}", last.1));
            }
        }
        Ok(())
    }

    /// Rows that have not ended.
    pub(super) fn open_rows(&self) -> u64 {
        let rows = self.open.values().flat_map(|open| open.rows.values());
        rows.filter(|row| !row.has_ended).count() as u64
    }

    /// Steps that the open rows explain if each step brings one of them a token, or, where prompts are
    /// cut, computes at least one position of one.
    pub(super) fn steps_explained(&self, cuts: bool) -> u64 {
        let open = self.open.values().flat_map(|open| open.rows.values()).filter(|row| !row.has_ended);
        let steps = |row: &RowAccount| {
            let outputs = row.output_max - row.tokens;
            if cuts { outputs * (1 + row.prompt + row.output_max) } else { outputs }
        };
        open.map(steps).sum()
    }
}
