//! Policies side by side in figures, for one trace or the mean of several: what `relserve sim` prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use scheduler::Policy;

use crate::replay::Replay;
use crate::summary::LatencySummary;

/// What one policy came to.
#[derive(Clone, Debug, PartialEq)]
struct PolicyLine {
    policy: Policy,
    summary: LatencySummary,
    tenants: BTreeMap<String, LatencySummary>,
    cancelled: u64,
    failed_rows: u64,
}

/// A line per policy, and one per tenant and policy where there are several tenants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyTable(Vec<PolicyLine>);

impl<'a> FromIterator<&'a Replay> for PolicyTable {
    fn from_iter<I: IntoIterator<Item = &'a Replay>>(replays: I) -> Self {
        let line = |replay: &Replay| PolicyLine {
            policy: replay.policy,
            summary: replay.summary,
            tenants: replay.tenants.clone(),
            cancelled: replay.cancelled.len() as u64,
            failed_rows: replay.failed_rows,
        };
        Self(replays.into_iter().map(line).collect())
    }
}

impl PolicyTable {
    /// Tables of several traces under the same policies as one: means, and sums of what is counted.
    pub fn mean_of(tables: &[Self]) -> Self {
        let policies = tables.first().map_or(&[][..], |table| &table.0).iter().map(|line| line.policy);
        let merge = |policy: Policy| {
            let of_policy = |line: &&PolicyLine| line.policy == policy;
            let lines: Vec<&PolicyLine> =
                tables.iter().flat_map(|table| &table.0).filter(of_policy).collect();
            let mut tenants: BTreeMap<String, Vec<LatencySummary>> = BTreeMap::new();
            for (name, summary) in lines.iter().flat_map(|line| &line.tenants) {
                tenants.entry(name.clone()).or_default().push(*summary);
            }
            let summaries: Vec<LatencySummary> = lines.iter().map(|line| line.summary).collect();
            PolicyLine {
                policy,
                summary: LatencySummary::mean_of(&summaries),
                tenants: tenants
                    .into_iter()
                    .map(|(name, all)| (name, LatencySummary::mean_of(&all)))
                    .collect(),
                cancelled: lines.iter().map(|line| line.cancelled).sum(),
                failed_rows: lines.iter().map(|line| line.failed_rows).sum(),
            }
        };
        Self(policies.map(merge).collect())
    }

    /// How many times longer the mean latency under `policy` is.
    fn ratio(&self, policy: Policy, mean: f64) -> String {
        let found = self.0.iter().find(|line| line.policy == policy).filter(|_| mean > 0.0);
        found.map_or_else(|| "-".to_owned(), |line| format!("{:.2}", line.summary.mean / mean))
    }

    /// A line per tenant and policy.
    fn by_tenant(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{:20} {:12}", "tenant", "policy")?;
        for name in ["relQueries", "mean s", "p50", "p99", "max", "waiting", "core", "tail"] {
            write!(f, " {name:>10}")?;
        }
        writeln!(f)?;
        let names: BTreeSet<&String> = self.0.iter().flat_map(|line| line.tenants.keys()).collect();
        for name in names {
            for line in &self.0 {
                let Some(sum) = line.tenants.get(name) else { continue };
                write!(f, "{name:20} {:12}", line.policy.name())?;
                let LatencySummary { n, mean, p50, p99, max, waiting, core, tail, .. } = sum;
                write!(f, " {n:10} {mean:10.3} {p50:10.3} {p99:10.3} {max:10.3}")?;
                writeln!(f, " {waiting:10.3} {core:10.3} {tail:10.3}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for PolicyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:20}", "policy")?;
        let heads = ["mean s", "p50", "p99", "max", "x relserve", "x fcfs", "hit"];
        for name in heads.into_iter().chain(["waiting", "core", "tail", "makespan"]) {
            write!(f, " {name:>10}")?;
        }
        writeln!(f)?;
        for PolicyLine { policy, summary: sum, .. } in &self.0 {
            write!(f, "{:20}", policy.name())?;
            write!(f, " {:10.3} {:10.3} {:10.3} {:10.3}", sum.mean, sum.p50, sum.p99, sum.max)?;
            let ratio = |policy| self.ratio(policy, sum.mean);
            write!(f, " {:>10} {:>10}", ratio(Policy::RelServe), ratio(Policy::Fcfs))?;
            write!(f, " {:10.3} {:10.3} {:10.3} {:10.3}", sum.hit, sum.waiting, sum.core, sum.tail)?;
            writeln!(f, " {:10.3}", sum.makespan)?;
        }
        writeln!(f, "x: mean latency under that policy over this one's; above 1 is better")?;
        if self.0.iter().any(|line| line.tenants.len() > 1) {
            self.by_tenant(f)?;
        }
        for PolicyLine { policy, cancelled, failed_rows, .. } in &self.0 {
            if *cancelled > 0 || *failed_rows > 0 {
                writeln!(f, "{policy}: {cancelled} relQueries called off, {failed_rows} rows failed")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_tables_are_averaged_policy_by_policy_and_tenant_by_tenant() {
        let table = |mean: f64, tenant: &str| {
            let summary = LatencySummary { n: 2, mean, ..LatencySummary::default() };
            let tenants = BTreeMap::from([("a".to_owned(), summary), (tenant.to_owned(), summary)]);
            let line = |policy, mean| PolicyLine {
                policy,
                summary: LatencySummary { mean, ..summary },
                tenants: tenants.clone(),
                cancelled: 1,
                failed_rows: 0,
            };
            PolicyTable(vec![line(Policy::Fcfs, 2.0 * mean), line(Policy::RelServe, mean)])
        };
        let both = PolicyTable::mean_of(&[table(1.0, "b"), table(4.0, "c")]);
        let [fcfs, relserve] = both.0.as_slice() else { panic!("two policies: {both:?}") };
        assert_eq!((fcfs.summary.mean, relserve.summary.mean), (5.0, 2.5));
        assert_eq!((fcfs.summary.n, fcfs.cancelled), (4, 2));
        assert_eq!((fcfs.tenants["a"].mean, fcfs.tenants["b"].mean), (2.5, 1.0));
        assert_eq!(both.to_string().lines().filter(|line| line.starts_with("c  ")).count(), 2);
        assert_eq!(PolicyTable::mean_of(&[]), PolicyTable::default());
    }
}
