//! The texts of the 16 queries (`sql/queries`), and which tables they read.

/// A query of the paper.
pub(super) struct SuiteQuery {
    pub(super) name: &'static str,
    /// The table that it reads.
    pub(super) table: &'static str,
    pub(super) text: &'static str,
}

macro_rules! queries {
    ($($name:literal $table:literal),* $(,)?) => {
        [$(SuiteQuery {
            name: $name,
            table: $table,
            text: include_str!(concat!("../../../../sql/queries/", $name, ".sql")),
        }),*]
    };
}

/// All of them, in the paper's order.
pub(super) static SUITE: [SuiteQuery; 16] = queries![
    "filter_movies" "movies",
    "filter_products" "products",
    "filter_bird" "bird",
    "filter_pdmx" "pdmx",
    "filter_beer" "beer",
    "projection_movies" "movies",
    "projection_products" "products",
    "projection_bird" "bird",
    "projection_pdmx" "pdmx",
    "projection_beer" "beer",
    "multi_movies" "movies",
    "multi_products" "products",
    "aggregation_movies" "movies",
    "aggregation_products" "products",
    "rag_squad" "squad",
    "rag_fever" "fever",
];

impl SuiteQuery {
    /// Its type in the paper, which its first line says.
    pub(super) fn kind(&self) -> &'static str {
        self.text.trim_start_matches("-- ").split(',').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_is_that_of_the_paper() {
        let count = |kind: &str| SUITE.iter().filter(|query| query.kind() == kind).count();
        assert_eq!(["T1", "T2", "T3", "T4", "T5"].map(count), [5, 5, 2, 2, 2]);
        for query in &SUITE {
            assert!(query.text.contains(&format!("FROM {}", query.table)), "{}", query.name);
            let calls = if query.kind() == "T3" { 2 } else { 1 };
            assert_eq!(query.text.matches("(prompt(").count(), calls, "{}", query.name);
        }
    }
}
