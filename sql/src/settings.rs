//! Settings of AI functions, which a session may `SET`.

use datafusion::common::config::ConfigExtension;
use datafusion::common::{Result, extensions_options, plan_err};

use crate::query::QueryLimits;
use crate::runner::PromptOrder;
use crate::scans::ScanningTool;

extensions_options! {
    /// Settings of AI functions: `SET relserve.max_tokens = 100000`.
    pub struct AiSettings {
        /// Tokens that a query may compute, prompts and answers; 0: any number.
        pub max_tokens: u64, default = 0
        /// Calls that a query may compute; 0: any number.
        pub max_calls: u64, default = 0
        /// Answers known already are given, nothing is computed. Unset: so for scans that tools make by
        /// themselves.
        pub cached_only: Option<bool>, default = None
        /// Rows of an AI operator that are undecided at a time.
        pub window_rows: u64, default = 2_000
        /// What may be moved in a window so that prompts begin alike: `exact` (nothing), `rows`, or `fields`
        /// (the columns of `{*}` too, which changes prompts).
        pub order: String, default = "rows".to_owned()
        /// Whether AI conditions are decided where they ask least, not where they are written.
        pub place_filters: bool, default = true
    }
}

impl ConfigExtension for AiSettings {
    const PREFIX: &'static str = "relserve";
}

impl AiSettings {
    /// What they let a query do; `scan`: the tool that makes it by itself.
    ///
    /// # Errors
    /// An order that is none.
    pub(crate) fn limits(&self, scan: impl FnOnce() -> Option<ScanningTool>) -> Result<QueryLimits> {
        let order = match self.order.as_str() {
            "exact" => PromptOrder::Exact,
            "rows" => PromptOrder::Rows,
            "fields" => PromptOrder::Fields,
            other => return plan_err!("relserve.order must be exact, rows or fields, not `{other}`"),
        };
        let scan = if self.cached_only.is_none() { scan() } else { None };
        Ok(QueryLimits {
            window_rows: usize::try_from(self.window_rows).unwrap_or(usize::MAX),
            max_tokens: self.max_tokens,
            max_calls: self.max_calls,
            cached_only: self.cached_only.unwrap_or(scan.is_some()),
            order,
            scan,
        })
    }
}
