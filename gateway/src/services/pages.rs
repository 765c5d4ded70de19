//! Pages of lists that are in the order of numbers, read from the end back: what one call of the store reads is bounded,
//! however long a list is.

use store::NamesFound;

/// A page of a list.
#[derive(Debug, PartialEq, Eq)]
pub struct NewestPage<T> {
    /// In the list's order.
    pub entries: Vec<T>,
    /// Before this number are more; none: the page has the first of the list.
    pub before: Option<u64>,
}

impl<T> NewestPage<T> {
    /// The last of what was read, at most so many: one more than that, where it is there, says that the list has more.
    pub fn of_last(mut read: Vec<T>, rows_max: u32, number: impl Fn(&T) -> u64) -> Self {
        let surplus = read.len().saturating_sub(rows_max as usize);
        let left_out = read.drain(..surplus).next_back().map(|last| number(&last).saturating_add(1));
        let before = left_out.map(|behind| read.first().map_or(behind, number));
        Self { entries: read, before }
    }

    /// The same of a search, before which are more too where it did not look at all entries.
    pub fn of_found(found: NamesFound<T>, rows_max: u32, number: impl Fn(&T) -> u64) -> Self {
        let page = Self::of_last(found.entries, rows_max, number);
        let unsearched = found.unsearched.map(|last| last.saturating_add(1));
        Self { before: page.before.or(unsearched), ..page }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_tells_what_stands_before_it_where_there_is_more() {
        let of = |read: &[u64]| NewestPage::of_last(read.to_vec(), 2, |number| *number);
        assert_eq!(of(&[]), NewestPage { entries: vec![], before: None });
        assert_eq!(of(&[5, 7]), NewestPage { entries: vec![5, 7], before: None });
        assert_eq!(of(&[4, 5, 7]), NewestPage { entries: vec![5, 7], before: Some(5) });
        let none = NewestPage::of_last(vec![4, 7], 0, |number| *number);
        assert_eq!(
            none,
            NewestPage { entries: vec![], before: Some(8) },
            "a page without room has none of them"
        );
    }

    #[test]
    fn a_page_of_a_search_tells_what_was_not_looked_at() {
        let of = |entries: &[u64], unsearched| {
            let found = NamesFound { entries: entries.to_vec(), unsearched };
            NewestPage::of_found(found, 2, |number| *number)
        };
        assert_eq!(of(&[5, 7], None), NewestPage { entries: vec![5, 7], before: None });
        assert_eq!(of(&[5, 7], Some(3)), NewestPage { entries: vec![5, 7], before: Some(4) });
        assert_eq!(of(&[4, 5, 7], Some(3)), NewestPage { entries: vec![5, 7], before: Some(5) });
        assert_eq!(of(&[], Some(3)), NewestPage { entries: vec![], before: Some(4) });
    }
}
