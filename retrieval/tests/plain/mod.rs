//! BERT (arXiv 1810.04805) written as its equations, one number after the other, in double precision. Shares
//! no code with the crate under test but the made weights.

use std::collections::BTreeMap;

use retrieval::synthetic::{Numbers, Synthetic};

/// Rows of numbers.
type Rows = Vec<Vec<f64>>;

struct Weights(BTreeMap<String, Numbers>);

impl Weights {
    fn vector(&self, name: &str) -> Vec<f64> {
        self.0[name].1.iter().map(|x| f64::from(*x)).collect()
    }

    /// A row of a table.
    fn row(&self, name: &str, row: usize) -> Vec<f64> {
        let (shape, numbers) = &self.0[name];
        numbers[row * shape[1]..][..shape[1]].iter().map(|x| f64::from(*x)).collect()
    }

    /// `x W^T + b`.
    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let bias = self.vector(&format!("{name}.bias"));
        let name = format!("{name}.weight");
        (0..bias.len()).map(|i| bias[i] + dot(&self.row(&name, i), x)).collect()
    }

    /// Layer normalisation (arXiv 1607.06450), Eq. 4.
    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let (gain, bias) = (self.vector(&format!("{name}.weight")), self.vector(&format!("{name}.bias")));
        let count = x.len() as f64;
        let mean = x.iter().sum::<f64>() / count;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        (0..x.len()).map(|i| (x[i] - mean) / (variance + 1e-12).sqrt() * gain[i] + bias[i]).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// The error function by its series at 0, which is exact enough where a small model's numbers are.
fn erf(x: f64) -> f64 {
    assert!(x.abs() < 5.0, "the series is not for {x}");
    let (mut sum, mut term) = (x, x);
    for n in 1..120 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn gelu(x: f64) -> f64 {
    x * 0.5 * (1.0 + erf(x / std::f64::consts::SQRT_2))
}

/// Attention of every token to every token, without a mask: there is one text and no padding.
fn attention(weights: &Weights, layer: &str, heads: usize, x: &Rows) -> Rows {
    let project = |part: &str| -> Rows {
        x.iter().map(|row| weights.linear(&format!("{layer}.attention.self.{part}"), row)).collect()
    };
    let (queries, keys, values) = (project("query"), project("key"), project("value"));
    let width = x[0].len() / heads;
    let attend = |query: &Vec<f64>| {
        let mut mixed = Vec::new();
        for head in (0..heads).map(|head| head * width..(head + 1) * width) {
            let score = |key: &Vec<f64>| {
                (dot(&query[head.clone()], &key[head.clone()]) / (width as f64).sqrt()).exp()
            };
            let scores: Vec<f64> = keys.iter().map(score).collect();
            let total: f64 = scores.iter().sum();
            mixed.extend(head.clone().map(|i| {
                scores.iter().zip(&values).map(|(score, value)| score / total * value[i]).sum::<f64>()
            }));
        }
        mixed
    };
    queries.iter().map(attend).collect()
}

/// The unit vector of a text whose words are in the model's vocabulary.
pub(crate) fn vector(model: &Synthetic, text: &str) -> Vec<f64> {
    let weights = Weights(model.tensors());
    let vocabulary = model.vocabulary();
    let id =
        |word: &str| vocabulary.iter().position(|token| token == word).expect("a word of the vocabulary");
    let ids: Vec<usize> =
        ["[CLS]"].into_iter().chain(text.split_whitespace()).chain(["[SEP]"]).map(id).collect();
    let embed = |(position, id): (usize, &usize)| {
        let word = weights.row("embeddings.word_embeddings.weight", *id);
        let position = weights.row("embeddings.position_embeddings.weight", position);
        let kind = weights.row("embeddings.token_type_embeddings.weight", 0);
        weights.norm("embeddings.LayerNorm", &add(&add(&word, &position), &kind))
    };
    let mut x: Rows = ids.iter().enumerate().map(embed).collect();
    for layer in (0..model.layers).map(|layer| format!("encoder.layer.{layer}")) {
        let mixed = attention(&weights, &layer, model.heads, &x);
        x = x
            .iter()
            .zip(&mixed)
            .map(|(x, mixed)| {
                let part = format!("{layer}.attention.output");
                let x = weights.norm(
                    &format!("{part}.LayerNorm"),
                    &add(x, &weights.linear(&format!("{part}.dense"), mixed)),
                );
                let middle = weights.linear(&format!("{layer}.intermediate.dense"), &x);
                let middle: Vec<f64> = middle.into_iter().map(gelu).collect();
                let out = weights.linear(&format!("{layer}.output.dense"), &middle);
                weights.norm(&format!("{layer}.output.LayerNorm"), &add(&x, &out))
            })
            .collect();
    }
    let pooled = if model.takes_first {
        x.swap_remove(0)
    } else {
        let sum = x.iter().fold(vec![0.0; x[0].len()], |sum, row| add(&sum, row));
        sum.into_iter().map(|sum| sum / x.len() as f64).collect()
    };
    let length = dot(&pooled, &pooled).sqrt();
    pooled.into_iter().map(|x| x / length).collect()
}
