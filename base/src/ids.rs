//! Identifiers. Each is a number that means nothing but identity.

use serde::{Deserialize, Serialize};

/// Declares an identifier newtype.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A tenant: the owner of API keys, budgets and a private part of every cache.
    TenantId(u64)
);
id!(
    /// One relQuery: a template over the rows of a table. Never used twice in a process.
    RelQueryId(u64)
);
id!(
    /// One request (row) of a relQuery. Never used twice in a process.
    RequestId(u64)
);
id!(
    /// What holds sections in the KV pool. Never used twice in a process; later ones have greater numbers.
    PinId(u64)
);
id!(
    /// A block of the KV pool: `block_tokens` positions of keys and values in every layer.
    BlockId(u32)
);
id!(
    /// A block of the host tier: as many bytes as a block of the KV pool, which it is a copy of.
    HostBlockId(u32)
);
id!(
    /// A model step, numbered from 1 in the order of planning.
    StepId(u64)
);
id!(
    /// An entry of the model's vocabulary.
    TokenId(u32)
);
