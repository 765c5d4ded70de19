//! Rows and fields of a stretch of the table, ordered before they are cut into requests.
//!
//! A request of 64 rows that happen to begin alike says little of how their fields had better stand; a window
//! of thousands does. While the rows of one window are sent, the next is read. This must not know what is
//! sent of a row beside its cells, nor the model: lengths are in characters.

use std::collections::VecDeque;

use ir::bucket::BucketSettings;
use ir::{Cell, Table, TableRow, Template};
use serde_json::{Map, Value};

use super::Failure;

/// A row whose fields have an order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WindowRow<T> {
    /// What it came with.
    pub(super) row: T,
    /// Its cells by column, in the order in which they are to stand.
    pub(super) sent: Value,
}

/// A row that waits for the rest of its window.
struct UnorderedRow<T> {
    row: T,
    cells: Vec<Value>,
}

/// What rows are ordered by.
#[derive(Clone)]
struct WindowOrder {
    template: Template,
    columns: Vec<String>,
    dependencies: Vec<Vec<String>>,
}

/// The window that is read, and what is left of the one before.
pub(super) struct Window<T> {
    ordering: WindowOrder,
    settings: BucketSettings,
    waiting: Vec<UnorderedRow<T>>,
    /// Bytes of the rows that wait.
    bytes: u64,
    ready: VecDeque<WindowRow<T>>,
}

impl<T: Send + 'static> Window<T> {
    /// An empty one, for rows with these columns. Of the settings it keeps to the rows and bytes held.
    pub(super) fn new(
        template: Template,
        columns: Vec<String>,
        dependencies: Vec<Vec<String>>,
        settings: BucketSettings,
    ) -> Self {
        let ordering = WindowOrder { template, columns, dependencies };
        Self { ordering, settings, waiting: Vec::new(), bytes: 0, ready: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.ready.is_empty()
    }

    /// Whether no row should come before some have left.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= self.settings.rows_max || self.bytes >= self.settings.bytes_max
    }

    pub(super) fn push(&mut self, bytes: u64, cells: Vec<Value>, row: T) {
        self.bytes += bytes;
        self.waiting.push(UnorderedRow { row, cells });
    }

    /// The next rows, at most `limit`. Where all rows of a window have left, the next is ordered first, if it
    /// is full or `is_read`: no further row comes.
    pub(super) async fn pop(
        &mut self,
        limit: usize,
        is_read: bool,
    ) -> Result<Option<Vec<WindowRow<T>>>, Failure> {
        if self.ready.is_empty() && !self.waiting.is_empty() && (is_read || self.is_full()) {
            let (ordering, waiting) = (self.ordering.clone(), std::mem::take(&mut self.waiting));
            self.bytes = 0;
            self.ready = tokio::task::spawn_blocking(move || ordered(&ordering, waiting)).await?;
        }
        let rows: Vec<_> = self.ready.drain(..limit.min(self.ready.len())).collect();
        Ok((!rows.is_empty()).then_some(rows))
    }
}

/// The rows in the order in which they are to run, each with its cells in theirs.
fn ordered<T>(ordering: &WindowOrder, rows: Vec<UnorderedRow<T>>) -> VecDeque<WindowRow<T>> {
    let WindowOrder { template, columns, dependencies } = ordering;
    // The server has its own word for a cell that is no cell.
    let cell =
        |value: &Value| Cell::from_json(value).unwrap_or_else(|| Cell::from(value.to_string().as_str()));
    let table_row = |(number, row): (u32, &UnorderedRow<T>)| {
        TableRow::new(row.cells.iter().map(cell).collect(), vec![number])
    };
    let table = Table { columns: columns.clone(), rows: (0..).zip(&rows).map(table_row).collect() };
    let table = ir::order_records(template, table, dependencies, &ir::characters);
    let mut rows: Vec<Option<UnorderedRow<T>>> = rows.into_iter().map(Some).collect();
    let place = |ordered: TableRow| {
        let number = *ordered.answers.first()? as usize;
        let UnorderedRow { row, cells } = rows.get_mut(number)?.take()?;
        Some(WindowRow { row, sent: named(columns, cells, &ordered.record) })
    };
    table.rows.into_iter().filter_map(place).collect()
}

/// A row's cells by name: those of the record in its order, behind those that the template names.
fn named(columns: &[String], mut cells: Vec<Value>, record: &[u16]) -> Value {
    let mut named = Map::with_capacity(columns.len());
    let is_entry = |position: usize| record.iter().any(|entry| usize::from(*entry) == position);
    let leading = (0..columns.len()).filter(|position| !is_entry(*position));
    for position in leading.chain(record.iter().map(|entry| usize::from(*entry))) {
        if let (Some(name), Some(cell)) = (columns.get(position), cells.get_mut(position)) {
            named.insert(name.clone(), cell.take());
        }
    }
    Value::Object(named)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn window(rows_max: usize) -> Window<usize> {
        let template = Template::parse("Q {kind} {*}").expect("a template");
        let columns = ["kind", "id", "plot"].map(str::to_owned).to_vec();
        let settings = BucketSettings { rows_max, ..BucketSettings::default() };
        Window::new(template, columns, Vec::new(), settings)
    }

    /// Row `i` is of one of two kinds and of one of three films.
    fn cells(i: usize) -> Vec<Value> {
        vec![json!(i % 2), json!(i), json!(format!("the plot of film {}", i % 3))]
    }

    #[tokio::test]
    async fn a_window_is_ordered_as_a_whole_and_cut_afterwards() {
        let mut window = window(12);
        for i in 0..12 {
            assert!(window.pop(4, false).await.expect("no fault").is_none(), "the window is not full");
            window.push(1, cells(i), i);
        }
        assert!(window.is_full());
        let mut sent = Vec::new();
        while let Some(rows) = window.pop(4, false).await.expect("no fault") {
            assert_eq!(rows.len(), 4, "three requests");
            sent.extend(rows);
        }
        assert!(window.is_empty());
        for pair in sent.chunks(2) {
            let [one, other] = pair else { panic!("rows come in twos") };
            assert_eq!(one.row % 6, other.row % 6, "rows of one kind and film are neighbours");
        }
        for WindowRow { row, sent } in sent {
            let expected = json!({ "kind": row % 2, "plot": cells(row)[2], "id": row });
            assert_eq!(sent.to_string(), expected.to_string(), "the plot repeats, so it comes first");
        }
    }

    #[tokio::test]
    async fn the_end_of_the_table_ends_a_window_and_cells_that_are_none_go_along() {
        let mut window = window(12);
        window.push(1, vec![json!(0), json!({ "a": 1 }), Value::Null], 7);
        let rows = window.pop(4, true).await.expect("no fault").expect("a row");
        assert_eq!(rows.iter().map(|row| row.row).collect::<Vec<_>>(), [7]);
        assert_eq!(rows[0].sent, json!({ "kind": 0, "id": { "a": 1 }, "plot": null }));
        assert!(window.pop(4, true).await.expect("no fault").is_none() && window.is_empty());
    }
}
