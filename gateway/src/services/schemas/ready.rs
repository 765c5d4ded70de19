//! Schemas that are ready, bounded in bytes of their texts: the least recently used leaves, unless it has a
//! pin.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use base::{Nanos, TenantId, Time};
use ir::pml::Layout;
use serving::pins::Pin;
use store::StoredSchema;

use crate::config::LimitsConfig;

/// A schema, ready for prompts.
#[derive(Debug)]
pub struct Ready {
    pub stored: StoredSchema,
    /// Its tokens and positions.
    pub layout: Layout,
    /// What keeps its modules in the engine's memory, where that was asked for.
    pub pin: Option<Arc<Pin>>,
}

/// All tenants' schemas.
pub struct Schemas {
    ready: Mutex<ReadySchemas>,
}

impl Schemas {
    /// None ready yet.
    pub fn new(limits: &LimitsConfig) -> Self {
        Self { ready: Mutex::new(ReadySchemas::new(limits.schemas_bytes_max.0)) }
    }

    /// Another bound of bytes; what is beyond it leaves when the next schema comes.
    pub fn set_bytes_max(&self, limits: &LimitsConfig) {
        self.ready().bytes_max = limits.schemas_bytes_max.0;
    }

    pub(super) fn ready(&self) -> MutexGuard<'_, ReadySchemas> {
        self.ready.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// What is ready.
#[derive(Debug)]
pub(super) struct ReadySchemas {
    bytes_max: u64,
    bytes: u64,
    tenants: HashMap<TenantId, HashMap<String, CachedSchema>>,
    /// Uses so far.
    uses: u64,
}

#[derive(Debug)]
struct CachedSchema {
    ready: Arc<Ready>,
    /// When it was last known to be what is stored.
    as_of: Time,
    /// The number of its last use.
    used: u64,
}

impl ReadySchemas {
    /// Nothing is ready.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, bytes: 0, tenants: HashMap::new(), uses: 0 }
    }

    /// A tenant's schema, and whether it is time to see what is stored: that is said once in a `span`.
    pub(super) fn get(
        &mut self,
        tenant: TenantId,
        name: &str,
        now: Time,
        span: Nanos,
    ) -> Option<(Arc<Ready>, bool)> {
        self.uses += 1;
        let entry = self.tenants.get_mut(&tenant)?.get_mut(name)?;
        entry.used = self.uses;
        let is_old = now.since(entry.as_of) >= span;
        if is_old {
            entry.as_of = now;
        }
        Some((Arc::clone(&entry.ready), is_old))
    }

    /// Holds a schema that is stored now, in place of the one of its name.
    pub(super) fn put(&mut self, tenant: TenantId, ready: Arc<Ready>, now: Time) {
        let name = ready.stored.name.clone();
        self.remove(tenant, &name);
        self.uses += 1;
        self.bytes += bytes(&ready);
        let entry = CachedSchema { ready, as_of: now, used: self.uses };
        self.tenants.entry(tenant).or_default().insert(name, entry);
        while self.bytes > self.bytes_max && self.evict(self.uses) {}
    }

    /// What `known` is now, unless it was replaced meanwhile.
    pub(super) fn renew(
        &mut self,
        tenant: TenantId,
        known: &Arc<Ready>,
        next: Option<Arc<Ready>>,
        now: Time,
    ) {
        let name = &known.stored.name;
        let entry = self.tenants.get_mut(&tenant).and_then(|schemas| schemas.get_mut(name));
        let Some(entry) = entry.filter(|entry| Arc::ptr_eq(&entry.ready, known)) else { return };
        match next {
            Some(next) if Arc::ptr_eq(&next, known) => entry.as_of = now,
            Some(next) => self.put(tenant, next, now),
            None => self.remove(tenant, name),
        }
    }

    /// Lets a schema go.
    pub(super) fn remove(&mut self, tenant: TenantId, name: &str) {
        let Some(schemas) = self.tenants.get_mut(&tenant) else { return };
        if let Some(entry) = schemas.remove(name) {
            self.bytes -= bytes(&entry.ready);
        }
        if schemas.is_empty() {
            self.tenants.remove(&tenant);
        }
    }

