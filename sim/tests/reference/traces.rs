//! Seeded random traces for the comparison, each family made to strain one rule.

use sim::{Trace, TraceRelQuery, TraceTemplate};

use super::Machine;

/// What a trace strains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Much less memory than the load wants: eviction, preemption, recomputation.
    Shortage,
    /// The paper's shape: five tasks, up to 100 rows, memory for a few dozen of them.
    Paper,
    /// Few interactive rows beside large offline relQueries of another tenant.
    Tenants,
    /// Nearly everything is shared.
    Shared,
    /// Rows longer than a prefill step.
    Long,
    /// Few rows at work.
    FewSeats,
    /// Some rows have nothing of their own, so whole prompts repeat.
    Repeats,
}

impl Family {
    /// Families in which no prompt repeats whole.
    pub(crate) const DISTINCT: [Self; 6] =
        [Self::Shortage, Self::Paper, Self::Tenants, Self::Shared, Self::Long, Self::FewSeats];
}

/// A seeded source of numbers (xorshift64*).
struct Dice(u64);

impl Dice {
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        low + (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20) % (high - low + 1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.between(1, n) == 1
    }
}

/// The ranges a trace is drawn from.
struct Ranges {
    relqueries: u64,
    rows: u64,
    template: u64,
    group: u64,
    unique: (u64, u64),
    limit: u64,
    gap_us: u64,
}

/// A trace and the machine it is run on.
pub(crate) fn draw(family: Family, seed: u64) -> (Trace, Machine) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (family as u64 + 1) << 32 | 1);
    dice.between(0, 1);
    let mut machine = Machine::default();
    let usual = Ranges {
        relqueries: 14,
        rows: 12,
        template: 60,
        group: 60,
        unique: (1, 90),
        limit: 40,
        gap_us: 400_000,
    };
    let ranges = match family {
        Family::Shortage => {
            machine.cap = dice.between(600, 3_000);
            Ranges { rows: 20, limit: 60, ..usual }
        }
        Family::Paper => {
            machine.cap = 10_000;
            Ranges { rows: 60, unique: (30, 220), limit: 100, gap_us: 1_400_000, ..usual }
        }
        Family::Tenants => {
            machine.cap = dice.between(2_000, 8_000);
            Ranges { relqueries: 18, rows: 6, gap_us: 300_000, ..usual }
        }
        Family::Shared => {
            machine.cap = dice.between(600, 2_000);
            Ranges { rows: 25, group: 150, template: 120, unique: (1, 4), ..usual }
        }
        Family::Long => {
            machine.cap = dice.between(9_000, 14_000);
            Ranges { relqueries: 8, rows: 5, unique: (900, 3_500), group: 2_500, ..usual }
        }
        Family::Repeats => {
            machine.cap = dice.between(600, 2_000);
            Ranges { unique: (0, 2), template: 40, ..usual }
        }
        Family::FewSeats => {
            machine.mns = dice.between(1, 9) as usize;
            machine.mnbt = dice.between(200, 600);
            machine.cap = dice.between(800, 2_000);
            usual
        }
    };
    let templates: Vec<TraceTemplate> = (0..4)
        .map(|id| TraceTemplate { id, tokens: if id == 3 { 0 } else { dice.between(1, ranges.template) } })
        .collect();
    let mut arrival = 0;
    let mut relqueries = Vec::new();
    for rel_id in 0..ranges.relqueries {
        // Some arrive together.
        arrival += if dice.one_in(5) { 0 } else { dice.between(1, ranges.gap_us) };
        let is_offline = family == Family::Tenants && rel_id % 6 == 2;
        let mut relquery = draw_relquery(&mut dice, &ranges, if is_offline { 60 } else { ranges.rows });
        relquery.rel_id = rel_id;
        relquery.arrival = arrival as f64 / 1e6;
        relquery.tenant = if is_offline { "offline" } else { "online" }.to_owned();
        relqueries.push(relquery);
    }
    let trace = Trace {
        schema: "relserve-trace/1".into(),
        name: format!("{family:?} {seed}"),
        templates,
        relqueries,
        ..Trace::default()
    };
    (trace, machine)
}

fn draw_relquery(dice: &mut Dice, ranges: &Ranges, rows_max: u64) -> TraceRelQuery {
    let rows = dice.between(1, rows_max);
    let groups: Vec<u64> = (0..if dice.one_in(3) { 0 } else { rows.div_ceil(3) })
        .map(|_| dice.between(1, ranges.group))
        .collect();
    // A prompt has at least one token.
    let unique_min = if groups.is_empty() { ranges.unique.0.max(1) } else { ranges.unique.0 };
    let unique_max = ranges.unique.1.max(unique_min);
    let ol = dice.between(1, ranges.limit);
    let rows = (0..rows)
        .map(|_| {
            let group = if groups.is_empty() { -1 } else { dice.between(0, groups.len() as u64 - 1) as i64 };
            let (unique, out) = (dice.between(unique_min, unique_max), dice.between(1, ol));
            [group, unique as i64, out as i64]
        })
        .collect();
    TraceRelQuery {
        rel_id: 0,
        tenant: String::new(),
        arrival: 0.0,
        template_id: dice.between(0, 3),
        ol,
        groups,
        rows,
        ..TraceRelQuery::default()
    }
}

/// Two relQueries small enough to compute by hand.
pub(crate) fn by_hand() -> Trace {
    let relquery = |rel_id, arrival, ol, rows: &[[i64; 3]]| TraceRelQuery {
        rel_id,
        tenant: "a".to_owned(),
        arrival,
        template_id: 0,
        ol,
        groups: Vec::new(),
        rows: rows.to_vec(),
        ..TraceRelQuery::default()
    };
    Trace {
        schema: "relserve-trace/1".into(),
        name: "by hand".into(),
        templates: vec![TraceTemplate { id: 0, tokens: 40 }],
        relqueries: vec![relquery(0, 0.0, 5, &[[-1, 100, 3]; 3]), relquery(1, 0.01, 10, &[[-1, 60, 2]; 2])],
        ..Trace::default()
    }
}
