//! Log probabilities, penalties and the other changes of logits, held against the definitions over logits that a
//! decoder of the test's own computes.

mod common;
#[path = "common/guesses.rs"]
mod guesses;

use std::sync::Arc;

use base::text::ByteText;
use base::{
    Constraint, End, Generation, LogitAdjustments, RowError, TokenCount, TokenId, TokenLogprob,
    Tokenizer as _,
};
use common::{Bare, Blocks, Row, decoder_on, executor_of, log_softmax, step, tokens, widening};
use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::executor::LocalExecutor;
use guesses::{check, guessing};

const BLOCK: usize = 8;
const OUTPUTS: u64 = 20;

/// Other batch shapes add up in another order.
const TOLERANCE: f64 = 1e-3;

fn model() -> Synthetic {
    Synthetic { dtype: Dtype::F32, ..Synthetic::tiny(Family::Llama, 31) }
}

fn load() -> LocalExecutor {
    let model = model();
    executor_of(decoder_on(widening(), &model, &model.weights()), BLOCK as u32)
}

fn row(generation: Generation) -> Row {
    let row = Row::new(3, tokens(3, 11), 72, BLOCK, &mut Blocks::default());
    let generation = Generation { output_max: TokenCount(OUTPUTS), ignore_end: true, ..generation };
    Row { generation: Arc::new(generation), ..row }
}

fn adjusted(adjustments: LogitAdjustments) -> Generation {
    Generation { adjustments: Some(Box::new(adjustments)), ..Generation::default() }
}

/// A row that has ended.
struct EndedRow {
    row: Row,
    text: String,
    end: Option<End>,
    logprobs: Vec<Option<TokenLogprob>>,
}

impl EndedRow {
    fn outputs(&self) -> &[TokenId] {
        &self.row.tokens[self.row.prompt..]
    }

    /// Logits of each token of the output, computed together.
    fn logits(&self) -> Vec<Vec<f64>> {
        let (mut row, model) = (self.row.clone(), model());
        let outputs = row.tokens.split_off(row.prompt);
        let slot = guessing(&row, 0, &outputs[..outputs.len() - 1]);
        let mut bare = Bare::new(decoder_on(widening(), &model, &model.weights()), BLOCK as u32);
        let vocab = ByteText.vocab_size() as usize;
        let all = bare.logits(&[slot]).into_iter();
        all.map(|logits| logits[..vocab].iter().map(|logit| f64::from(*logit)).collect()).collect()
    }
}

/// Runs a row to its end; `guess` says what follows output `n`.
fn run(mut executor: LocalExecutor, mut row: Row, guess: &dyn Fn(usize) -> Vec<TokenId>) -> EndedRow {
    let (mut text, mut logprobs, mut computed) = (String::new(), Vec::new(), 0);
    loop {
        let guesses = guess(row.tokens.len() - row.prompt);
        let slot = guessing(&row, computed, &guesses);
        let sampled = step(&mut executor, vec![slot]).remove(0).expect("logits are numbers");
        let equal = guesses.iter().zip(&sampled.tokens).take_while(|(a, b)| a == b).count();
        computed = row.tokens.len() + equal.min(sampled.tokens.len() - 1);
        row.tokens.extend(&sampled.tokens);
        text += &sampled.text;
        logprobs.extend(sampled.logprobs);
        if let Some(end) = sampled.end {
            return EndedRow { row, text, end: Some(end), logprobs };
        }
    }
}

fn alone(generation: Generation) -> EndedRow {
    run(load(), row(generation), &|_| Vec::new())
}

fn highest(logits: &[f64]) -> (usize, f64) {
    let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]).then(b.cmp(a)));
    best.map(|best| (best, logits[best])).expect("there are tokens")
}

