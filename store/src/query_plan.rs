//! What SQLite does for a statement: tests look there that it reads no more than it gives.

use crate::open::Store;

/// The steps of a statement's plan.
pub(crate) async fn plan_of(store: &Store, sql: &str) -> Vec<String> {
    let explained = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
    let steps: Vec<(i64, i64, i64, String)> =
        sqlx::query_as(explained).fetch_all(store.pool()).await.expect("explained");
    steps.into_iter().map(|(.., step)| step).collect()
}

/// Has each step that reads a table find its rows by an index, and none sort or gather them.
pub(crate) fn assert_reads_by_index(plan: &[String]) {
    let is_search = |step: &String| step.starts_with("SEARCH ") && step.contains(" INDEX ");
    assert!(plan.iter().all(is_search), "{plan:?}");
}
