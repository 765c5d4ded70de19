//! Steps: how many, how long, and what goes wrong with them.

use base::{BatchKind, BatchPlan, Nanos};
use prometheus::{Histogram, IntCounter};

use super::register::Registrar;

/// Upper bounds of scheduler time per step, seconds.
const SCHEDULER_SECONDS: [f64; 10] = [1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 1e-2, 1e-1];
/// Upper bounds of step time, seconds.
const STEP_SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Handles.
pub struct StepMetrics {
    prefill: IntCounter,
    decode: IntCounter,
    mixed: IntCounter,
    scheduler_seconds: Histogram,
    gap_seconds: Histogram,
    step_seconds: Histogram,
    /// Steps that failed whole.
    pub failures: IntCounter,
    /// Rows that failed because steps with them fail.
    pub rows_quarantined: IntCounter,
    /// Executors of the local engine that were lost.
    pub engine_losses: IntCounter,
    /// Fresh ones that took over.
    pub engine_restarts: IntCounter,
    /// Attempts to make one that failed.
    pub engine_restart_failures: IntCounter,
}

impl StepMetrics {
    pub(super) fn register(r: &Registrar<'_>) -> Self {
        let kinds = ("kind", ["prefill", "decode", "mixed"]);
        let [prefill, decode, mixed] = r.counters("relserve_steps_total", "Model steps by kind", kinds);
        Self {
            prefill,
            decode,
            mixed,
            scheduler_seconds: r.histogram(
                "relserve_scheduler_seconds",
                "Time to plan and apply one step",
                &SCHEDULER_SECONDS,
            ),
            gap_seconds: r.histogram(
                "relserve_step_gap_seconds",
                "Time from a step's end to the start of the step that follows it: what compute threads wait",
                &SCHEDULER_SECONDS,
            ),
            step_seconds: r.histogram(
                "relserve_step_seconds",
                "Time the executor took for one step",
                &STEP_SECONDS,
            ),
            failures: r.counter("relserve_step_failures_total", "Steps that failed whole"),
            rows_quarantined: r
                .counter("relserve_rows_quarantined_total", "Rows that failed because steps with them fail"),
            engine_losses: r.counter("relserve_engine_losses_total", "Times the engine lost its device"),
            engine_restarts: r
                .counter("relserve_engine_restarts_total", "Fresh executors in place of lost ones"),
            engine_restart_failures: r.counter(
                "relserve_engine_restart_failures_total",
                "Attempts to make a fresh executor that failed",
            ),
        }
    }

    /// A step was planned, run and applied; `gap` after the one before, where it followed at once.
    pub fn stepped(&self, plan: &BatchPlan, gap: Option<Nanos>, scheduling: Nanos, running: Nanos) {
        match plan.kind() {
            BatchKind::Prefill => self.prefill.inc(),
            BatchKind::Decode => self.decode.inc(),
            BatchKind::Mixed => self.mixed.inc(),
        }
        if let Some(gap) = gap {
            self.gap_seconds.observe(gap.as_seconds());
        }
        self.scheduler_seconds.observe(scheduling.as_seconds());
        self.step_seconds.observe(running.as_seconds());
    }
}
