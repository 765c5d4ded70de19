//! Constraints by tenant: what each has compiled and keeps, and how much it may.
//!
//! A tenant compiles one constraint at a time, for so long in a minute, and has so many in memory; what rows
//! that are not over yet carry counts, and stays. No other tenant waits for it, and none learns from a quick
//! answer what another compiled. Must not know how constraints arrive, nor what they are compiled to.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use base::{Compiled, Constraint, ConstraintCompiler, ConstraintError, Millis, Nanos, TenantId, Time};
use serving::clock::Clock;
use serving::error::RequestError;

use crate::config::LimitsConfig;

/// The span over which the time of compiling is bounded.
const WINDOW: Nanos = Nanos(60_000_000_000);

/// What a tenant may compile.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Constraints in memory.
    kept: usize,
    /// Compiling in a window.
    time: Nanos,
}

/// All tenants' constraints.
pub struct Constraints {
    compiler: Option<Arc<dyn ConstraintCompiler>>,
    clock: Clock,
    tenants: Mutex<HashMap<TenantId, Arc<Mutex<CompiledConstraints>>>>,
}

/// What a tenant has compiled.
#[derive(Debug, Default)]
struct CompiledConstraints {
    /// Least recently used first; those that cannot be compiled too, so that they are tried once.
    kept: VecDeque<(Constraint, Result<Compiled, ConstraintError>)>,
    /// Time of compiling that is not forgiven yet, at `as_of`.
    spent: Nanos,
    as_of: Time,
}

/// Why a constraint is not compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// It cannot be.
    Constraint(ConstraintError),
    /// The tenant has too many already, all in use.
    Count,
    /// The tenant has compiled for too long; not before this time from now.
    Time(Nanos),
}

/// Why a request is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Run,
    /// To go on, after a restart: it was within the bounds when it came, and is not held to them again.
    Resume,
    /// To be shown, as far as it went: nothing is compiled for it.
    Show,
}

/// One tenant's way to compile.
#[derive(Clone, Copy)]
pub struct TenantConstraints<'a> {
    all: &'a Constraints,
    tenant: TenantId,
    purpose: Purpose,
    bounds: Bounds,
}

impl Constraints {
    /// None compiled yet; without a compiler, none ever is.
    pub fn new(compiler: Option<Arc<dyn ConstraintCompiler>>, clock: Clock) -> Self {
        Self { compiler, clock, tenants: Mutex::default() }
    }

    /// A tenant's way, within these limits.
    pub fn of(&self, tenant: TenantId, purpose: Purpose, limits: &LimitsConfig) -> TenantConstraints<'_> {
        let bounds =
            Bounds { kept: limits.tenant_constraints_max, time: limits.tenant_compile_ms_max.into() };
        TenantConstraints { all: self, tenant, purpose, bounds }
    }

    fn compiled(&self, tenant: TenantId) -> Arc<Mutex<CompiledConstraints>> {
        Arc::clone(locked(&self.tenants).entry(tenant).or_default())
    }
}

impl TenantConstraints<'_> {
    /// Whether constraints can be compiled at all.
    pub fn can_compile(self) -> bool {
        self.all.compiler.is_some()
    }

    /// The compiled constraint that `field` asks for. Slow where it is new, so call it off the loop.
    pub fn compile(self, field: &str, constraint: &Constraint) -> Result<Compiled, RequestError> {
        if self.purpose == Purpose::Show {
            return Ok(Compiled::default());
        }
        let Constraints { compiler, clock, .. } = self.all;
        let Some(compiler) = compiler else {
            return Err(RequestError::invalid(
                field,
                "what runs this model cannot hold outputs to a constraint",
            ));
        };
        let compiled = self.all.compiled(self.tenant);
        let mut compiled = locked(&compiled);
        let is_bound = self.purpose == Purpose::Run;
        let found = compiled.find(constraint, (self.bounds, is_bound), clock.now(), || {
            let begun = clock.now();
            let compiled = compiler.compile(constraint);
            (compiled, clock.now().since(begun))
        });
        found.map_err(|refusal| self.error(field, refusal))
    }

    fn error(self, field: &str, refusal: Refusal) -> RequestError {
        let Bounds { kept, time } = self.bounds;
        let (reason, wait) = match refusal {
            Refusal::Constraint(error) => return RequestError::invalid(field, error.to_string()),
            Refusal::Count => {
                (format!("{kept} different constraints of this tenant are in use, the limit"), Nanos(1))
            }
            Refusal::Time(wait) => {
                let limit = time.0 / 1_000_000;
                (
                    format!("this tenant has compiled constraints for {limit} ms of this minute, the limit"),
                    wait,
                )
            }
        };
        let retry_after = Millis(wait.0.div_ceil(1_000_000));
        RequestError::Constraints { field: field.to_owned(), reason, retry_after }
    }
}

