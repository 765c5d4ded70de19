//! How the store's calls fared, read when somebody scrapes: the store counts for itself.

use std::sync::Arc;

use prometheus::core::{Collector, Desc, Describer};
use prometheus::proto::{MetricFamily, MetricType};
use store::{StoreHealth, StoreOutage};

use super::published::{family, metric};
use super::register::Registrar;

/// What names of these begin with: all models of a process share one store.
pub(super) const OF_STORE: &str = "relserve_store_";

const CAUSE: &str = "cause";

struct StoreCollector {
    health: Arc<StoreHealth>,
    errors: Desc,
    outage: Desc,
}

/// Registers what a store counts.
pub(super) fn register(r: &Registrar<'_>, health: Arc<StoreHealth>) {
    let desc = |name: &str, help| {
        let opts = r.opts(name, help).variable_label(CAUSE);
        opts.describe().expect("names are well formed")
    };
    let errors = desc(
        "relserve_store_errors_total",
        "Calls of the database that failed: it was away, took no writes, had no room, had lost its file, or refused what was asked",
    );
    let outage = desc(
        "relserve_store_outage",
        "Whether the database is away, takes no writes, has a full disk, or has lost its file, as its last calls found",
    );
    r.add(StoreCollector { health, errors, outage });
}

impl Collector for StoreCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.errors, &self.outage]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (errors, outage) = (self.health.errors(), self.health.outage());
        let count =
            |cause, value: u64| metric(&self.errors, MetricType::COUNTER, Some((CAUSE, cause)), value as f64);
        let is = |cause, one| {
            let value = if outage == Some(one) { 1.0 } else { 0.0 };
            metric(&self.outage, MetricType::GAUGE, Some((CAUSE, cause)), value)
        };
        let errors = [
            ("away", errors.away),
            ("unwritable", errors.unwritable),
            ("disk_full", errors.disk_full),
            ("file_gone", errors.file_gone),
            ("failed", errors.failed),
        ];
        let outages = [
            ("away", StoreOutage::Away),
            ("unwritable", StoreOutage::Unwritable),
            ("disk_full", StoreOutage::DiskFull),
            ("file_gone", StoreOutage::FileGone),
        ];
        vec![
            family(
                &self.errors,
                MetricType::COUNTER,
                errors.map(|(cause, value)| count(cause, value)).into(),
            ),
            family(&self.outage, MetricType::GAUGE, outages.map(|(cause, one)| is(cause, one)).into()),
        ]
    }
}
