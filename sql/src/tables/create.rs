//! `CREATE TABLE .. AS SELECT` and `DROP TABLE`: Parquet files in the tenant's folder.
//!
//! The rows go to a file of a hidden name, which gets the table's name when it is whole: a query that fails
//! or is cancelled leaves nothing. A mark in the file says that it was made so; only such files are dropped
//! or changed. A change ([`super::change`]) writes the table anew in the same way.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::metadata::KeyValue;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::parquet::file::reader::{FileReader as _, SerializedFileReader};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures_util::TryStreamExt as _;
use tokio::sync::OwnedMutexGuard;

use super::definitions::{CREATED_PREFIX, persist};
use super::temporary::TemporaryTables;

/// The mark.
const MARK: &str = "relserve.created";
/// Bytes of rows that are held before they are written as a group.
const GROUP_BYTES_MAX: usize = 64 << 20;

/// A table that does not exist yet: inserting into it makes it.
#[derive(Clone, Debug)]
pub(super) struct NewTable {
    pub(super) schema: SchemaRef,
    /// The tenant's folder.
    pub(super) folder: PathBuf,
    pub(super) name: String,
    /// May take the place of a table that was made the same way.
    pub(super) replaces: bool,
    /// Bytes that its file may have.
    pub(super) bytes_max: u64,
    /// Bytes that all files of tables that were made may have, this one among them.
    pub(super) tenant_bytes_max: u64,
    /// A table whose rows come before those of the query.
    pub(super) keeps: Option<PathBuf>,
    /// Rows that the table had: what is told is how many of them are not written.
    pub(super) removes_from: Option<u64>,
    /// The session that the table is temporary in; `None`: it is a file of the folder.
    pub(super) session: Option<Arc<TemporaryTables>>,
    /// Held while the table is written, so that no two changes of a table lose each other's rows.
    #[expect(dead_code, reason = "it is held, not read")]
    pub(super) lock: Option<Arc<OwnedMutexGuard<()>>>,
}

impl NewTable {
    fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.parquet", self.name))
    }

    fn cause(&self, error: impl fmt::Display) -> datafusion::common::DataFusionError {
        exec_datafusion_err!("table {}: {error}", self.name)
    }

    /// The rows in the types of the file.
    fn plain(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let cast = |(array, field): (&ArrayRef, &FieldRef)| cast(array, field.data_type());
        let arrays = batch.columns().iter().zip(self.schema.fields()).map(cast).collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }

    async fn write(&self, mut rows: SendableRecordBatchStream) -> Result<u64> {
        let hidden = tempfile::Builder::new().prefix(CREATED_PREFIX).tempfile_in(&self.folder);
        let mut hidden = hidden.map_err(|error| self.cause(error.kind()))?;
        let own = hidden.path().to_owned();
        // Where there is no room at all, nothing is computed.
        self.check_room(&own, 0)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(Some(vec![KeyValue::new(MARK.into(), "true".to_owned())]))
            .build();
        let file = hidden.as_file_mut();
        let mut writer = ArrowWriter::try_new(file, Arc::clone(&self.schema), Some(properties))?;
        if let Some(path) = &self.keeps {
            let file = File::open(path).map_err(|error| self.cause(error.kind()))?;
            for batch in ParquetRecordBatchReaderBuilder::try_new(file)?.build()? {
                self.append(&mut writer, &batch?, &own)?;
                tokio::task::yield_now().await;
            }
        }
        let mut count = 0;
        while let Some(batch) = rows.try_next().await? {
            count += batch.num_rows() as u64;
            self.append(&mut writer, &batch, &own)?;
        }
        writer.close()?;
        let about = hidden.as_file().metadata().map_err(|error| self.cause(error.kind()))?;
        self.check_room(&own, about.len())?;
        if let Some(session) = &self.session {
            session.put(&self.name, hidden.into_temp_path()).await?;
        } else {
            persist(hidden, &self.path(), self.replaces).map_err(|error| self.cause(error.kind()))?;
        }
        Ok(self.removes_from.map_or(count, |before| before.saturating_sub(count)))
    }

    fn append(&self, writer: &mut ArrowWriter<&mut File>, batch: &RecordBatch, own: &Path) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let before = writer.bytes_written();
        writer.write(&self.plain(batch)?)?;
        if writer.in_progress_size() > GROUP_BYTES_MAX {
            writer.flush()?;
        }
        let written = writer.bytes_written();
        if written > before { self.check_room(own, written as u64) } else { Ok(()) }
    }

    /// Refuses a file of so many bytes, at this path meanwhile, that is too large, alone or with the tables that
    /// the tenant has already.
    fn check_room(&self, own: &Path, bytes: u64) -> Result<()> {
        let Self { name, bytes_max, tenant_bytes_max, .. } = self;
        if bytes > *bytes_max {
            return exec_err!("table {name}: it has more than {bytes_max} bytes");
        }
        // What is deleted makes room.
        if self.removes_from.is_some() {
            return Ok(());
        }
        let replaced = match &self.session {
            Some(session) => session.path(name),
            None => Some(self.path()),
        };
        let is_counted = |path: &Path| path != own && replaced.as_deref() != Some(path);
        let most = tenant_bytes_max.saturating_sub(bytes);
        let held = held(&self.folder, most, is_counted).map_err(|error| self.cause(error.kind()))?;
        if held.saturating_add(bytes) > *tenant_bytes_max {
            return exec_err!(
                "table {name}: with it the tables that you made would have more than {tenant_bytes_max} bytes \
                 (`sql.tenant_created_bytes_max`), the others have {held}; drop some first"
            );
        }
        Ok(())
    }
}

