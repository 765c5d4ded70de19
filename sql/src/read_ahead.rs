//! A result that is worked on while nobody reads it.
//!
//! What computes a stream may hold something while it waits, a connection of the database for example. A reader
//! that stops for a while (a deadline that turns the rest into a ticket, a portal that is suspended) would stop
//! that work in the middle and so keep what it holds from everyone, itself too.

use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use futures_util::StreamExt as _;

/// Batches that wait for the reader, beside the one that the work has at hand.
const BATCHES: usize = 1;

/// The same batches, computed by a task that ends when the stream is dropped.
pub(crate) fn read_ahead(mut stream: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let mut reader = RecordBatchReceiverStream::builder(stream.schema(), BATCHES);
    let batches = reader.tx();
    reader.spawn(async move {
        while let Some(batch) = stream.next().await {
            if batches.send(batch).await.is_err() {
                break;
            }
        }
        Ok(())
    });
    reader.build()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::RecordBatch;
    use datafusion::arrow::datatypes::Schema;
    use datafusion::error::DataFusionError;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures_util::{FutureExt as _, stream};
    use tokio::sync::{Mutex, Semaphore};

    use super::*;

    #[tokio::test]
    async fn what_a_stream_holds_is_given_back_while_nobody_reads() {
        let schema = Arc::new(Schema::empty());
        let (connection, answer) = (Arc::new(Mutex::new(())), Arc::new(Semaphore::new(0)));
        let batch = RecordBatch::new_empty(Arc::clone(&schema));
        let (held, waited, empty) = (Arc::clone(&connection), Arc::clone(&answer), batch.clone());
        let work = stream::once(async move {
            let _held = held.lock().await;
            waited.acquire().await.expect("it stays open").forget();
            Ok(empty)
        });
        let mut reader = read_ahead(Box::pin(RecordBatchStreamAdapter::new(schema, work)));
        // The reader looks once, and turns to the same connection.
        assert!(reader.next().now_or_never().is_none());
        while connection.try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        answer.add_permits(1);
        drop(connection.lock().await);
        assert_eq!(reader.next().await.expect("a batch").expect("of no error"), batch);
        assert!(reader.next().await.is_none());
    }

    #[tokio::test]
    async fn work_ends_with_its_reader_and_errors_reach_it() {
        let schema = Arc::new(Schema::empty());
        let token = Arc::new(());
        let held = Arc::clone(&token);
        let endless = stream::once(async move {
            let _held = held;
            std::future::pending::<Result<RecordBatch, DataFusionError>>().await
        });
        let reader = read_ahead(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), endless)));
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&token), 2);
        drop(reader);
        while Arc::strong_count(&token) > 1 {
            tokio::task::yield_now().await;
        }
        let broken = stream::once(async { Err(DataFusionError::Execution("it broke".into())) });
        let mut reader = read_ahead(Box::pin(RecordBatchStreamAdapter::new(schema, broken)));
        let error = reader.next().await.expect("something").expect_err("an error");
        assert!(error.to_string().contains("it broke"), "{error}");
    }
}
