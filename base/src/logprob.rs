//! How likely the tokens of an output were, and those of a prompt.

use crate::ids::TokenId;

/// A token that a model may say, and how likely it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprob {
    /// Its id, where who drew it tells that.
    pub id: Option<TokenId>,
    /// Its text; of a part of a character, what stands for one that is broken.
    pub token: String,
    /// Natural logarithm of its probability; minus infinity where it could not stand there.
    pub logprob: f64,
    /// Its bytes, where they are told.
    pub bytes: Option<Vec<u8>>,
}

/// A token of an answer, among those that its row's constraint allowed there, before temperature, top-k and top-p.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    pub chosen: Logprob,
    /// Whether it is no part of the answer's text: a special token that is left out of it.
    pub is_hidden: bool,
    /// The most likely tokens in its place, as many as were asked for at most; or those that were named, behind itself.
    pub top: Vec<Logprob>,
}

/// A token of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptToken {
    pub id: TokenId,
    /// Its text, as a [`Logprob`] has it.
    pub text: String,
    /// Its bytes inside a text; none of a special token, nor where a server tells its text alone.
    pub bytes: Option<Vec<u8>>,
    /// How likely it was behind those before it; none of the first, before which there is nothing.
    pub likelihood: Option<PromptLikelihood>,
}

/// How likely a token of a prompt was, as the model says it.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptLikelihood {
    /// Natural logarithm of its probability.
    pub logprob: f64,
    /// How many tokens were likelier, and one.
    pub rank: u32,
    /// The most likely tokens in its place, the likeliest first, as many as were asked for at most.
    pub top: Vec<LikelyPromptToken>,
}

/// A token that could have stood in a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct LikelyPromptToken {
    pub id: TokenId,
    pub text: String,
    pub logprob: f64,
}
