//! Which fields a reader asks for, whether they are there or not.

use std::cell::RefCell;
use std::collections::BTreeSet;

thread_local! {
    static FIELDS: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// Notes a field by its full name; all places of an array are one.
pub(super) fn note(name: String) {
    let mut general = String::with_capacity(name.len());
    let mut is_place = false;
    for letter in name.chars() {
        match letter {
            '[' => is_place = true,
            ']' => {
                is_place = false;
                general.push_str("[]");
            }
            letter if !is_place => general.push(letter),
            _ => {}
        }
    }
    FIELDS.with_borrow_mut(|asked| asked.insert(general));
}

/// The fields that are asked for meanwhile, `calls[].function` for one of an array's.
pub(crate) fn asked_by(read: impl FnOnce()) -> BTreeSet<String> {
    FIELDS.take();
    read();
    FIELDS.take()
}