/// Holds the log probabilities of an output against its logits.
fn check_logprobs(ended: &EndedRow, top: usize, case: &str) {
    let (mut sum, mut expected_sum) = (0.0, 0.0);
    assert_eq!(ended.logprobs.len(), ended.outputs().len(), "{case}");
    for ((token, told), logits) in ended.outputs().iter().zip(&ended.logprobs).zip(ended.logits()) {
        let exact = log_softmax(&logits);
        let Some(told) = told else {
            assert_eq!(*token, ByteText::END, "{case}: what has text is told");
            continue;
        };
        let expected = exact[token.0 as usize];
        assert!((told.chosen.logprob - expected).abs() < TOLERANCE, "{case}: {told:?}, not {expected}");
        assert_eq!(told.chosen.bytes, Some(vec![token.0 as u8]), "{case}");
        (sum, expected_sum) = (sum + told.chosen.logprob, expected_sum + expected);
        let likely: Vec<f64> = told.top.iter().map(|one| one.logprob).collect();
        assert_eq!(likely.len(), top, "{case}");
        assert!(likely.is_sorted_by(|a, b| a >= b), "{case}: {likely:?}");
        let mut sorted = exact.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        assert!(likely.iter().zip(&sorted).all(|(a, b)| (a - b).abs() < TOLERANCE), "{case}: {likely:?}");
        assert!(likely.iter().map(|likely| likely.exp()).sum::<f64>() <= 1.0 + 1e-6, "{case}");
    }
    assert!((sum - expected_sum).abs() < TOLERANCE, "{case}: {sum}, not {expected_sum}");
}

#[test]
fn tokens_are_as_likely_as_the_models_logits_say_whatever_draws_them_and_whatever_is_guessed() {
    let penalised = LogitAdjustments { presence_penalty: 2.0, min_p: 0.1, ..LogitAdjustments::default() };
    for (case, generation) in [
        ("greedy", Generation::default()),
        ("warm", Generation { temperature: 1.7, top_p: 0.9, ..Generation::default() }),
        ("penalised", Generation { temperature: 0.8, ..adjusted(penalised) }),
    ] {
        let asked = Generation { logprobs: Some(5), ..generation.clone() };
        let plain = alone(asked.clone());
        check_logprobs(&plain, 5, case);
        assert_eq!(plain.outputs(), alone(generation).outputs(), "{case}: asking changes nothing");
        let truth = plain.outputs().to_vec();
        let half_right = |from: usize| {
            let mut guesses: Vec<TokenId> = truth.iter().skip(from).take(from % 6).copied().collect();
            if let Some(last) = guesses.last_mut().filter(|_| from % 4 == 1) {
                last.0 ^= 1;
            }
            guesses
        };
        let guessed = run(load(), row(asked), &half_right);
        assert_eq!(guessed.outputs(), plain.outputs(), "{case}");
        check_logprobs(&guessed, 5, &format!("{case} through guesses"));
    }
}