impl DisplayAs for NewTable {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "CreateTable: {}", self.name)
    }
}

#[async_trait]
impl DataSink for NewTable {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn write_all(&self, rows: SendableRecordBatchStream, _: &Arc<TaskContext>) -> Result<u64> {
        self.write(rows).await
    }
}

#[async_trait]
impl TableProvider for NewTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        exec_err!("table `{}` is being made", self.name)
    }

    async fn insert_into(
        &self,
        _: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        _: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(self.clone()), None)))
    }
}

/// Bytes of those files of a folder that `CREATE TABLE` made, temporary tables and what is being written among them.
/// Where all that may be such has no more than `most`, it is said of all: no footer is read.
fn held(folder: &Path, most: u64, is_counted: impl Fn(&Path) -> bool) -> io::Result<u64> {
    let (mut hidden, mut named) = (0, Vec::new());
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let is_hidden = name.starts_with(CREATED_PREFIX);
        if !(is_hidden || name.ends_with(".parquet")) || !is_counted(&path) {
            continue;
        }
        // Another session may have dropped it just now.
        let bytes = std::fs::metadata(&path).map_or(0, |about| about.len());
        if is_hidden {
            hidden += bytes;
        } else {
            named.push((path, bytes));
        }
    }
    let all = |named: &[(PathBuf, u64)]| hidden + named.iter().map(|(_, bytes)| bytes).sum::<u64>();
    if all(&named) > most {
        named.retain(|(path, _)| is_created(path));
    }
    Ok(all(&named))
}

/// Whether a file was made by `CREATE TABLE`.
pub(super) fn is_created(path: &Path) -> bool {
    rows_of_created(path).is_some()
}

/// Rows of a file that `CREATE TABLE` made; `None` of another file.
pub(super) fn rows_of_created(path: &Path) -> Option<u64> {
    let reader = SerializedFileReader::new(File::open(path).ok()?).ok()?;
    let about = reader.metadata().file_metadata();
    let is_marked = about.key_value_metadata()?.iter().any(|mark| mark.key == MARK);
    u64::try_from(about.num_rows()).ok().filter(|_| is_marked)
}

/// Removes the file of a table that was made by `CREATE TABLE`.
pub(super) fn remove(folder: &Path, file_name: &str) -> Result<()> {
    let path = folder.join(file_name);
    if !is_created(&path) {
        return exec_err!(
            "DROP TABLE: `{file_name}` was not made by CREATE TABLE; remove the file from your folder instead"
        );
    }
    std::fs::remove_file(&path).map_err(|error| exec_datafusion_err!("DROP TABLE: {}", error.kind()))
}
