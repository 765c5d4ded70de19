//! Seeded workloads in the shape of the paper's: 100 relQueries of 1..100 rows, five task types,
//! Poisson arrivals. Lengths only; the numbers are near Table 4 and no dataset's.

use crate::trace::{Template, Trace, TraceRelQuery};

/// The five task types: output limit and mean output of each (RelServe, section 5.1).
const TASKS: [(u64, u64); 5] = [(5, 3), (10, 4), (5, 3), (50, 30), (100, 50)];
/// Tokens of each task's template.
const TEMPLATE_TOKENS: u64 = 60;

/// The shape of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// How many relQueries.
    pub relqueries: usize,
    /// Most rows of one.
    pub rows_max: u64,
    /// Mean arrivals per second.
    pub rate: f64,
    /// Mean tokens of a row beside the template.
    pub row_tokens: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self { relqueries: 100, rows_max: 100, rate: 1.0, row_tokens: 150 }
    }
}

/// A seeded source of numbers (splitmix64): the same everywhere and for ever.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `low..=high`.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// In (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// A workload drawn from `seed`.
pub fn paper_like(seed: u64, shape: Shape) -> Trace {
    let mut draws = Draws(seed);
    let mut arrival = 0.0;
    let relqueries = (0..shape.relqueries)
        .map(|i| {
            let task = draws.between(0, TASKS.len() as u64 - 1);
            let relquery = draw_relquery(&mut draws, i as u64, task, arrival, shape);
            arrival += -draws.unit().ln() / shape.rate;
            relquery
        })
        .collect();
    Trace {
        schema: "relserve-trace/1".into(),
        name: format!("paper-like-{seed}"),
        templates: (0..TASKS.len() as u64).map(|id| Template { id, tokens: TEMPLATE_TOKENS }).collect(),
        relqueries,
    }
}

fn draw_relquery(draws: &mut Draws, rel_id: u64, task: u64, arrival: f64, shape: Shape) -> TraceRelQuery {
    let (ol, mean) = TASKS[task as usize];
    let rows = draws.between(1, shape.rows_max);
    // In 60 % of the relQueries the first field repeats over about four rows.
    let shares = draws.between(1, 10) <= 6;
    let groups: Vec<u64> = (0..if shares { rows.div_ceil(4) } else { 0 })
        .map(|_| draws.between(20, shape.row_tokens / 2 + 20))
        .collect();
    let rows = (0..rows)
        .map(|_| {
            let group = if shares { draws.between(0, groups.len() as u64 - 1) as i64 } else { -1 };
            let shared = usize::try_from(group).map_or(0, |group| groups[group]);
            let unique = draws.between(shape.row_tokens / 2, shape.row_tokens * 3 / 2);
            let unique = unique.saturating_sub(shared).max(5);
            let out = draws.between(1, (2 * mean - 1).min(ol));
            [group, unique as i64, out as i64]
        })
        .collect();
    TraceRelQuery {
        rel_id,
        tenant: "a".into(),
        arrival: (arrival * 1e6).round() / 1e6,
        template_id: task,
        ol,
        groups,
        rows,
    }
}
