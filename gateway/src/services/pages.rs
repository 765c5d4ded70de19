//! Pages of lists that are in the order of numbers, read from the end back: what one call of the store reads is bounded,
//! however long a list is.

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
        read.drain(..surplus);
        let before = read.first().filter(|_| surplus > 0).map(number);
        Self { entries: read, before }
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
    }
}
