//! How likely the tokens of an output were.

/// A token that a model may say, and how likely it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprob {
    /// Its text; of a part of a character, what stands for one that is broken.
    pub token: String,
    /// Natural logarithm of its probability.
    pub logprob: f64,
    /// Its bytes, where they are told.
    pub bytes: Option<Vec<u8>>,
}

/// A token of an answer, among those that its row's constraint allowed there, before temperature, top-k and top-p.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    pub chosen: Logprob,
    /// The most likely tokens in its place, as many as were asked for at most.
    pub top: Vec<Logprob>,
}
