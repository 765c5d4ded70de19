//! Names of blocks by content, and the index from name to block.
//!
//! A block's key is a keyed 128-bit hash over tagged fields: scope, kind, the parent's key, the
//! tokens. The key only finds a candidate: a hit is taken after the tokens, the scope and the link to
//! the parent are compared, so that even a forced collision shares nothing (tenants are scopes).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher as _};
use std::ops::Range;

use base::{BlockId, HostBlockId, TokenId};
use siphasher::sip128::{Hasher128, SipHasher24};

/// The hash of a block's content and of everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey(pub u128);

/// The identity of one publication of a block; a child names its parent by it. 0 is the start of a
/// prompt. Never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublicationId(pub u64);

/// Domain tags: no field can be mistaken for another, whatever its bytes.
mod tag {
    pub(super) const SCOPE: u8 = 1;
    pub(super) const KIND: u8 = 2;
    pub(super) const PARENT: u8 = 3;
    pub(super) const TOKENS: u8 = 4;
    pub(super) const NUMBERING: u8 = 5;
    pub(super) const SEEN: u8 = 6;
    pub(super) const SEEN_PART: u8 = 7;
    /// Blocks that saw all tokens before them (DESIGN 3: exact reuse).
    pub(super) const KIND_EXACT: u8 = 1;
    /// Blocks that saw their own unit only.
    pub(super) const KIND_INDEPENDENT: u8 = 2;
}

/// Makes keys.
#[derive(Clone, Debug)]
pub struct Hasher {
    key: [u64; 2],
    /// Bits kept of a key; fewer than 128 only in tests that force collisions.
    bits: u32,
}

impl Hasher {
    /// A hasher under a secret.
    pub fn new(key: [u64; 2]) -> Self {
        Self { key, bits: 128 }
    }

    /// A hasher that keeps `bits` bits, to force collisions in a test.
    #[cfg(test)]
    pub(crate) fn truncated(key: [u64; 2], bits: u32) -> Self {
        Self { key, bits }
    }

    /// The key of a block in `scope` with these tokens after `parent` (`None`: at the start).
    pub fn block(&self, scope: u128, parent: Option<BlockKey>, tokens: &[TokenId]) -> BlockKey {
        let mut state = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        match parent {
            None => {
                state.write_u8(tag::SCOPE);
                state.write_u128(scope);
                state.write_u8(tag::KIND);
                state.write_u8(tag::KIND_EXACT);
            }
            Some(parent) => {
                state.write_u8(tag::PARENT);
                state.write_u128(parent.0);
            }
        }
        state.write_u8(tag::TOKENS);
        state.write_u64(tokens.len() as u64);
        for token in tokens {
            state.write_u32(token.0);
        }
        let hash = state.finish128().as_u128();
        BlockKey(if self.bits >= 128 { hash } else { hash & ((1 << self.bits) - 1) })
    }
}

/// Tokens of a section, as another sees them.
#[derive(Clone, Debug)]
pub(crate) struct SeenTokens {
    /// The section's last key.
    pub(crate) key: BlockKey,
    /// Which of its tokens; `None`: all.
    pub(crate) part: Option<Range<u32>>,
    /// By how many positions further on they are read.
    pub(crate) shift: u32,
}

impl Hasher {
    /// What the keys of a section's blocks begin with: all that its tokens see before it, in order, so that
    /// the same text after other text never has the same name.
    pub(crate) fn section(
        &self,
        scope: u128,
        is_exact: bool,
        numbering: u32,
        seen: impl Iterator<Item = SeenTokens>,
    ) -> u128 {
        let mut state = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        state.write_u8(tag::SCOPE);
        state.write_u128(scope);
        state.write_u8(tag::KIND);
        state.write_u8(if is_exact { tag::KIND_EXACT } else { tag::KIND_INDEPENDENT });
        state.write_u8(tag::NUMBERING);
        state.write_u32(numbering);
        for SeenTokens { key, part, shift } in seen {
            state.write_u8(if part.is_some() { tag::SEEN_PART } else { tag::SEEN });
            state.write_u128(key.0);
            state.write_u32(shift);
            if let Some(part) = part {
                state.write_u32(part.start);
                state.write_u32(part.end);
            }
        }
        state.finish128().as_u128()
    }
}

