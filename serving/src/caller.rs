//! Who calls, once a door has established it: tenant, weight and prefix-cache namespace.
//!
//! The namespace is derived here, so that no client can choose it. Must not know keys or headers.

use base::TenantId;
use sha2::{Digest, Sha256};

/// What is known of a tenant's member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightedTenant {
    pub tenant: TenantId,
    /// Its weight, in thousandths.
    pub weight: u32,
}

impl WeightedTenant {
    /// A tenant of the usual weight.
    pub fn usual(tenant: TenantId) -> Self {
        Self { tenant, weight: 1_000 }
    }

    /// A tenant with a stored weight. The scheduler takes a thousandth at least: nobody is shut out by a
    /// weight.
    pub fn weighted(tenant: TenantId, weight: f64) -> Self {
        Self { tenant, weight: (weight * 1_000.0).round().clamp(1.0, 1e9) as u32 }
    }

    /// A tenant of the store.
    pub fn of(tenant: &store::Tenant) -> Self {
        Self::weighted(tenant.id, tenant.weight)
    }
}

/// An authenticated caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub tenant: TenantId,
    /// Its share of the machine relative to others, in thousandths.
    pub weight: u32,
}

impl Caller {
    /// The caller of a tenant.
    pub fn of(WeightedTenant { tenant, weight }: WeightedTenant) -> Self {
        Self { tenant, weight }
    }

    /// Its prefix-cache namespace, on a model revision.
    pub fn scope(self, revision: u128) -> u128 {
        let digest = Sha256::new()
            .chain_update(b"relserve prefix scope")
            .chain_update(revision.to_le_bytes())
            .chain_update(self.tenant.0.to_le_bytes())
            .finalize();
        let half: [u8; 16] = digest[..16].try_into().expect("a SHA-256 has 32 bytes");
        u128::from_le_bytes(half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_and_revisions_have_scopes_of_their_own() {
        let scope = |tenant, revision| Caller::of(WeightedTenant::usual(TenantId(tenant))).scope(revision);
        assert_ne!(scope(1, 1), scope(2, 1));
        assert_ne!(scope(1, 1), scope(1, 2));
        assert_eq!(scope(1, 1), scope(1, 1));
    }
}