    /// Lets the least recently used go, unless that is the one of use `newest`. What is pinned stays: with it
    /// the pin would go.
    fn evict(&mut self, newest: u64) -> bool {
        let all = self.tenants.iter().flat_map(|(tenant, schemas)| {
            let free = schemas.iter().filter(|(_, entry)| entry.ready.pin.is_none());
            free.map(|(name, entry)| (entry.used, *tenant, name.clone()))
        });
        let Some((_, tenant, name)) = all.min().filter(|(used, ..)| *used != newest) else { return false };
        self.remove(tenant, &name);
        true
    }
}

/// What it counts for.
fn bytes(ready: &Ready) -> u64 {
    ready.stored.pml.len() as u64
}

#[cfg(test)]
mod tests {
    use base::TokenCount;
    use base::text::ByteText;
    use ir::pml::{Layout, Positions, Schema};
    use store::{StoredSchema, UnixMillis};

    use super::*;

    const SPAN: Nanos = Nanos(10);
    const ONE: TenantId = TenantId(1);
    const TWO: TenantId = TenantId(2);

    fn ready(name: &str, text: &str) -> Arc<Ready> {
        let pml = format!("<schema name=\"{name}\">{text}</schema>");
        let schema = Schema::parse(&pml).expect("valid");
        let positions = Positions { length_max: 99, can_shift: true, bounds_arguments: true };
        let layout = Layout::new(&schema, &ByteText, Err("none"), positions).expect("it fits");
        let (pinned, created) = (TokenCount(0), UnixMillis(0));
        Arc::new(Ready {
            stored: StoredSchema { name: name.into(), pml, pinned, created, updated: created },
            layout,
            pin: None,
        })
    }

    fn names(schemas: &mut ReadySchemas, tenant: TenantId) -> Vec<String> {
        let mut names: Vec<String> =
            schemas.tenants.get(&tenant).into_iter().flatten().map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_least_recently_used_schema_leaves_and_tenants_do_not_meet() {
        let each = bytes(&ready("a", "x"));
        let mut schemas = ReadySchemas::new(3 * each);
        for (tenant, name) in [(ONE, "a"), (ONE, "b"), (TWO, "a")] {
            schemas.put(tenant, ready(name, "x"), Time(0));
        }
        assert!(schemas.get(ONE, "a", Time(1), SPAN).is_some());
        assert!(schemas.get(TWO, "b", Time(1), SPAN).is_none());
        schemas.put(TWO, ready("c", "y"), Time(1));
        assert_eq!(
            (names(&mut schemas, ONE), names(&mut schemas, TWO)),
            (vec!["a".into()], vec!["a".into(), "c".into()])
        );
        schemas.bytes_max = 4 * each;
        schemas.put(TWO, ready("b", "z"), Time(1));
        assert_eq!(names(&mut schemas, TWO).len(), 3, "by another bound all stay");
        schemas.bytes_max = 3 * each;
        schemas.put(ONE, ready("d", &"long ".repeat(15)), Time(1));
        assert_eq!(
            (names(&mut schemas, ONE), names(&mut schemas, TWO)),
            (vec!["d".to_owned()], vec![]),
            "one always stays"
        );
        schemas.remove(ONE, "d");
        assert_eq!((schemas.bytes, schemas.tenants.len()), (0, 0));
    }

    #[test]
    fn the_store_is_looked_at_once_in_a_span_and_what_came_since_stays() {
        let mut schemas = ReadySchemas::new(1_000);
        let first = ready("a", "1");
        schemas.put(ONE, Arc::clone(&first), Time(0));
        let is_old = |schemas: &mut ReadySchemas, now| {
            schemas.get(ONE, "a", Time(now), SPAN).map(|(_, is_old)| is_old)
        };
        assert_eq!(
            (is_old(&mut schemas, 9), is_old(&mut schemas, 10), is_old(&mut schemas, 11)),
            (Some(false), Some(true), Some(false))
        );
        let second = ready("a", "2");
        schemas.renew(ONE, &first, Some(Arc::clone(&second)), Time(12));
        schemas.renew(ONE, &first, None, Time(13));
        let (found, _) =
            schemas.get(ONE, "a", Time(13), SPAN).expect("what replaced it is not what was looked for");
        assert!(Arc::ptr_eq(&found, &second));
        schemas.renew(ONE, &second, None, Time(14));
        assert!(schemas.get(ONE, "a", Time(14), SPAN).is_none());
    }
}
