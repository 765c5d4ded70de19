//! Transactions that write.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sqlx::any::Any;
use sqlx::{AnyConnection, Transaction};

use crate::health::StoreHealth;

/// A transaction that writes; what it did is undone where it is dropped.
pub(crate) struct WriteTransaction {
    transaction: Transaction<'static, Any>,
    health: Arc<StoreHealth>,
}

impl WriteTransaction {
    pub(crate) fn new(transaction: Transaction<'static, Any>, health: Arc<StoreHealth>) -> Self {
        Self { transaction, health }
    }

    /// Makes it last.
    pub(crate) async fn commit(self) -> Result<(), sqlx::Error> {
        self.transaction.commit().await?;
        self.health.wrote();
        Ok(())
    }
}

impl Deref for WriteTransaction {
    type Target = AnyConnection;

    fn deref(&self) -> &AnyConnection {
        &self.transaction
    }
}

impl DerefMut for WriteTransaction {
    fn deref_mut(&mut self) -> &mut AnyConnection {
        &mut self.transaction
    }
}
