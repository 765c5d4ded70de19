//! Rows run with guesses and without.

use base::{End, RowError, Slot, TokenId};
use engine::executor::LocalExecutor;

use crate::common::{Row, step};

/// What became of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Told {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) text: String,
    pub(crate) end: Option<Result<End, RowError>>,
}

/// The slot that computes what follows the first `computed` positions, and guesses behind it.
pub(crate) fn guessing(row: &Row, computed: usize, guesses: &[TokenId]) -> Slot {
    let mut longer = row.clone();
    longer.tokens.extend(guesses);
    let wide = longer.slot(computed..longer.tokens.len());
    let slot = row.slot(computed..row.tokens.len());
    Slot { input: wide.input, write_blocks: wide.write_blocks, guesses: guesses.len() as u32, ..slot }
}

/// Runs rows together to their ends, `guess` saying what follows output `n` of row `r`; what they told, and
/// steps.
pub(crate) fn run(
    executor: &mut LocalExecutor,
    mut rows: Vec<Row>,
    guess: &dyn Fn(usize, usize) -> Vec<TokenId>,
) -> (Vec<Told>, usize) {
    let mut told = vec![Told::default(); rows.len()];
    let mut computed = vec![0; rows.len()];
    for steps in 0.. {
        let live: Vec<usize> = (0..rows.len()).filter(|at| told[*at].end.is_none()).collect();
        if live.is_empty() {
            return (told, steps);
        }
        let guesses: Vec<Vec<TokenId>> =
            live.iter().map(|at| guess(*at, rows[*at].tokens.len() - rows[*at].prompt)).collect();
        let slots =
            live.iter().zip(&guesses).map(|(at, guesses)| guessing(&rows[*at], computed[*at], guesses));
        let results = step(executor, slots.collect());
        for ((at, guesses), result) in live.into_iter().zip(guesses).zip(results) {
            let sampled = match result {
                Ok(sampled) => sampled,
                Err(error) => {
                    told[at].end = Some(Err(error));
                    continue;
                }
            };
            let equal = guesses.iter().zip(&sampled.tokens).take_while(|(a, b)| a == b).count();
            computed[at] = rows[at].tokens.len() + equal.min(sampled.tokens.len() - 1);
            rows[at].tokens.extend(&sampled.tokens);
            told[at].tokens.extend(&sampled.tokens);
            told[at].text.push_str(&sampled.text);
            told[at].end = sampled.end.map(Ok);
        }
    }
    unreachable!("steps are not counted to their end")
}

/// Guesses that know the outputs and are wrong now and then: from output `n` on up to seven tokens.
pub(crate) fn half_right(truth: &[Told]) -> impl Fn(usize, usize) -> Vec<TokenId> {
    let outputs: Vec<Vec<TokenId>> = truth.iter().map(|told| told.tokens.clone()).collect();
    move |row, from| {
        let chance = (row * 31 + from * 17) % 11;
        let mut guesses: Vec<TokenId> = outputs[row].iter().skip(from).take(chance.min(7)).copied().collect();
        if chance % 3 == 0
            && let Some(wrong) = guesses.get_mut(chance / 3)
        {
            *wrong = TokenId(wrong.0 ^ 1);
        }
        guesses
    }
}

/// Runs rows without guesses and with half-right ones: the same must come of both.
pub(crate) fn check(mut executor: impl FnMut() -> LocalExecutor, rows: &[Row], case: &str) -> Vec<Told> {
    let (plain, steps) = run(&mut executor(), rows.to_vec(), &|_, _| Vec::new());
    let (guessed, fewer) = run(&mut executor(), rows.to_vec(), &half_right(&plain));
    assert_eq!(guessed, plain, "{case}");
    assert!(fewer * 4 < steps * 3, "{case}: {fewer} steps of {steps}");
    plain
}
