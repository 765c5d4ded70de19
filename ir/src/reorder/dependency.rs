//! Functional dependencies between fields: declared by the caller or found in the data, and in both
//! cases checked against every row.
//!
//! A dependency only steers the greedy choice (section 4.2.1). No solver's count rests on one, so that a
//! dependency of another table makes a schedule worse, never a claim false.

use super::table::FieldTable;

/// Rows that agree in `determinant` agree in `dependent`. The paper's `X <-> Y` is a pair of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// The field whose value says the other's.
    pub determinant: u16,
    /// The field whose value is said.
    pub dependent: u16,
}

impl Dependency {
    /// Every pair of these fields, both ways: each says all others.
    pub fn mutual(fields: &[u16]) -> Vec<Self> {
        let pairs = fields.iter().flat_map(|a| fields.iter().map(move |b| (*a, *b)));
        let pairs = pairs.filter(|(a, b)| a != b);
        pairs.map(|(determinant, dependent)| Self { determinant, dependent }).collect()
    }
}

/// Dependencies that hold in a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Sorted and distinct.
    pairs: Vec<Dependency>,
    /// Whether every pair of fields was looked at.
    complete: bool,
}

impl Dependencies {
    /// Cells to compare at most where nobody says otherwise: a tenth of a second, for tables that are refused
    /// for other reasons before they are much larger.
    pub const CELLS_MAX: u64 = 100_000_000;

    /// None: GGR then scores every value by itself.
    pub fn none() -> Self {
        Self::default()
    }

    /// The declared dependencies that hold in every row, and those that do not.
    pub fn verify(table: &FieldTable, declared: &[Dependency]) -> (Self, Vec<Dependency>) {
        let (mut pairs, refused): (Vec<_>, Vec<_>) =
            declared.iter().partition(|pair| holds(table, **pair, &mut 0));
        pairs.sort_unstable();
        pairs.dedup();
        (Self { pairs, complete: false }, refused)
    }

    /// All dependencies between two fields that hold in every row, in field order until `cells_max` cells
    /// were compared. Those of a field without a repeated value are left out: they hold, and say nothing.
    pub fn discover(table: &FieldTable, cells_max: u64) -> Self {
        let mut compared = 0;
        let mut found = Self { pairs: Vec::new(), complete: true };
        for determinant in table.fields().filter(|field| repeats(table, *field)) {
            for dependent in table.fields().filter(|field| *field != determinant) {
                if compared >= cells_max {
                    found.complete = false;
                    return found;
                }
                let pair = Dependency { determinant, dependent };
                if holds(table, pair, &mut compared) {
                    found.pairs.push(pair);
                }
            }
        }
        found
    }

    /// The dependencies, sorted.
    pub fn pairs(&self) -> &[Dependency] {
        &self.pairs
    }

    /// Whether these are all that the table has: discovery was not stopped by its bound.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Per field of the table, the fields that it determines.
    pub(super) fn by_determinant(&self, table: &FieldTable) -> Vec<Vec<u16>> {
        let mut dependents = vec![Vec::new(); table.columns().len()];
        for pair in &self.pairs {
            if let Some(list) = dependents.get_mut(usize::from(pair.determinant)) {
                list.push(pair.dependent);
            }
        }
        dependents
    }
}

fn repeats(table: &FieldTable, field: u16) -> bool {
    table.column(field).distinct() < table.rows() as usize
}

/// Whether a dependency holds in every row; adds the cells that were looked at to `compared`.
fn holds(table: &FieldTable, pair: Dependency, compared: &mut u64) -> bool {
    let columns = table.columns();
    let (Some(from), Some(to)) =
        (columns.get(usize::from(pair.determinant)), columns.get(usize::from(pair.dependent)))
    else {
        return false;
    };
    *compared += 1;
    // What determines another field has at least as many values.
    if from.distinct() < to.distinct() {
        return false;
    }
    // Per value of the determinant, the row that showed it first: values are numbered by first sight.
    let mut determined: Vec<u32> = Vec::with_capacity(from.distinct());
    for (value, other) in from.values.iter().zip(&to.values) {
        *compared += 1;
        match determined.get(*value as usize) {
            Some(first) if first != other => return false,
            Some(_) => {}
            None => determined.push(*other),
        }
    }
    true
}