/// Keys are hashes already: the map takes their low bits.
#[derive(Default)]
pub struct KeyBits(u64);

impl std::hash::Hasher for KeyBits {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.0 = u64::from(value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }
}

/// A map by key. Whoever reads all of it must come to the same in any order.
pub(crate) type KeyMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyBits>>;

/// Where a content lies; never in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockPlace {
    /// In the pool.
    Device(BlockId),
    /// In the host tier: it is to be moved back before it is read.
    Host(HostBlockId),
}

/// What a published block holds.
#[derive(Clone, Debug)]
struct Published {
    key: BlockKey,
    scope: u128,
    parent: PublicationId,
    link: PublicationId,
    tokens: Box<[TokenId]>,
}

/// Blocks by content.
#[derive(Clone, Debug)]
pub(crate) struct PrefixIndex {
    by_key: KeyMap<BlockKey, BlockPlace>,
    on_device: Vec<Option<Published>>,
    on_host: Vec<Option<Published>>,
    links: u64,
}

/// What came of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publication {
    /// The block can be hit from now on.
    New(PublicationId),
    /// Another block has the same content; this one stays private.
    Known(PublicationId),
    /// Another content has the same key; this block and what follows it stay private.
    Collision,
}

impl PrefixIndex {
    pub(crate) fn new(blocks: u32, host_blocks: u32) -> Self {
        let none = |blocks| vec![None; blocks as usize];
        Self { by_key: KeyMap::default(), on_device: none(blocks), on_host: none(host_blocks), links: 0 }
    }

    fn content(&self, place: BlockPlace) -> Option<&Published> {
        match place {
            BlockPlace::Device(block) => self.on_device[block.0 as usize].as_ref(),
            BlockPlace::Host(block) => self.on_host[block.0 as usize].as_ref(),
        }
    }

    fn content_mut(&mut self, place: BlockPlace) -> &mut Option<Published> {
        match place {
            BlockPlace::Device(block) => &mut self.on_device[block.0 as usize],
            BlockPlace::Host(block) => &mut self.on_host[block.0 as usize],
        }
    }

    /// Where this content after `parent` lies, compared token by token.
    pub(crate) fn find(
        &self,
        scope: u128,
        parent: PublicationId,
        key: BlockKey,
        tokens: &[TokenId],
    ) -> Option<(BlockPlace, PublicationId)> {
        let place = *self.by_key.get(&key)?;
        let published = self.content(place)?;
        let same = published.parent == parent && published.scope == scope && *published.tokens == *tokens;
        same.then_some((place, published.link))
    }

    /// Where this content lies after a parent that is gone: a failed row's, whose neighbours built on
    /// it. Nothing finds it, and it would keep the content from being published again.
    pub(crate) fn orphan(
        &self,
        scope: u128,
        parent: PublicationId,
        key: BlockKey,
        tokens: &[TokenId],
    ) -> Option<BlockPlace> {
        let place = *self.by_key.get(&key)?;
        let published = self.content(place)?;
        let same = published.scope == scope && *published.tokens == *tokens;
        (same && published.parent != parent).then_some(place)
    }

    pub(crate) fn publish(
        &mut self,
        block: BlockId,
        scope: u128,
        parent: PublicationId,
        key: BlockKey,
        tokens: &[TokenId],
    ) -> Publication {
        if self.by_key.contains_key(&key) {
            return match self.find(scope, parent, key, tokens) {
                Some((_, link)) => Publication::Known(link),
                None => Publication::Collision,
            };
        }
        self.links += 1;
        let link = PublicationId(self.links);
        self.by_key.insert(key, BlockPlace::Device(block));
        let published = Published { key, scope, parent, link, tokens: tokens.into() };
        self.on_device[block.0 as usize] = Some(published);
        Publication::New(link)
    }

