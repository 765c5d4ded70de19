//! What a library made, given back where it is dropped: where a later step of what it is for fails, nobody else would.

use std::mem::ManuallyDrop;

/// A handle or an address, and what gives it back.
pub(super) struct Owned<T: Copy> {
    raw: T,
    give_back: fn(T),
}

impl<T: Copy> Owned<T> {
    pub(super) fn new(raw: T, give_back: fn(T)) -> Self {
        Self { raw, give_back }
    }

    pub(super) fn raw(&self) -> T {
        self.raw
    }

    /// Leaves it to the caller, who gives it back.
    pub(super) fn keep(self) -> T {
        ManuallyDrop::new(self).raw
    }
}

impl<T: Copy> Drop for Owned<T> {
    fn drop(&mut self) {
        (self.give_back)(self.raw);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn made(count: &Cell<u32>) -> Owned<&Cell<u32>> {
        Owned::new(count, |count| count.set(count.get() + 1))
    }

    #[test]
    fn what_was_made_is_given_back_once_where_a_later_step_fails_and_not_where_it_is_kept() {
        let (first, second) = (Cell::new(0), Cell::new(0));
        let make = |later: Result<(), ()>| {
            let (first, second) = (made(&first), made(&second));
            later?;
            Ok::<_, ()>((first.keep(), second))
        };
        assert!(make(Err(())).is_err());
        assert_eq!((first.get(), second.get()), (1, 1));
        let (_, second_owned) = make(Ok(())).expect("nothing fails");
        assert_eq!((first.get(), second_owned.raw().get()), (1, 1));
        drop(second_owned);
        assert_eq!((first.get(), second.get()), (1, 2));
    }
}
