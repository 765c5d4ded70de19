//! Numbers in the order in which they came: any can be taken out, all in constant time.

/// A neighbour in the list: none at its ends.
type Neighbour = Option<u32>;

/// A number in the list, and the neighbours it has there.
#[derive(Clone, Copy, Debug, Default)]
struct ListEntry {
    is_listed: bool,
    older: Neighbour,
    younger: Neighbour,
}

/// The list, over numbers below a bound.
#[derive(Clone, Debug)]
pub(super) struct LruList {
    entries: Vec<ListEntry>,
    oldest: Neighbour,
    youngest: Neighbour,
    len: u32,
}

impl LruList {
    /// An empty list of numbers below `end`.
    pub(super) fn new(end: u32) -> Self {
        Self { entries: vec![ListEntry::default(); end as usize], oldest: None, youngest: None, len: 0 }
    }

    /// How many are listed.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Whether the number is listed.
    pub(super) fn contains(&self, number: u32) -> bool {
        self.entries[number as usize].is_listed
    }

    /// The one that came first.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.oldest
    }

    /// Adds a number at the young end. It is not listed yet.
    pub(super) fn push(&mut self, number: u32) {
        debug_assert!(!self.contains(number), "{number} is listed");
        let older = self.youngest;
        self.entries[number as usize] = ListEntry { is_listed: true, older, younger: None };
        match older {
            Some(older) => self.entries[older as usize].younger = Some(number),
            None => self.oldest = Some(number),
        }
        self.youngest = Some(number);
        self.len += 1;
    }

    /// Takes a number out; says whether it was listed.
    pub(super) fn remove(&mut self, number: u32) -> bool {
        let ListEntry { is_listed, older, younger } = std::mem::take(&mut self.entries[number as usize]);
        if !is_listed {
            return false;
        }
        match older {
            Some(older) => self.entries[older as usize].younger = younger,
            None => self.oldest = younger,
        }
        match younger {
            Some(younger) => self.entries[younger as usize].older = older,
            None => self.youngest = older,
        }
        self.len -= 1;
        true
    }

    /// The numbers listed, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.oldest, |number| self.entries[*number as usize].younger)
    }

    /// Both directions, the marks and the count say the same.
    pub(super) fn check(&self) -> Result<(), String> {
        let (mut count, mut last) = (0, None);
        for number in self.iter().take(self.entries.len() + 1) {
            let entry = &self.entries[number as usize];
            if !entry.is_listed || entry.older != last {
                return Err(format!("block {number} does not stand where the list has it"));
            }
            (count, last) = (count + 1, Some(number));
        }
        let marked = self.entries.iter().filter(|entry| entry.is_listed).count();
        if (count, last) != (self.len, self.youngest) || marked != self.len as usize {
            return Err(format!("{count} blocks in a list of {}", self.len));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_leave_in_the_order_they_came_and_from_anywhere() {
        let mut list = LruList::new(5);
        [3, 1, 4, 0].into_iter().for_each(|number| list.push(number));
        assert!(list.remove(4) && !list.remove(4) && !list.remove(2));
        list.push(2);
        assert_eq!((list.iter().collect::<Vec<_>>(), list.len()), (vec![3, 1, 0, 2], 4));
        assert!(list.remove(3) && list.remove(2));
        assert_eq!((list.oldest(), list.contains(1), list.check()), (Some(1), true, Ok(())));
        assert!(list.remove(1) && list.remove(0));
        assert_eq!((list.oldest(), list.len(), list.check()), (None, 0, Ok(())));
    }
}
