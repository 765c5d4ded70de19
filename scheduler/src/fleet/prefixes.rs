//! What each replica was sent lately: beginnings of prompts by their hash, a bounded number per replica.
//!
//! A model of the replicas' prefix caches, not a mirror: nobody reports what they evict. So it forgets as
//! they do, the least recently sent first, and a wrong guess costs a computed prefix, never an answer.

use std::collections::BTreeMap;

use base::TokenId;

use super::config::ReplicaId;
use crate::kv::prefix::KeyMap;
use crate::kv::{BlockKey, Hasher};

/// The hashes of a prompt's beginnings, a block longer each; the scope is part of all of them.
pub(crate) fn chain(hasher: &Hasher, scope: u128, prompt: &[TokenId], block: u32) -> Box<[BlockKey]> {
    let mut parent = None;
    let blocks = prompt.chunks_exact(block as usize);
    blocks
        .map(|tokens| {
            let key = hasher.block(scope, parent, tokens);
            parent = Some(key);
            key
        })
        .collect()
}

/// The beginning by which rows count as alike: about a third of the prompt (daft's `prefix_match_threshold`),
/// as a power of two of blocks, so that rows of somewhat different lengths agree on it. A prompt shorter than
/// a block is like none or all others of its scope.
pub(crate) fn group(hasher: &Hasher, scope: u128, chain: &[BlockKey]) -> BlockKey {
    let third = (chain.len() / 3).max(1);
    let blocks = 1 << third.ilog2();
    chain.get(blocks - 1).copied().unwrap_or_else(|| hasher.block(scope, None, &[]))
}

/// The replicas that were sent a beginning, and when: a running number.
type Seen = Vec<(ReplicaId, u64)>;

/// The memory of all replicas.
#[derive(Clone, Debug)]
pub(crate) struct Prefixes {
    max: usize,
    stamp: u64,
    seen: KeyMap<BlockKey, Seen>,
    /// Each replica's beginnings, the least recent first.
    recent: BTreeMap<ReplicaId, BTreeMap<u64, BlockKey>>,
}

impl Prefixes {
    /// An empty memory of at most `max` beginnings per replica.
    pub(crate) fn new(max: u32) -> Self {
        Self { max: max as usize, stamp: 0, seen: KeyMap::default(), recent: BTreeMap::new() }
    }

    /// A prompt with these beginnings is sent to `replica`. The longest becomes the least recent of them: a
    /// beginning is worth keeping for as long as what continues it.
    pub(crate) fn send(&mut self, replica: ReplicaId, chain: &[BlockKey]) {
        if chain.is_empty() {
            return;
        }
        let recent = self.recent.entry(replica).or_default();
        for key in chain.iter().rev() {
            self.stamp += 1;
            let stamp = self.stamp;
            let seen = self.seen.entry(*key).or_default();
            match seen.iter_mut().find(|(other, _)| *other == replica) {
                Some((_, old)) => {
                    recent.remove(old);
                    *old = stamp;
                }
                None => seen.push((replica, stamp)),
            }
            recent.insert(stamp, *key);
            while recent.len() > self.max {
                let Some((_, oldest)) = recent.pop_first() else { break };
                drop_seen(&mut self.seen, oldest, replica);
            }
        }
    }

    /// The replica, of those that may be asked, that was sent this beginning most recently.
    pub(crate) fn latest(&self, key: BlockKey, may: impl Fn(ReplicaId) -> bool) -> Option<(u64, ReplicaId)> {
        let seen = self.seen.get(&key)?;
        seen.iter().filter(|(replica, _)| may(*replica)).map(|(replica, stamp)| (*stamp, *replica)).max()
    }

    /// How many blocks of a prompt some replica was sent.
    pub(crate) fn depth(&self, chain: &[BlockKey]) -> usize {
        chain.iter().take_while(|key| self.seen.contains_key(key)).count()
    }

