//! The best order of fields that all rows share.
//!
//! With rows sorted by it, a fixed order reuses, field by field, what [`Scratch::gain`] counts in the groups
//! that the fields before it make; and those groups depend on which fields these are, not on their order. So
//! the best order of a set of fields ends in one of them, behind the best order of the others (Held and
//! Karp): a search over sets, not over orders. Left out are only sets that cannot be part of a better order:
//!
//! - a field that those placed determine goes next, for it then hits all that it can, and splits no group;
//! - a field that hits nothing behind those placed never will, for groups only get smaller;
//! - a set from which even all its open fields side by side would not beat the best order so far.

use std::collections::BTreeMap;

use super::fixed::with_order;
use super::order::{Reordering, worth};
use super::partition::{FieldGain, Partition, Scratch};
use super::table::FieldTable;

/// What the search for a fixed order may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedSearch {
    /// Most fields whose sets are all looked at. Of more fields, those that alone hit most; the others
    /// follow one by one, that which hits most next.
    pub fields_max: u32,
    /// Most cells looked at: the bound of time.
    pub cells_max: u64,
}

impl Default for FixedSearch {
    fn default() -> Self {
        Self { fields_max: 12, cells_max: 200_000_000 }
    }
}

/// A fixed order, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedOrder {
    /// All fields, first to last.
    pub fields: Vec<u16>,
    /// What neighbours share in rows sorted by them, in the table's unit of length.
    pub reused: u64,
    /// Whether no fixed order reuses more. False where there were too many fields or cells.
    pub is_exact: bool,
}

impl FixedOrder {
    /// The rows sorted by these fields.
    pub fn reordering(&self, table: &FieldTable) -> Reordering {
        with_order(table, &self.fields)
    }
}

/// The fixed order that reuses most: of equal ones, that which the search comes to first.
pub fn best_fixed_order(table: &FieldTable, limits: &FixedSearch) -> FixedOrder {
    let (scratch, best) = (Scratch::new(table), Placed::default());
    let mut search = SetSearch { table, scratch, limits, cells: 0, best };
    let whole = Partition::whole(table);
    let candidates = search.candidates(&whole);
    search.greedy(Placed::default(), whole.clone());
    let is_whole = search.sets(&candidates.considered, &whole);
    if !candidates.are_all {
        let begun = search.best.clone();
        let partition = begun.fields.iter().fold(whole, |rows, field| search.refine(&rows, *field));
        search.greedy(begun, partition);
    }
    let Placed { mut fields, reused } = search.best;
    let rest: Vec<u16> = table.fields().filter(|field| !fields.contains(field)).collect();
    fields.extend(rest);
    let is_exact = is_whole && candidates.are_all;
    // Where the search was cut short, fields that it did not place may hit too.
    let reused = if is_exact { reused } else { worth(table, &with_order(table, &fields)).reused };
    FixedOrder { fields, reused, is_exact }
}

/// Fields at the front of an order, and what they reuse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Placed {
    fields: Vec<u16>,
    reused: u64,
}

impl Placed {
    fn then(&self, field: u16, reused: u64) -> Self {
        let mut fields = self.fields.clone();
        fields.push(field);
        Self { fields, reused: self.reused + reused }
    }
}

/// Fields whose sets are looked at.
struct Candidates {
    considered: Vec<u16>,
    /// Whether no other field hits anything.
    are_all: bool,
}

struct SetSearch<'a> {
    table: &'a FieldTable,
    scratch: Scratch,
    limits: &'a FixedSearch,
    /// Cells looked at so far.
    cells: u64,
    /// The best so far.
    best: Placed,
}