impl CompiledConstraints {
    /// The constraint as it was compiled, or as `compile` does, which also says how long it took. What is not
    /// bound is never refused, and lets as much go as it can all the same.
    fn find(
        &mut self,
        constraint: &Constraint,
        (bounds, is_bound): (Bounds, bool),
        now: Time,
        compile: impl FnOnce() -> (Result<Compiled, ConstraintError>, Nanos),
    ) -> Result<Compiled, Refusal> {
        if let Some(place) = self.kept.iter().position(|(known, _)| known == constraint)
            && let Some(entry) = self.kept.remove(place)
        {
            let compiled = entry.1.clone();
            self.kept.push_back(entry);
            return compiled.map_err(Refusal::Constraint);
        }
        let (in_time, has_room) = (self.pay(bounds, now), self.make_room(bounds.kept));
        if is_bound {
            in_time.and(has_room)?;
        }
        let (compiled, took) = compile();
        self.spent += took;
        self.kept.push_back((constraint.clone(), compiled.clone()));
        compiled.map_err(Refusal::Constraint)
    }

    /// Forgives what time has paid: the whole bound in a window.
    fn pay(&mut self, bounds: Bounds, now: Time) -> Result<(), Refusal> {
        let part = |of: Nanos, numerator: Nanos, denominator: Nanos| {
            let product = u128::from(of.0) * u128::from(numerator.0);
            Nanos(u64::try_from(product / u128::from(denominator.0.max(1))).unwrap_or(u64::MAX))
        };
        let forgiven = part(now.since(self.as_of), bounds.time, WINDOW);
        self.spent = Nanos(self.spent.0.saturating_sub(forgiven.0));
        self.as_of = now;
        match self.spent.0.checked_sub(bounds.time.0) {
            Some(above) => Err(Refusal::Time(part(Nanos(above + 1), WINDOW, bounds.time))),
            None => Ok(()),
        }
    }

    /// Lets the least recently used go that no row carries.
    fn make_room(&mut self, kept_max: usize) -> Result<(), Refusal> {
        while self.kept.len() >= kept_max {
            let idle =
                self.kept.iter().position(|(_, compiled)| !compiled.as_ref().is_ok_and(Compiled::is_shared));
            self.kept.remove(idle.ok_or(Refusal::Count)?);
        }
        Ok(())
    }
}

