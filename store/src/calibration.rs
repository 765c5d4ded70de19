//! Calibration: what a machine's cost model was fitted to, so that the next start need not measure again.

use crate::error::Error;
use crate::open::Store;
use crate::time::UnixMillis;

impl Store {
    /// Keeps the fitted cost model (JSON, meaningful to the caller) of a model revision on a machine.
    pub async fn put_calibration(
        &self,
        revision: &str,
        machine: &str,
        fitted: &str,
        now: UnixMillis,
    ) -> Result<(), Error> {
        self.bounded(async {
            sqlx::query(
                "INSERT INTO calibrations (revision, machine, fitted, updated) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (revision, machine) DO UPDATE SET fitted = excluded.fitted, updated = excluded.updated",
            )
            .bind(revision)
            .bind(machine)
            .bind(fitted)
            .bind(now.to_sql())
            .execute(self.pool())
            .await?;
            Ok(())
        })
        .await
    }

    /// The fitted cost model of a model revision on a machine.
    pub async fn calibration(&self, revision: &str, machine: &str) -> Result<Option<String>, Error> {
        self.reading(async {
            let row: Option<(String,)> =
                sqlx::query_as("SELECT fitted FROM calibrations WHERE revision = $1 AND machine = $2")
                    .bind(revision)
                    .bind(machine)
                    .fetch_optional(self.pool())
                    .await?;
            Ok(row.map(|(fitted,)| fitted))
        })
        .await
    }
}