    /// What a replica was sent, the most recent first.
    pub(crate) fn of(&self, replica: ReplicaId) -> impl Iterator<Item = (u64, BlockKey)> + '_ {
        let recent = self.recent.get(&replica).into_iter().flatten();
        recent.rev().map(|(stamp, key)| (*stamp, *key))
    }

    /// How much a replica was sent and is remembered.
    pub(crate) fn len(&self, replica: ReplicaId) -> usize {
        self.recent.get(&replica).map_or(0, BTreeMap::len)
    }

    /// The same of each replica that was sent anything, in the order of replicas.
    pub(crate) fn len_by_replica(&self) -> impl Iterator<Item = (ReplicaId, usize)> + '_ {
        self.recent.iter().map(|(replica, recent)| (*replica, recent.len()))
    }

    /// The replica has lost its memory.
    pub(crate) fn forget(&mut self, replica: ReplicaId) {
        for key in self.recent.remove(&replica).unwrap_or_default().into_values() {
            drop_seen(&mut self.seen, key, replica);
        }
    }

    /// Both directions agree, and neither is too long.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut entries = 0;
        for (replica, recent) in &self.recent {
            entries += recent.len();
            if recent.len() > self.max {
                return Err(format!("replica {replica}: {} prefixes of {}", recent.len(), self.max));
            }
            for (stamp, key) in recent {
                if !self.seen.get(key).is_some_and(|seen| seen.contains(&(*replica, *stamp))) {
                    return Err(format!("replica {replica}: a prefix is listed on one side only"));
                }
            }
        }
        let listed: usize = self.seen.values().map(Vec::len).sum();
        if listed != entries || self.seen.values().any(Vec::is_empty) {
            return Err(format!("{listed} prefixes are listed for {entries}"));
        }
        Ok(())
    }
}

fn drop_seen(all: &mut KeyMap<BlockKey, Seen>, key: BlockKey, replica: ReplicaId) {
    let Some(seen) = all.get_mut(&key) else { return };
    seen.retain(|(other, _)| *other != replica);
    if seen.is_empty() {
        all.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASHER: [u64; 2] = [1, 2];

    fn keys(tokens: &[u32], scope: u128) -> Box<[BlockKey]> {
        let tokens: Vec<TokenId> = tokens.iter().map(|token| TokenId(*token)).collect();
        chain(&Hasher::new(HASHER), scope, &tokens, 2)
    }

    #[test]
    fn a_chain_has_a_key_for_each_whole_block_and_names_its_scope() {
        let (one, other) = (keys(&[1, 2, 3, 4, 5], 7), keys(&[1, 2, 3, 9], 7));
        assert_eq!((one.len(), one[0]), (2, other[0]));
        assert_ne!(one[1], other[1]);
        assert_ne!(keys(&[1, 2], 8)[0], one[0]);
        assert!(keys(&[1], 7).is_empty());
    }

    #[test]
    fn the_latest_replica_is_found_and_the_oldest_prefix_given_up() {
        let mut prefixes = Prefixes::new(2);
        let [a, b] = [ReplicaId(1), ReplicaId(2)];
        let one = keys(&[1, 1], 0);
        prefixes.send(a, &one);
        prefixes.send(b, &one);
        let latest = |prefixes: &Prefixes| prefixes.latest(one[0], |_| true).map(|(_, replica)| replica);
        assert_eq!(latest(&prefixes), Some(b));
        prefixes.send(a, &one);
        assert_eq!(latest(&prefixes), Some(a));
        prefixes.send(a, &keys(&[2, 2, 3, 3], 0));
        assert_eq!(prefixes.check(), Ok(()));
        assert_eq!(latest(&prefixes), Some(b), "two others have pushed it out");
        prefixes.forget(b);
        assert_eq!((latest(&prefixes), prefixes.len(a), prefixes.len(b)), (None, 2, 0));
        assert_eq!(prefixes.len_by_replica().collect::<Vec<_>>(), [(a, 2)]);
        assert_eq!(prefixes.check(), Ok(()));
    }

    #[test]
    fn rows_are_alike_by_a_third_of_their_prompts() {
        let hasher = Hasher::new(HASHER);
        let prompt = |own: u32| (0..12).map(|i| if i < 4 { 5 } else { own + i }).collect::<Vec<u32>>();
        let (one, other) = (keys(&prompt(10), 7), keys(&prompt(50), 7));
        assert_eq!(group(&hasher, 7, &one), group(&hasher, 7, &other));
        assert_eq!(group(&hasher, 7, &one), one[1]);
        assert_eq!(group(&hasher, 7, &[]), group(&hasher, 7, &[]));
        assert_ne!(group(&hasher, 7, &[]), group(&hasher, 8, &[]));
    }
}
