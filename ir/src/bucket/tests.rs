//! The buffer against sorting everything anew, and the rules of what leaves.

use proptest::prelude::*;

use super::BucketSettings;
use super::buffer::{Bucket, Buffer};

fn settings(rows_max: usize, bucket_min: usize) -> BucketSettings {
    BucketSettings { rows_max, bucket_min, match_min: 0.5, ..BucketSettings::default() }
}

fn filled(settings: BucketSettings, prompts: &[&str]) -> Buffer<u8, String> {
    let mut buffer = Buffer::new(settings);
    for prompt in prompts {
        buffer.push(prompt.as_bytes(), prompt.len() as u64, (*prompt).to_owned());
    }
    buffer
}

fn words(bucket: Option<Bucket<String>>) -> Vec<String> {
    bucket.map(|bucket| bucket.rows).unwrap_or_default()
}

#[test]
fn the_largest_bucket_leaves_first_and_small_ones_wait_for_more() {
    let mut buffer = filled(settings(100, 2), &["bbbb1", "aaaa2", "bbbb3", "aaaa1", "bbbb2", "c"]);
    assert_eq!(buffer.buckets(), 3);
    let first = buffer.pop(10, false).expect("three rows begin alike");
    assert_eq!(
        (first.rows.as_slice(), first.shared),
        (["bbbb1", "bbbb2", "bbbb3"].map(String::from).as_slice(), 4)
    );
    assert_eq!(words(buffer.pop(10, false)), ["aaaa1", "aaaa2"]);
    assert_eq!(buffer.pop(10, false), None, "a single row waits");
    buffer.push(*b"cc", 2, "cc".into());
    assert_eq!(words(buffer.pop(10, false)), ["c", "cc"], "and leaves with its like");
}

#[test]
fn small_buckets_leave_together_when_they_must() {
    let mut buffer = filled(settings(4, 3), &["a1", "b1", "c1"]);
    assert_eq!(buffer.pop(10, false), None);
    assert!(!buffer.is_full());
    buffer.push(*b"d1", 2, "d1".into());
    assert!(buffer.is_full());
    let merged = buffer.pop(10, false).expect("a full buffer gives rows");
    assert_eq!((merged.rows.len(), merged.shared), (3, 0));
    assert_eq!(words(buffer.pop(10, true)), ["d1"]);
    assert!(buffer.is_empty());
}

#[test]
fn a_bucket_that_is_cut_off_goes_on_before_larger_ones() {
    let mut buffer = filled(settings(100, 2), &["aaa1", "aaa2", "aaa3", "aaa4"]);
    assert_eq!(words(buffer.pop(2, false)), ["aaa1", "aaa2"]);
    assert_eq!(buffer.pop(0, true), None, "no room for any");
    for row in ["bbb1", "bbb2", "bbb3", "aaa0"] {
        buffer.push(row.as_bytes(), 4, row.into());
    }
    assert_eq!(words(buffer.pop(10, false)), ["aaa0", "aaa3", "aaa4"], "rows that came later join the rest");
    assert_eq!(words(buffer.pop(10, false)), ["bbb1", "bbb2", "bbb3"]);
}

#[test]
fn a_row_between_two_parts_them_where_it_has_little_of_one() {
    // All of `ab` is in both; the two longer ones have less than half in common.
    let mut buffer = filled(settings(100, 1), &["ab", "abzyyyyyyy"]);
    assert_eq!(buffer.buckets(), 1);
    buffer.push(*b"abyxxxxx", 8, "abyxxxxx".into());
    assert_eq!(buffer.buckets(), 2);
    assert_eq!(words(buffer.pop(10, false)), ["ab", "abyxxxxx"]);
}

#[test]
fn bytes_fill_the_buffer_too() {
    let mut buffer = Buffer::new(BucketSettings { bytes_max: 10, ..settings(100, 5) });
    buffer.push(*b"abc", 9, ());
    assert!(!buffer.is_full());
    buffer.push(*b"xyz", 1, ());
    assert!(buffer.is_full());
    assert!(buffer.pop(1, false).is_some() && !buffer.is_full());
}

#[test]
fn settings_that_cannot_work_are_named() {
    let bad = BucketSettings { match_min: f64::NAN, ..BucketSettings::default() };
    assert_eq!(bad.validate().map_err(|error| error.field), Err("match_min"));
    let bad = BucketSettings { rows_max: 0, ..BucketSettings::default() };
    assert_eq!(bad.validate().map_err(|error| error.field), Err("rows_max"));
    assert_eq!(BucketSettings::default().validate(), Ok(()));
}

/// The buckets of rows as the document says them: sort, then cut where neighbours have too little in common.
fn buckets_of(prompts: &[Vec<u8>], match_min: f64) -> Vec<usize> {
    let mut sorted = prompts.to_vec();
    sorted.sort();
    let mut sizes: Vec<usize> = Vec::new();
    for (number, prompt) in sorted.iter().enumerate() {
        let joined = number > 0 && {
            let before = &sorted[number - 1];
            let common = before.iter().zip(prompt).take_while(|(a, b)| a == b).count();
            let enough = |prompt: &Vec<u8>| common as f64 >= match_min * prompt.len() as f64;
            match (before.is_empty(), prompt.is_empty()) {
                (false, false) => enough(before) || enough(prompt),
                (a, b) => a == b,
            }
        };
        match sizes.last_mut().filter(|_| joined) {
            Some(size) => *size += 1,
            None => sizes.push(1),
        }
    }
    sizes
}

proptest! {
    /// Rows come and whole buckets go, in any interleaving: buckets are always those of a sort, every row
    /// leaves once, and what leaves is the largest.
    #[test]
    fn buckets_are_those_of_a_sort_at_any_time(
        steps in prop::collection::vec((prop::collection::vec(0u8..3, 0..7), prop::bool::weighted(0.2)), 1..60),
        match_min in prop::sample::select(vec![0.0, 0.33, 0.5, 1.0]),
    ) {
        let mut buffer = Buffer::new(BucketSettings { match_min, ..settings(1_000, 1) });
        let mut held: Vec<Vec<u8>> = Vec::new();
        let mut left = 0;
        for (prompt, pops) in &steps {
            buffer.push(prompt.as_slice(), 1, prompt.clone());
            held.push(prompt.clone());
            if *pops {
                let sizes = buckets_of(&held, match_min);
                let bucket = buffer.pop(usize::MAX, false).expect("rows are held");
                prop_assert_eq!(Some(&bucket.rows.len()), sizes.iter().max());
                left += bucket.rows.len();
                for row in &bucket.rows {
                    let place = held.iter().position(|prompt| prompt == row).expect("a row that is held");
                    held.swap_remove(place);
                }
            }
            prop_assert_eq!(buffer.buckets(), buckets_of(&held, match_min).len());
            prop_assert_eq!(buffer.len(), held.len());
        }
        while let Some(bucket) = buffer.pop(2, true) {
            prop_assert!(bucket.rows.len() <= 2);
            left += bucket.rows.len();
        }
        prop_assert_eq!(left, steps.len());
        prop_assert_eq!((buffer.len(), buffer.buckets(), buffer.bytes()), (0, 0, 0));
    }
}
