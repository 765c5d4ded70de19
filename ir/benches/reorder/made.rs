//! Tables for the stopwatch: the shape of a join of reviews with what they review, as wide as asked.

/// The next number of splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut number = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Columns in blocks of eight about one kind of thing, of which a few are in many rows: free text, title and
/// description (which say each other), its maker (said by both), a flag, a rating, a category, a measurement.
pub(crate) fn table(rows: usize, columns: usize) -> (Vec<String>, Vec<Vec<String>>) {
    let mut state = 20;
    let things = (rows as u64 / 20).max(1);
    let names = (0..columns).map(|column| format!("field_{column}")).collect();
    let mut made = Vec::with_capacity(rows);
    for _ in 0..rows {
        let mut thing = 0;
        let mut row = Vec::with_capacity(columns);
        for column in 0..columns {
            let number = next(&mut state);
            if column % 8 == 0 {
                // The lesser of two: small numbers are the frequent things.
                thing = (number % things).min(next(&mut state) % things);
            }
            row.push(match column % 8 {
                0 => words(number, 10 + number % 40),
                1 => words(thing, 4),
                2 => words(thing + things, 20 + thing % 50),
                3 => words(thing / 10, 2),
                4 => number.is_multiple_of(3).to_string(),
                5 => (number % 10).min(number / 16 % 10).to_string(),
                6 => words(number % 200, 2),
                _ => format!("{:.3}", (number % (rows as u64 * 2)) as f64 / 7.0),
            });
        }
        made.push(row);
    }
    (names, made)
}

/// So many words of six letters, which are the same for the same seed.
fn words(seed: u64, count: u64) -> String {
    let mut state = seed;
    let word = |state: &mut u64| format!("{:06x}", next(state) % 0x100_0000);
    (0..count).map(|_| word(&mut state)).collect::<Vec<_>>().join(" ")
}
