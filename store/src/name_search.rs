//! Searches for names by their beginning: from the end of a list back, over so many entries at most, however long the list
//! is. (No index of both databases finds them: Postgres' follow the language that its database was made with.)

/// What is looked for, letter by letter, and how far.
#[derive(Clone, Copy, Debug)]
pub struct NameSearch<'a> {
    /// What the names begin with.
    pub prefix: &'a str,
    /// Entries before this number.
    pub before: Option<u64>,
    /// So many entries are looked at, at most.
    pub searched_max: u32,
    /// So many are found, at most: the last of them.
    pub found_max: u32,
}

impl NameSearch<'_> {
    /// Letters of what is looked for, as both databases count them.
    pub(crate) fn letters(&self) -> i64 {
        i64::from(i32::try_from(self.prefix.chars().count()).unwrap_or(i32::MAX))
    }
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesFound<T> {
    /// The oldest first.
    pub entries: Vec<T>,
    /// The last entry that was not looked at, where there is one.
    pub unsearched: Option<u64>,
}