/// A row's logits as the definitions change them: first biases, then repetition, frequency, presence.
fn changed(logits: &[f64], adjustments: &LogitAdjustments, prompt: &[TokenId], said: &[TokenId]) -> Vec<f64> {
    let mut logits = logits.to_vec();
    for (token, bias) in &adjustments.logit_bias {
        logits[token.0 as usize] += f64::from(*bias);
    }
    for (token, logit) in (0..).zip(&mut logits) {
        let count = said.iter().filter(|one| one.0 == token).count();
        if count > 0 || prompt.contains(&TokenId(token)) {
            let penalty = f64::from(adjustments.repetition_penalty);
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
        if count > 0 {
            *logit -= f64::from(adjustments.frequency_penalty) * count as f64;
            *logit -= f64::from(adjustments.presence_penalty);
        }
    }
    logits
}

#[test]
fn a_greedy_row_says_what_is_likeliest_after_its_adjustments() {
    let none = LogitAdjustments::default();
    let free = alone(Generation::default());
    let (first, prompt) = (free.outputs()[0], free.row.tokens[0]);
    for adjustments in [
        LogitAdjustments { presence_penalty: 1.5, ..none.clone() },
        LogitAdjustments { frequency_penalty: 0.5, ..none.clone() },
        LogitAdjustments { frequency_penalty: -2.0, presence_penalty: -2.0, ..none.clone() },
        LogitAdjustments { repetition_penalty: 1.8, ..none.clone() },
        LogitAdjustments { repetition_penalty: 0.2, ..none.clone() },
        LogitAdjustments { logit_bias: vec![(first, -50.0), (TokenId(65), 1.0)], ..none.clone() },
        LogitAdjustments {
            logit_bias: vec![(prompt, 2.0)],
            repetition_penalty: 1.3,
            frequency_penalty: 0.7,
            presence_penalty: 0.2,
            ..none
        },
    ] {
        let ended = alone(adjusted(adjustments.clone()));
        let (prompt, outputs) = ended.row.tokens.split_at(ended.row.prompt);
        for (at, logits) in ended.logits().iter().enumerate() {
            let after = changed(logits, &adjustments, prompt, &outputs[..at]);
            let (best, most) = highest(&after);
            let said = outputs[at].0 as usize;
            assert!(after[said] > most - TOLERANCE, "{adjustments:?}: {said} at {at}, not {best}");
        }
        assert_ne!(outputs, free.outputs(), "{adjustments:?} changes what is said");
    }
}

#[test]
fn nothing_is_drawn_that_is_less_likely_than_min_p_of_the_likeliest() {
    let (temperature, min_p) = (3.0, 0.4);
    let least = |ended: &EndedRow| {
        let share = |(token, logits): (&TokenId, &Vec<f64>)| {
            ((logits[token.0 as usize] - highest(logits).1) / temperature).exp()
        };
        ended.outputs().iter().zip(&ended.logits()).map(share).fold(1.0, f64::min)
    };
    let warm = Generation { temperature: temperature as f32, ..Generation::default() };
    assert!(least(&alone(warm.clone())) < min_p, "else this shows nothing");
    let adjustments = LogitAdjustments { min_p: min_p as f32, ..LogitAdjustments::default() };
    let cut = alone(Generation { temperature: warm.temperature, ..adjusted(adjustments) });
    assert!(least(&cut) > min_p - TOLERANCE, "{}", least(&cut));
    let only = LogitAdjustments { min_p: 1.0, ..LogitAdjustments::default() };
    let only = alone(Generation { temperature: warm.temperature, ..adjusted(only) });
    assert_eq!(only.outputs(), alone(Generation::default()).outputs(), "nothing but the likeliest is left");
}

#[test]
fn an_output_ends_no_sooner_than_its_least_length() {
    let wants_end = |output_min: u64| LogitAdjustments {
        output_min: TokenCount(output_min),
        logit_bias: vec![(ByteText::END, 100.0)],
        ..LogitAdjustments::default()
    };
    for output_min in [0, 1, 5] {
        let row = row(adjusted(wants_end(output_min)));
        let generation = Generation { ignore_end: false, ..(*row.generation).clone() };
        let row = Row { generation: Arc::new(generation), ..row };
        let ended = run(load(), row.clone(), &|_| Vec::new());
        assert_eq!((ended.outputs().len() as u64, ended.end), (output_min + 1, Some(End::Stop)));
        let guesses = ended.outputs().to_vec();
        let guessed = run(load(), row, &|from| guesses[from..].to_vec());
        assert_eq!(guessed.outputs(), ended.outputs());
    }
    let free = alone(Generation::default());
    let stop = Generation { stop_tokens: vec![free.outputs()[0]], ..Generation::default() };
    assert_eq!(alone(stop.clone()).outputs().len(), 1);
    let late = LogitAdjustments { output_min: TokenCount(4), ..LogitAdjustments::default() };
    let late = Generation { adjustments: Some(Box::new(late)), ..stop };
    assert!(!alone(late).outputs()[..4].contains(&free.outputs()[0]));
    // A stop string counts from there on as well.
    let same = adjusted(LogitAdjustments {
        logit_bias: vec![(TokenId(u32::from(b'a')), 100.0)],
        output_min: TokenCount(4),
        ..LogitAdjustments::default()
    });
    let ended = alone(Generation { stop: vec!["a".into()], ..same });
    assert_eq!((ended.text.as_str(), ended.end), ("aaaa", Some(End::StopText(0))));
}

#[test]
fn what_ends_an_output_is_told_where_that_is_asked_for() {
    let says = |token: TokenId| {
        adjusted(LogitAdjustments { logit_bias: vec![(token, 100.0)], ..LogitAdjustments::default() })
    };
    let a = TokenId(u32::from(b'a'));
    let text = |generation: Generation| alone(generation).text;
    let stop = Generation { stop: vec!["aaa".into()], ..says(a) };
    assert_eq!(text(stop.clone()), "");
    assert_eq!(text(Generation { shows_stop: true, ..stop }), "aaa");
    let token = Generation { stop_tokens: vec![a], ..says(a) };
    assert_eq!(text(token.clone()), "");
    assert_eq!(text(Generation { shows_stop: true, ..token }), "a");
    assert_eq!(text(says(ByteText::END)), "", "it has no text");
    let special = Generation { shows_special: true, ..says(ByteText::END) };
    assert_eq!(text(special.clone()), "<end>".repeat(OUTPUTS as usize));
    let told = alone(Generation { logprobs: Some(1), ..special });
    let first = told.logprobs[0].as_ref().expect("it is shown");
    assert_eq!((first.chosen.token.as_str(), first.chosen.bytes.as_deref()), ("<end>", Some(&b"<end>"[..])));
}

#[test]
fn nothing_is_drawn_that_is_not_listed_and_what_is_told_of_it_is_the_models_own() {
    let listed = [3, 65, 200].map(TokenId).to_vec();
    let only = LogitAdjustments { allowed: Some(listed.clone()), ..LogitAdjustments::default() };
    let free = alone(Generation::default());
    assert!(free.outputs().iter().any(|token| !listed.contains(token)), "else this shows nothing");
    for temperature in [0.0, 2.0] {
        let asked = Generation { temperature, logprobs: Some(2), ..adjusted(only.clone()) };
        let ended = alone(asked.clone());
        assert!(ended.outputs().iter().all(|token| listed.contains(token)), "{:?}", ended.outputs());
        check_logprobs(&ended, 2, "of the model as it is");
        for (at, logits) in ended.logits().iter().enumerate().filter(|_| temperature == 0.0) {
            let own = |token: &TokenId| logits[token.0 as usize];
            let most = listed.iter().map(own).fold(f64::NEG_INFINITY, f64::max);
            assert!(own(&ended.outputs()[at]) > most - TOLERANCE, "the likeliest of them, at {at}");
        }
        let truth = ended.outputs().to_vec();
        let guessed = run(load(), row(asked), &|from| truth.iter().skip(from).take(4).copied().collect());
        assert_eq!(guessed.outputs(), ended.outputs());
    }
    // A bias counts among those that are listed, and for nobody else.
    let biased = LogitAdjustments { logit_bias: vec![(TokenId(9), 100.0), (TokenId(200), 90.0)], ..only };
    let biased = alone(adjusted(biased));
    assert!(biased.outputs().iter().all(|token| *token == TokenId(200)), "{:?}", biased.outputs());
}

#[test]
fn a_list_and_a_constraint_hold_together_and_a_row_that_can_say_nothing_says_why() {
    let letter = |letter: u8| TokenId(u32::from(letter));
    let listed = |tokens: &[TokenId], output_min: u64| {
        let output_min = TokenCount(output_min);
        let allowed = Some(tokens.to_vec());
        adjusted(LogitAdjustments { allowed, output_min, ..LogitAdjustments::default() })
    };
    let choice = Constraint::Choice(vec!["good".into(), "bad".into()]);
    for (first, answer) in [(b'b', "bad"), (b'g', "good")] {
        let generation = listed(&[letter(first), letter(b'x')], 0);
        assert_eq!(alone(Generation { constraint: Some(choice.clone()), ..generation }).text, answer);
    }
    let generation = Generation { constraint: Some(choice), ..listed(&[letter(b'x')], 0) };
    let refused = |generation: Generation| match step(&mut load(), vec![guessing(&row(generation), 0, &[])])
        .remove(0)
    {
        Err(RowError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let reason = refused(generation);
    assert!(reason.contains("`allowed_token_ids`"), "{reason}");
    assert!(reason.ends_with(": its constraint rules them out"), "{reason}");
    // What ends the output is not listed for as long as that is too early.
    let early = Generation { stop_tokens: vec![letter(b'x')], ..listed(&[letter(b'x')], 2) };
    let reason = refused(early);
    assert!(reason.contains("1: `min_tokens` rules them out") && !reason.contains("constraint"), "{reason}");
    let reason = refused(listed(&[TokenId(u32::MAX)], 0));
    assert!(reason.ends_with(": none is a token of the model"), "{reason}");
    let late = listed(&[letter(b'x'), letter(b'y')], 2);
    let late = alone(Generation { stop_tokens: vec![letter(b'x')], ..late });
    assert!(late.text.starts_with("yy"), "{}", late.text);
}

#[test]
fn what_a_constraint_forces_need_not_be_listed_however_it_comes() {
    let letter = |letter: u8| TokenId(u32::from(letter));
    let held = |constraint: Constraint, listed: &[TokenId]| {
        let adjustments = LogitAdjustments { allowed: Some(listed.to_vec()), ..LogitAdjustments::default() };
        Generation { constraint: Some(constraint), ..adjusted(adjustments) }
    };
    // Nothing is guessed: the first token comes through the logits.
    let only = held(Constraint::Choice(vec!["good".into()]), &[letter(b'x')]);
    assert_eq!(alone(only).text, "good");
    // More is forced than follows one token at once: the rest comes through logits too.
    let long = held(Constraint::Regex("(a|b)c{40}(d|e)".into()), &[letter(b'b'), letter(b'd')]);
    let long = Generation { output_max: TokenCount(60), ..long };
    let row = Row { generation: Arc::new(long), ..row(Generation::default()) };
    let ended = run(load(), row, &|_| Vec::new());
    assert_eq!(ended.text, format!("b{}d", "c".repeat(40)));
}

#[test]
fn named_tokens_are_told_at_each_position_wherever_they_rank() {
    let named = [3, 65, 200].map(TokenId);
    let asked = Generation { logprobs: Some(1), logprob_tokens: named.to_vec(), ..Generation::default() };
    let ended = alone(asked.clone());
    assert_eq!(ended.outputs(), alone(Generation::default()).outputs(), "asking changes nothing");
    let mut told_of = 0;
    for ((token, told), logits) in ended.outputs().iter().zip(&ended.logprobs).zip(ended.logits()) {
        let exact = log_softmax(&logits);
        let Some(told) = told else { continue };
        let mut expected = vec![*token];
        expected.extend(named.iter().filter(|one| *one != token));
        assert_eq!(told.top.iter().filter_map(|one| one.id).collect::<Vec<_>>(), expected);
        for one in &told.top {
            let exact = exact[one.id.expect("it is known").0 as usize];
            assert!((one.logprob - exact).abs() < TOLERANCE, "{one:?}, not {exact}");
        }
        told_of += 1;
    }
    assert!(told_of > 0);
    // Under a constraint nothing else can stand where a token is forced.
    let choice = Constraint::Choice(vec!["good".into(), "bad".into()]);
    let forced = alone(Generation { constraint: Some(choice), ..asked });
    let told = forced.logprobs.last().and_then(Option::as_ref).expect("it is told");
    let others = told.top.iter().filter(|one| one.id != told.chosen.id);
    assert!(others.clone().count() > 1 && others.clone().all(|one| one.logprob == f64::NEG_INFINITY));
}

#[test]
fn penalties_go_on_through_guesses_and_on_another_executor() {
    let rows: Vec<Row> = (1..=6)
        .map(|id| {
            let adjustments = LogitAdjustments {
                presence_penalty: id as f32 / 2.0,
                frequency_penalty: (id % 3) as f32 - 1.0,
                repetition_penalty: 1.0 + (id % 2) as f32,
                output_min: TokenCount(id % 4),
                min_p: (id % 5) as f32 / 10.0,
                ..LogitAdjustments::default()
            };
            let mut row = row(Generation { temperature: (id % 2) as f32, ..adjusted(adjustments) });
            let mut blocks = Blocks::default();
            blocks.take(9 * id as usize);
            (row.id, row.blocks) = (id, blocks.take(9));
            row
        })
        .collect();
    let told = check(load, &rows, "penalties");
    for (row, told) in rows.iter().zip(told) {
        let mut halfway = row.clone();
        halfway.tokens.extend(&told.tokens[..9]);
        let rest = run(load(), halfway, &|_| Vec::new());
        assert_eq!(rest.outputs(), told.tokens, "row {}", row.id);
    }
}