/// The lock's content; nothing here is left half changed by a panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { kept: 2, time: Nanos(6_000_000_000) };

    fn regex(pattern: &str) -> Constraint {
        Constraint::Regex(pattern.into())
    }

    /// Compiles to its own number, in a second.
    fn find(compiled: &mut CompiledConstraints, pattern: &str, now: u64) -> Result<Compiled, Refusal> {
        let compile = || (Ok(Compiled::new(pattern.to_owned())), Nanos(1_000_000_000));
        compiled.find(&regex(pattern), (BOUNDS, true), Time(now), compile)
    }

    #[test]
    fn the_least_recently_used_constraint_leaves_unless_a_row_carries_it() {
        let mut compiled = CompiledConstraints::default();
        let a = find(&mut compiled, "a", 0).expect("there is room");
        drop(find(&mut compiled, "b", 0).expect("there is room"));
        let c = find(&mut compiled, "c", 0).expect("b leaves");
        assert_eq!(a.get::<String>().map(String::as_str), Some("a"));
        assert_eq!(find(&mut compiled, "b", 0).err(), Some(Refusal::Count), "a and c are carried");
        assert!(find(&mut compiled, "c", 0).is_ok(), "what is kept is found");
        drop((a, c));
        drop(find(&mut compiled, "b", 0).expect("a leaves"));
        let patterns: Vec<&Constraint> = compiled.kept.iter().map(|(constraint, _)| constraint).collect();
        assert_eq!(patterns, [&regex("c"), &regex("b")]);
        assert_eq!(compiled.spent, Nanos(4_000_000_000), "what was found cost nothing");
    }

    #[test]
    fn a_tenant_compiles_for_so_long_in_a_minute() {
        let second = 1_000_000_000;
        let mut compiled = CompiledConstraints::default();
        for pattern in ["a", "b", "c", "d", "e", "f"] {
            drop(find(&mut compiled, pattern, 0).expect(pattern));
        }
        let Err(Refusal::Time(wait)) = find(&mut compiled, "g", 0) else { panic!("six seconds are spent") };
        assert_eq!(wait, Nanos(10), "a nanosecond is forgiven in ten");
        assert!(find(&mut compiled, "f", 0).is_ok(), "what is kept is free");
        assert!(find(&mut compiled, "g", 10 * second).is_ok(), "ten seconds forgive one");
        assert!(matches!(find(&mut compiled, "h", 10 * second), Err(Refusal::Time(_))));
        for pattern in ["i", "j", "k", "l"] {
            let compile = || (Ok(Compiled::new(())), Nanos(second));
            let found = compiled.find(&regex(pattern), (BOUNDS, false), Time(10 * second), compile);
            assert!(found.is_ok(), "admitted before");
            assert!(compiled.kept.len() <= BOUNDS.kept, "what no row carries leaves all the same");
        }
    }

    #[test]
    fn what_is_only_shown_compiles_nothing_and_tenants_share_nothing() {
        /// Counts what it compiles.
        #[derive(Default)]
        struct Counting(std::sync::atomic::AtomicU32);
        impl ConstraintCompiler for Counting {
            fn compile(&self, _: &Constraint) -> Result<Compiled, ConstraintError> {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Ok(Compiled::new(()))
            }
        }
        let compiler = Arc::new(Counting::default());
        let limits = LimitsConfig::default();
        let all = Constraints::new(Some(Arc::clone(&compiler) as _), Clock::start());
        let steps = [
            (1, Purpose::Show, 0),
            (1, Purpose::Run, 1),
            (1, Purpose::Run, 1),
            (1, Purpose::Resume, 1),
            (2, Purpose::Run, 2),
        ];
        for (tenant, purpose, compiled) in steps {
            all.of(TenantId(tenant), purpose, &limits).compile("f", &regex("a")).expect("it compiles");
            assert_eq!(
                compiler.0.load(std::sync::atomic::Ordering::Relaxed),
                compiled,
                "{tenant} {purpose:?}"
            );
        }
    }

    #[test]
    fn a_constraint_that_cannot_be_compiled_costs_its_time_once_and_makes_room() {
        let mut compiled = CompiledConstraints::default();
        let error = ConstraintError("no".into());
        let compile = || (Err(error.clone()), Nanos(7_000_000_000));
        let found = compiled.find(&regex("("), (BOUNDS, true), Time(0), compile);
        assert_eq!(found.err(), Some(Refusal::Constraint(error.clone())));
        let again = || panic!("it was tried before");
        let found = compiled.find(&regex("("), (BOUNDS, true), Time(0), again);
        assert_eq!(found.err(), Some(Refusal::Constraint(error)), "also where nothing more may be compiled");
        assert!(matches!(find(&mut compiled, "a", 0), Err(Refusal::Time(_))));
        let minute = 60_000_000_000;
        let held = ["a", "b"].map(|pattern| find(&mut compiled, pattern, 2 * minute).expect("it made room"));
        assert_eq!((held.len(), compiled.kept.len()), (2, 2));
    }
}