impl SetSearch<'_> {
    fn gain(&mut self, partition: &Partition, field: u16) -> FieldGain {
        self.cells += partition.rows() as u64;
        self.scratch.gain(partition, self.table.column(field))
    }

    fn refine(&mut self, partition: &Partition, field: u16) -> Partition {
        self.cells += partition.rows() as u64;
        self.scratch.refine(partition, self.table.column(field))
    }

    /// Whether it has looked at all cells that it may.
    fn is_spent(&self) -> bool {
        self.cells > self.limits.cells_max
    }

    fn improve(&mut self, found: &Placed) {
        if found.reused > self.best.reused {
            self.best = found.clone();
        }
    }

    /// The fields that hit anything, and of too many those that hit most alone.
    fn candidates(&mut self, whole: &Partition) -> Candidates {
        let mut gains: Vec<(u16, FieldGain)> =
            self.table.fields().map(|field| (field, self.gain(whole, field))).collect();
        gains.retain(|(_, gain)| gain.reused > 0);
        gains.sort_by_key(|(field, gain)| (gain.splits, std::cmp::Reverse(gain.reused), *field));
        // A field of one value is placed without a choice, and so does not count.
        let constant = gains.iter().filter(|(_, gain)| !gain.splits).count();
        let most = constant + self.limits.fields_max.min(SET_FIELDS_MAX) as usize;
        let are_all = gains.len() <= most;
        let mut considered: Vec<u16> = gains.into_iter().take(most).map(|(field, _)| field).collect();
        considered.sort_unstable();
        Candidates { considered, are_all }
    }

    /// Goes on with the field that hits most next, until none hits. Only a field that determines nothing is
    /// asked again: gains fall from field to field, so that the greatest old one is an upper bound.
    fn greedy(&mut self, mut placed: Placed, mut partition: Partition) {
        let is_open = |field: &u16| !placed.fields.contains(field);
        let mut open: Vec<u16> = self.table.fields().filter(is_open).collect();
        let mut bounds: BTreeMap<u16, u64> = open.iter().map(|field| (*field, u64::MAX)).collect();
        while partition.rows() > 0 && !open.is_empty() && !self.is_spent() {
            open.sort_by_key(|field| (std::cmp::Reverse(bounds[field]), *field));
            let mut next: Option<(u16, u64)> = None;
            for field in open.clone() {
                if next.is_some_and(|(_, most)| bounds[&field] <= most) {
                    break;
                }
                let gain = self.gain(&partition, field).reused;
                bounds.insert(field, gain);
                if next.is_none_or(|(_, most)| gain > most) {
                    next = Some((field, gain));
                }
            }
            let Some((field, gain)) = next.filter(|(_, gain)| *gain > 0) else { break };
            placed = placed.then(field, gain);
            partition = self.refine(&partition, field);
            open.retain(|other| *other != field);
        }
        self.improve(&placed);
    }

    /// Looks at all sets of these fields, smaller ones first; whether it came to the end.
    fn sets(&mut self, considered: &[u16], whole: &Partition) -> bool {
        let mut layer = vec![Placed::default()];
        let mut known: BTreeMap<Vec<u16>, u64> = BTreeMap::new();
        while !layer.is_empty() {
            // Of neighbours in this order most fields are the same, and so are their partitions.
            layer.sort_unstable_by(|one, other| one.fields.cmp(&other.fields));
            let mut path: Vec<(u16, Partition)> = Vec::new();
            let mut next: BTreeMap<Vec<u16>, Placed> = BTreeMap::new();
            for placed in layer {
                if self.is_spent() {
                    return false;
                }
                self.walk(&mut path, &placed.fields, whole);
                let partition = path.last().map_or(whole, |(_, partition)| partition);
                for child in self.children(placed, partition, considered) {
                    let set = set_of(&child.fields);
                    if known.get(&set).is_some_and(|reused| *reused >= child.reused) {
                        continue;
                    }
                    known.insert(set.clone(), child.reused);
                    next.insert(set, child);
                }
            }
            layer = next.into_values().collect();
        }
        true
    }

    /// Brings `path` from the fields of one set to those of another.
    fn walk(&mut self, path: &mut Vec<(u16, Partition)>, fields: &[u16], whole: &Partition) {
        let shared = path.iter().zip(fields).take_while(|((placed, _), field)| placed == *field).count();
        path.truncate(shared);
        for field in &fields[shared..] {
            let partition = path.last().map_or(whole, |(_, partition)| partition);
            let refined = self.refine(partition, *field);
            path.push((*field, refined));
        }
    }

    /// A set with one field more, and with all that it determines; none where it cannot beat the best.
    fn children(&mut self, mut placed: Placed, partition: &Partition, considered: &[u16]) -> Vec<Placed> {
        let mut open = Vec::with_capacity(considered.len());
        for field in considered {
            if placed.fields.contains(field) {
                continue;
            }
            match self.gain(partition, *field) {
                FieldGain { reused: 0, .. } => {}
                FieldGain { reused, splits: false } => placed = placed.then(*field, reused),
                FieldGain { reused, splits: true } => open.push((*field, reused)),
            }
        }
        self.improve(&placed);
        let most = placed.reused + open.iter().map(|(_, reused)| reused).sum::<u64>();
        if most <= self.best.reused {
            return Vec::new();
        }
        open.into_iter().map(|(field, reused)| placed.then(field, reused)).collect()
    }
}

/// Most fields of sets, whatever is asked for: twice as many sets for each.
const SET_FIELDS_MAX: u32 = 16;

fn set_of(fields: &[u16]) -> Vec<u16> {
    let mut set = fields.to_vec();
    set.sort_unstable();
    set
}