    /// The content is found at `to` from now on, under the name it has; says of how many tokens it is, if
    /// there is one.
    pub(crate) fn relocate(&mut self, from: BlockPlace, to: BlockPlace) -> Option<u32> {
        let published = self.content_mut(from).take()?;
        let tokens = published.tokens.len() as u32;
        self.by_key.insert(published.key, to);
        let replaced = self.content_mut(to).replace(published);
        debug_assert!(replaced.is_none(), "a block holds one content");
        Some(tokens)
    }

    /// Forgets the content there; says whether there was any.
    pub(crate) fn forget(&mut self, place: BlockPlace) -> bool {
        match self.content_mut(place).take() {
            Some(published) => {
                self.by_key.remove(&published.key);
                true
            }
            None => false,
        }
    }

    pub(crate) fn is_published(&self, place: BlockPlace) -> bool {
        self.content(place).is_some()
    }

    /// Contents that lie in the host tier.
    pub(crate) fn host_len(&self) -> u32 {
        self.on_host.iter().flatten().count() as u32
    }

    /// Every content is found under its key, once, and nothing else is.
    pub(crate) fn check(&self) -> Result<(), String> {
        let device = self
            .on_device
            .iter()
            .zip(0..)
            .map(|(content, block)| (content, BlockPlace::Device(BlockId(block))));
        let host = self
            .on_host
            .iter()
            .zip(0..)
            .map(|(content, block)| (content, BlockPlace::Host(HostBlockId(block))));
        let mut published = 0;
        for (content, place) in device.chain(host) {
            let Some(content) = content else { continue };
            published += 1;
            if self.by_key.get(&content.key) != Some(&place) {
                return Err(format!("what lies at {place:?} is published but not found under its key"));
            }
        }
        if published != self.by_key.len() {
            return Err(format!("{} keys for {published} published blocks", self.by_key.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().map(|id| TokenId(*id)).collect()
    }

    #[test]
    fn scope_parent_and_tokens_all_change_the_key() {
        let hasher = Hasher::new([1, 2]);
        let first = hasher.block(7, None, &tokens(&[1, 2]));
        assert_eq!(first, hasher.block(7, None, &tokens(&[1, 2])));
        assert_ne!(first, hasher.block(8, None, &tokens(&[1, 2])));
        assert_ne!(first, hasher.block(7, Some(first), &tokens(&[1, 2])));
        assert_ne!(first, hasher.block(7, None, &tokens(&[1, 3])));
        assert_ne!(first, Hasher::new([1, 3]).block(7, None, &tokens(&[1, 2])));
    }

    #[test]
    fn a_scope_that_equals_a_parent_key_is_not_that_parent() {
        let hasher = Hasher::new([1, 2]);
        let parent = hasher.block(7, None, &tokens(&[1]));
        assert_ne!(hasher.block(parent.0, None, &tokens(&[2])), hasher.block(7, Some(parent), &tokens(&[2])));
    }

    #[test]
    fn a_forced_collision_shares_nothing_between_scopes_or_contents() {
        let hasher = Hasher::truncated([1, 2], 0);
        let mut index = PrefixIndex::new(4, 0);
        let key = hasher.block(7, None, &tokens(&[1, 2]));
        assert_eq!(key, hasher.block(8, None, &tokens(&[1, 2])));
        assert!(matches!(
            index.publish(BlockId(0), 7, PublicationId(0), key, &tokens(&[1, 2])),
            Publication::New(_)
        ));
        assert!(index.find(7, PublicationId(0), key, &tokens(&[1, 2])).is_some());
        assert_eq!(index.find(8, PublicationId(0), key, &tokens(&[1, 2])), None);
        assert_eq!(index.find(7, PublicationId(0), key, &tokens(&[1, 3])), None);
        assert_eq!(index.find(7, PublicationId(9), key, &tokens(&[1, 2])), None);
        assert_eq!(
            index.publish(BlockId(1), 8, PublicationId(0), key, &tokens(&[1, 2])),
            Publication::Collision
        );
        assert_eq!(index.check(), Ok(()));
    }
}
