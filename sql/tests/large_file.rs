//! A file with many more rows than memory is given for. A process of its own: what it holds is measured.

use std::fs::File;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::prelude::SessionContext;
use sql::tables::{Memory, MemoryLimits, TenantTables, TenantTablesOptions};

const ROWS: usize = 10_000_000;
/// Rows that are sorted: twice the memory of operators.
const SOME_ROWS: usize = 1_000_000;
const BATCH: usize = 100_000;
/// Rows that pass, one of each batch.
const RARE: i32 = 7;
/// Bytes of a row's text.
const TEXT: usize = 64;
/// Bytes that reading may take: a tenth of what the rows are.
const GROWTH_MAX: u64 = (ROWS * TEXT / 10) as u64;

/// Bytes that the process holds, and the most that it has held since [`forget_peak`].
fn held() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says what a process holds");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("a field of the status");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
    };
    (field("VmRSS:"), field("VmHWM:"))
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("a process may forget its own peak");
}

/// A file of few distinct values, so that it is small while its rows are not.
fn write(path: &std::path::Path, rows: usize) {
    let kinds: Vec<i32> = (0..BATCH as i32).map(|row| if row == 5 { RARE } else { row % 3 }).collect();
    let texts: Vec<String> = (0..BATCH).map(|row| format!("{:0>TEXT$}", row % 3)).collect();
    let columns: [(&str, ArrayRef); 2] =
        [("kind", Arc::new(Int32Array::from(kinds))), ("text", Arc::new(StringArray::from(texts)))];
    let batch = RecordBatch::try_from_iter(columns).expect("a batch");
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1_000_000)).build();
    let file = File::create(path).expect("a file");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a writer");
    for _ in 0..rows / BATCH {
        writer.write(&batch).expect("written");
    }
    writer.close().expect("closed");
}

async fn shown(context: &SessionContext, text: &str) -> Result<String, String> {
    let frame = context.sql(text).await.map_err(|error| error.to_string())?;
    let batches = frame.collect().await.map_err(|error| error.to_string())?;
    Ok(pretty_format_batches(&batches).expect("batches can be shown").to_string())
}

fn context(folder: &std::path::Path, limits: &MemoryLimits) -> SessionContext {
    let memory = Memory::new(limits).expect("memory");
    let tables = TenantTables::new(TenantTablesOptions::of_folder(folder), &memory).expect("tables");
    let context = SessionContext::new();
    Arc::new(tables).install(&context).expect("installed");
    context
}

#[tokio::test]
async fn ten_million_rows_are_read_and_sorted_in_a_small_part_of_their_size() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder.path().join("rows.parquet"), ROWS);
    write(&folder.path().join("some.parquet"), SOME_ROWS);
    let limits = MemoryLimits { bytes_max: 32 << 20, ..MemoryLimits::default() };
    let session = context(folder.path(), &limits);

    let (before, _) = held();
    forget_peak();
    let text = format!("SELECT count(*) AS n, max(text) AS t FROM rows WHERE kind = {RARE}");
    let said = shown(&session, &text).await.expect("it runs");
    let (_, most) = held();
    assert!(said.contains(&format!("| {} ", ROWS / BATCH)), "{said}");
    let growth = most.saturating_sub(before);
    assert!(growth < GROWTH_MAX, "{growth} bytes more than before, {GROWTH_MAX} allowed");

    // More than the memory of operators: files, or an error that names the limit.
    let sorted = "SELECT max(r) AS n FROM (SELECT row_number() OVER (ORDER BY text, kind) AS r, text FROM some) \
                  WHERE length(text) > 0";
    let said = shown(&session, sorted).await.expect("it runs with files");
    assert!(said.contains("1000000"), "{said}");
    let no_files = MemoryLimits { spill_bytes_max: 0, ..limits };
    let said = shown(&context(folder.path(), &no_files), sorted).await.expect_err("there is no room");
    assert!(said.contains("max_temp_directory_size") || said.contains("Resources exhausted"), "{said}");
}
