//! Waiting rows of one relQuery with equal beginnings, in the order of their prompts. Most groups have one row: it is
//! kept without a set, and compared with nothing when it goes.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::TokenId;

/// Where a row waits in its group: its prompt, and its number.
pub(crate) type GroupPlace = (Arc<[TokenId]>, u32);

/// The rows of a group, at least one.
#[derive(Clone, Debug)]
pub(crate) enum RowGroup {
    One(GroupPlace),
    /// Several, or what is left of them.
    Several(BTreeSet<GroupPlace>),
}

impl RowGroup {
    /// A row more waits.
    pub(crate) fn add(&mut self, place: GroupPlace) {
        match self {
            Self::One(one) => *self = Self::Several(BTreeSet::from([one.clone(), place])),
            Self::Several(rows) => {
                rows.insert(place);
            }
        }
    }

    /// Takes a row out; whether none is left, and the group is over.
    pub(crate) fn remove(&mut self, prompt: &Arc<[TokenId]>, number: u32) -> bool {
        match self {
            Self::One((_, one)) => *one == number,
            Self::Several(rows) => {
                rows.remove(&(Arc::clone(prompt), number));
                rows.is_empty()
            }
        }
    }

    /// The number of the row that goes first.
    pub(crate) fn first(&self) -> Option<u32> {
        match self {
            Self::One((_, number)) => Some(*number),
            Self::Several(rows) => rows.first().map(|(_, number)| *number),
        }
    }

    /// How many rows it has.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Several(rows) => rows.len(),
        }
    }

    /// The prompt of the row before this place.
    pub(crate) fn before(&self, place: &GroupPlace) -> Option<&Arc<[TokenId]>> {
        match self {
            Self::One(one) => (one < place).then_some(&one.0),
            Self::Several(rows) => rows.range(..place).next_back().map(|(prompt, _)| prompt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(token: u32, number: u32) -> GroupPlace {
        (Arc::from([TokenId(token)]), number)
    }

    #[test]
    fn rows_of_a_group_go_in_the_order_of_their_prompts_until_none_is_left() {
        let mut group = RowGroup::One(place(5, 0));
        assert_eq!(group.before(&place(4, 9)), None);
        assert_eq!(group.before(&place(5, 9)), Some(&place(5, 0).0));
        group.add(place(7, 1));
        group.add(place(3, 2));
        assert_eq!((group.len(), group.first()), (3, Some(2)));
        assert_eq!(group.before(&place(6, 9)), Some(&place(5, 0).0));
        for (token, number, next) in [(3, 2, Some(0)), (5, 0, Some(1)), (7, 1, None)] {
            assert_eq!(group.remove(&place(token, number).0, number), next.is_none());
            assert_eq!(group.first(), next);
        }
    }

    #[test]
    fn a_row_alone_leaves_its_group_by_its_number() {
        let mut group = RowGroup::One(place(5, 3));
        assert!(!group.remove(&place(5, 4).0, 4), "another row's number");
        assert_eq!((group.len(), group.first()), (1, Some(3)));
        assert!(group.remove(&place(5, 3).0, 3));
    }
}
