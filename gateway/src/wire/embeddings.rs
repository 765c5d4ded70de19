//! The JSON of `/v1/embeddings` (OpenAI's), `/v1/score`, `/v1/rerank` and `/pooling` (vLLM's).

use base::RelQueryId;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use retrieval::Embedding;
use serde::Serialize;
use serde_json::Value;
use serving::error::RequestError;
use utoipa::ToSchema;

use crate::config::{LimitsConfig, RetrievalConfig, UnknownFields};
use crate::json::JsonFields;
use crate::wire::openai::left_out;
use crate::wire::public_ids;

/// What requests are read against.
#[derive(Clone, Copy)]
pub struct EmbeddingLimits<'a> {
    pub limits: &'a LimitsConfig,
    pub retrieval: &'a RetrievalConfig,
    /// Numbers of the model's vectors.
    pub dims: usize,
    /// What becomes of fields that these routes do not know.
    pub unknown_fields: UnknownFields,
}

/// How a vector is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Numbers.
    Float,
    /// The base64 of its numbers, each four bytes, the lowest first.
    Base64,
}

/// What all three routes say of their texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    /// The model that is asked for, where one is named.
    pub model: Option<String>,
    pub texts: Vec<String>,
    /// The fields that hold them, in their order, to be named where one is wrong.
    fields: Vec<TextField>,
    /// Whether of a text that is too long the beginning is taken.
    pub may_truncate: bool,
    /// Fields of the request that are not known.
    pub ignored: Vec<String>,
}

impl Texts {
    /// What the request calls a text.
    pub fn name(&self, place: usize) -> String {
        let mut place = place;
        for TextField { name, count, is_list } in &self.fields {
            if place < *count {
                return if *is_list { format!("{name}[{place}]") } else { (*name).to_owned() };
            }
            place -= count;
        }
        String::new()
    }
}

/// A field that holds texts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TextField {
    name: &'static str,
    count: usize,
    /// Whether they are sent as an array.
    is_list: bool,
}

/// A body of `/v1/embeddings`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingsRequest {
    pub texts: Texts,
    pub encoding: Encoding,
    /// Numbers that are kept of each vector.
    pub dims: usize,
}

impl EmbeddingsRequest {
    /// Reads and checks the fields.
    pub fn read(mut fields: JsonFields, limits: EmbeddingLimits<'_>) -> Result<Self, RequestError> {
        let input = take_texts(&mut fields, "input", limits)?;
        let encoding = match fields.string("encoding_format")?.as_deref() {
            None | Some("float") => Encoding::Float,
            Some("base64") => Encoding::Base64,
            Some(_) => return fields.bad("encoding_format", "must be float or base64"),
        };
        let dims =
            fields.integer("dimensions", 1, limits.dims as u64)?.unwrap_or(limits.dims as u64) as usize;
        let texts = finish(fields, vec![input], limits.unknown_fields)?;
        Ok(Self { texts, encoding, dims })
    }

    /// Reads a body of `/pooling`.
    pub fn read_pooling(mut fields: JsonFields, limits: EmbeddingLimits<'_>) -> Result<Self, RequestError> {
        match fields.string("task")?.as_deref() {
            None | Some("embed") => Self::read(fields, limits),
            Some(_) => fields.bad("task", "must be embed: this model makes one vector of each text"),
        }
    }
}

/// A body of `/v1/score` or `/v1/rerank`: texts that are compared with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompareRequest {
    /// The first texts, then those that they are compared with.
    pub texts: Texts,
    /// How many first texts there are: one for all others, or one for each.
    pub firsts: usize,
    /// How many of the others are told, the nearest first.
    pub top: Option<usize>,
}

/// The fields of `/v1/score` for first texts and for the others, under all names that vLLM has for them.
const PAIRS: [(&str, &str); 4] =
    [("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2")];

impl CompareRequest {
    /// Reads a body of `/v1/score`.
    pub fn read_score(mut fields: JsonFields, limits: EmbeddingLimits<'_>) -> Result<Self, RequestError> {
        let sent = |name: &str| usize::from(fields.get(name).is_some_and(|value| !value.is_null()));
        // The pair of which most is there; what is there of another is refused by its name.
        let (first, other) =
            PAIRS.into_iter().rev().max_by_key(|(one, two)| sent(one) + sent(two)).unwrap_or(PAIRS[0]);
        let firsts = take_texts(&mut fields, first, limits)?;
        let others = take_texts(&mut fields, other, limits)?;
        let (count, wanted) = (firsts.texts.len(), others.texts.len());
        if count != 1 && count != wanted {
            let reason = format!(
                "has {count} texts: one is compared with all of `{other}`, or each with its own of {wanted}"
            );
            return fields.bad(first, reason);
        }
        let texts = finish(fields, vec![firsts, others], limits.unknown_fields)?;
        Ok(Self { texts, firsts: count, top: None })
    }

    /// Reads a body of `/v1/rerank`.
    pub fn read_rerank(mut fields: JsonFields, limits: EmbeddingLimits<'_>) -> Result<Self, RequestError> {
        let value = fields.require("query")?;
        let query = FieldTexts::one("query", text("query".to_owned(), value, limits)?);
        let documents = take_texts(&mut fields, "documents", limits)?;
        // As vLLM has it, 0 says nothing.
        let top = fields.integer("top_n", 0, u64::from(u32::MAX))?.filter(|top| *top > 0);
        fields.bool("return_documents")?;
        let top = top.map_or(documents.texts.len(), |top| top as usize);
        let texts = finish(fields, vec![query, documents], limits.unknown_fields)?;
        Ok(Self { texts, firsts: 1, top: Some(top) })
    }
}

/// What one field holds.
struct FieldTexts {
    name: &'static str,
    is_list: bool,
    texts: Vec<String>,
}

impl FieldTexts {
    fn one(name: &'static str, text: String) -> Self {
        Self { name, is_list: false, texts: vec![text] }
    }
}

/// Takes what is left of a request.
fn finish(
    mut fields: JsonFields,
    sent: Vec<FieldTexts>,
    unknown: UnknownFields,
) -> Result<Texts, RequestError> {
    let model = fields.string("model")?;
    let may_truncate = match fields.take("truncate_prompt_tokens") {
        None => false,
        Some(value) if value.as_i64() == Some(-1) => true,
        Some(_) => return fields.bad("truncate_prompt_tokens", "must be -1: as many as the model reads"),
    };
    fields.take("user");
    let ignored = left_out(fields, unknown)?;
    let field = |one: &FieldTexts| TextField { name: one.name, count: one.texts.len(), is_list: one.is_list };
    let fields = sent.iter().map(field).collect();
    let texts = sent.into_iter().flat_map(|one| one.texts).collect();
    Ok(Texts { model, texts, fields, may_truncate, ignored })
}

/// Takes one text or several.
fn take_texts(
    fields: &mut JsonFields,
    name: &'static str,
    limits: EmbeddingLimits<'_>,
) -> Result<FieldTexts, RequestError> {
    let items = match fields.require(name)? {
        Value::Array(items) if items.is_empty() => return fields.bad(name, "must not be empty"),
        Value::Array(items) => items,
        one => return Ok(FieldTexts::one(name, text(name.to_owned(), one, limits)?)),
    };
    let limit = limits.limits.rows_max;
    if items.len() > limit {
        return fields
            .bad(name, format!("has {} texts; at most {limit} are allowed (limits.rows_max)", items.len()));
    }
    let items = items.into_iter().enumerate();
    let texts = items.map(|(place, item)| text(format!("{name}[{place}]"), item, limits));
    let texts: Result<Vec<String>, RequestError> = texts.collect();
    Ok(FieldTexts { name, is_list: true, texts: texts? })
}

fn text(name: String, value: Value, limits: EmbeddingLimits<'_>) -> Result<String, RequestError> {
    let text = match value {
        Value::String(text) => text,
        Value::Object(mut map) => match map.remove("text") {
            Some(Value::String(text)) => text,
            _ => return Err(RequestError::invalid(name, "must be a text, or have one as `text`")),
        },
        Value::Number(_) | Value::Array(_) => {
            let reason = "must be text: token ids are of another model's vocabulary";
            return Err(RequestError::invalid(name, reason));
        }
        _ => return Err(RequestError::invalid(name, "must be a text")),
    };
    if text.trim().is_empty() {
        return Err(RequestError::invalid(name, "is empty"));
    }
    let limit = limits.retrieval.document_bytes_max.0;
    if text.len() as u64 > limit {
        let reason = format!("has more than {limit} bytes (retrieval.document_bytes_max)");
        return Err(RequestError::invalid(name, reason));
    }
    Ok(text)
}

/// Tokens that were computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct EmbeddingUsage {
    /// Of all texts, special ones included.
    prompt_tokens: u64,
    /// The same.
    total_tokens: u64,
}

impl EmbeddingUsage {
    fn of(vectors: &[Embedding]) -> Self {
        let tokens = vectors.iter().map(|vector| vector.tokens as u64).sum();
        Self { prompt_tokens: tokens, total_tokens: tokens }
    }
}

/// The reply of `/v1/embeddings`.
#[derive(Debug, Serialize, ToSchema)]
pub struct EmbeddingsReply {
    /// `list`.
    object: &'static str,
    /// One for each text, in their order.
    data: Vec<EmbeddingReply>,
    /// The embedding model.
    model: String,
    usage: EmbeddingUsage,
}

/// A text's vector.
#[derive(Debug, Serialize, ToSchema)]
pub struct EmbeddingReply {
    /// `embedding`.
    object: &'static str,
    /// The text's number.
    index: usize,
    /// Numbers, or their base64.
    embedding: VectorReply,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum VectorReply {
    Numbers(Vec<f32>),
    Base64(String),
}

impl VectorReply {
    /// As many of a vector's first numbers as were asked for.
    fn of(embedding: &Embedding, (dims, encoding): (usize, Encoding)) -> Self {
        let numbers = cut(&embedding.vector, dims);
        match encoding {
            Encoding::Float => Self::Numbers(numbers),
            Encoding::Base64 => {
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                Self::Base64(STANDARD.encode(bytes))
            }
        }
    }
}

impl EmbeddingsReply {
    /// Of vectors that are all cut to as many numbers as were asked for.
    pub fn new(model: &str, vectors: &[Embedding], (dims, encoding): (usize, Encoding)) -> Self {
        let data = vectors.iter().enumerate().map(|(index, embedding)| EmbeddingReply {
            index,
            object: "embedding",
            embedding: VectorReply::of(embedding, (dims, encoding)),
        });
        Self {
            object: "list",
            data: data.collect(),
            model: model.to_owned(),
            usage: EmbeddingUsage::of(vectors),
        }
    }
}

/// The reply of `/pooling`.
#[derive(Debug, Serialize, ToSchema)]
pub struct PoolingReply {
    /// `pool-...`.
    id: String,
    /// `list`.
    object: &'static str,
    /// Unix seconds.
    created: u64,
    /// The embedding model.
    model: String,
    /// One for each text, in their order.
    data: Vec<PooledReply>,
    usage: EmbeddingUsage,
}

/// A text's vector in vLLM's shape.
#[derive(Debug, Serialize, ToSchema)]
pub struct PooledReply {
    /// The text's number.
    index: usize,
    /// `pooling`.
    object: &'static str,
    /// Numbers, or their base64.
    data: VectorReply,
}

impl PoolingReply {
    /// Of vectors, written as was asked for; with an id, at a time.
    pub fn new(
        (id, created): (RelQueryId, u64),
        model: &str,
        vectors: &[Embedding],
        written: (usize, Encoding),
    ) -> Self {
        let data = vectors.iter().enumerate().map(|(index, embedding)| PooledReply {
            index,
            object: "pooling",
            data: VectorReply::of(embedding, written),
        });
        Self {
            id: format!("pool-{}", public_ids::shown(id)),
            object: "list",
            created,
            model: model.to_owned(),
            data: data.collect(),
            usage: EmbeddingUsage::of(vectors),
        }
    }
}

/// The first numbers of a vector, of length 1 again.
fn cut(vector: &[f32], dims: usize) -> Vec<f32> {
    let kept = &vector[..dims.min(vector.len())];
    if kept.len() == vector.len() {
        return kept.to_vec();
    }
    let length = kept.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
    if length == 0.0 {
        return kept.to_vec();
    }
    kept.iter().map(|number| (f64::from(*number) / length) as f32).collect()
}

/// How near vectors behind the first ones are, each to its own of these or all to the only one: the cosine of their angle.
fn scores(vectors: &[Embedding], firsts: usize) -> Vec<f64> {
    let (firsts, others) = vectors.split_at(firsts.min(vectors.len()));
    let product = |(first, other): (&Embedding, &Embedding)| {
        first.vector.iter().zip(&other.vector).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
    };
    firsts.iter().cycle().zip(others).map(product).collect()
}

/// The reply of `/v1/score`.
#[derive(Debug, Serialize, ToSchema)]
pub struct ScoresReply {
    /// `score-...`.
    id: String,
    /// `list`.
    object: &'static str,
    /// The embedding model.
    model: String,
    /// One for each second text, in their order.
    data: Vec<ScoreReply>,
    usage: EmbeddingUsage,
}

/// How near two texts are.
#[derive(Debug, Serialize, ToSchema)]
pub struct ScoreReply {
    /// The second text's number.
    index: usize,
    /// `score`.
    object: &'static str,
    /// The cosine of their vectors, from -1 to 1.
    score: f64,
}

impl ScoresReply {
    /// Of the vectors of the first texts, so many, and of the others.
    pub fn new(id: RelQueryId, model: &str, (vectors, firsts): (&[Embedding], usize)) -> Self {
        let scores = scores(vectors, firsts).into_iter().enumerate();
        Self {
            id: format!("score-{}", public_ids::shown(id)),
            object: "list",
            model: model.to_owned(),
            data: scores.map(|(index, score)| ScoreReply { index, object: "score", score }).collect(),
            usage: EmbeddingUsage::of(vectors),
        }
    }
}

/// The reply of `/v1/rerank`.
#[derive(Debug, Serialize, ToSchema)]
pub struct RerankReply {
    /// `rerank-...`.
    id: String,
    /// The embedding model.
    model: String,
    usage: EmbeddingUsage,
    /// The nearest documents, the nearest first.
    results: Vec<RankedReply>,
}

/// A document and how near it is.
#[derive(Debug, Serialize, ToSchema)]
pub struct RankedReply {
    /// Its number in the request.
    index: usize,
    document: RankedDocument,
    /// The cosine of its vector and the question's, from -1 to 1.
    relevance_score: f64,
}

/// A document's text.
#[derive(Debug, Serialize, ToSchema)]
pub struct RankedDocument {
    text: String,
}

impl RerankReply {
    /// Of the question's vector and those of the documents, whose texts stand behind the question's.
    pub fn new(id: RelQueryId, model: &str, texts: &[String], (vectors, top): (&[Embedding], usize)) -> Self {
        let documents = texts.iter().skip(1).zip(scores(vectors, 1)).enumerate();
        let mut results: Vec<RankedReply> = documents
            .map(|(index, (text, relevance_score))| RankedReply {
                index,
                document: RankedDocument { text: text.clone() },
                relevance_score,
            })
            .collect();
        results.sort_by(|a, b| b.relevance_score.total_cmp(&a.relevance_score));
        results.truncate(top);
        let usage = EmbeddingUsage::of(vectors);
        Self { id: format!("rerank-{}", public_ids::shown(id)), model: model.to_owned(), usage, results }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read<T>(
        body: &str,
        read: impl FnOnce(JsonFields, EmbeddingLimits<'_>) -> Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        let limits = LimitsConfig { rows_max: 2, ..LimitsConfig::default() };
        let retrieval = RetrievalConfig { document_bytes_max: base::Bytes(8), ..RetrievalConfig::default() };
        let unknown_fields = UnknownFields::Refuse;
        let limits = EmbeddingLimits { limits: &limits, retrieval: &retrieval, dims: 4, unknown_fields };
        read(json::object(body.as_bytes())?, limits)
    }

    #[test]
    fn what_cannot_be_embedded_is_named() {
        for (body, blamed) in [
            (r#"{}"#, "input"),
            (r#"{"input":[]}"#, "input"),
            (r#"{"input":" "}"#, "input"),
            (r#"{"input":["a",7]}"#, "input[1]"),
            (r#"{"input":["a","123456789"]}"#, "input[1]"),
            (r#"{"input":["a","b","c"]}"#, "input"),
            (r#"{"input":"a","dimensions":5}"#, "dimensions"),
            (r#"{"input":"a","encoding_format":"int8"}"#, "encoding_format"),
            (r#"{"input":"a","truncate_prompt_tokens":7}"#, "truncate_prompt_tokens"),
            (r#"{"input":"a","x":1}"#, "x"),
        ] {
            match read(body, EmbeddingsRequest::read) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, blamed, "{body}"),
                other => panic!("{body} gave {other:?}"),
            }
        }
        let documents = r#"{"query":"q","documents":["a",{"text":"b"}],"top_n":1}"#;
        let request = read(documents, CompareRequest::read_rerank).expect("valid");
        let all = read(&documents.replace("\"top_n\":1", "\"top_n\":0"), CompareRequest::read_rerank);
        assert_eq!(all.expect("valid").top, Some(2), "as many as there are");
        assert_eq!(
            (&request.texts.texts[..], request.top),
            (&["q", "a", "b"].map(String::from)[..], Some(1))
        );
        assert_eq!(
            [0, 1, 2].map(|place| request.texts.name(place)),
            ["query", "documents[0]", "documents[1]"]
        );
    }

    #[test]
    fn pairs_have_all_their_names_and_are_one_to_all_or_one_to_one() {
        let read_score = |body: &str| read(body, CompareRequest::read_score);
        for (first, other) in PAIRS {
            let request = read_score(&format!(r#"{{"{first}":["a","b"],"{other}":["c",{{"text":"d"}}]}}"#));
            let request = request.expect("valid");
            assert_eq!(
                (&request.texts.texts[..], request.firsts),
                (&["a", "b", "c", "d"].map(String::from)[..], 2)
            );
            assert_eq!(request.texts.name(1), format!("{first}[1]"));
            assert_eq!(request.texts.name(2), format!("{other}[0]"));
            let request = read_score(&format!(r#"{{"{first}":"a","{other}":"c"}}"#)).expect("valid");
            assert_eq!(
                (request.firsts, request.texts.name(0), request.texts.name(1)),
                (1, first.to_owned(), other.to_owned())
            );
        }
        for (body, blamed) in [
            ("{}", "text_1"),
            (r#"{"text_2":"a"}"#, "text_1"),
            (r#"{"queries":"a"}"#, "documents"),
            (r#"{"items":"a"}"#, "queries"),
            (r#"{"queries":["a","b"],"documents":"c"}"#, "queries"),
            (r#"{"data_1":[],"data_2":"c"}"#, "data_1"),
            (r#"{"data_1":"a","data_2":["c",7]}"#, "data_2[1]"),
            (r#"{"queries":"a","documents":"b","items":"c"}"#, "items"),
            (r#"{"text_1":"a","text_2":"b","data_1":"c"}"#, "data_1"),
        ] {
            match read_score(body) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, blamed, "{body}"),
                other => panic!("{body} gave {other:?}"),
            }
        }
        let vector =
            |numbers: [f32; 2]| Embedding { vector: numbers.to_vec(), tokens: 1, is_truncated: false };
        let vectors = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.6, 0.8]].map(vector);
        assert_eq!(scores(&vectors, 2), [1.0, f64::from(0.8_f32)]);
        assert_eq!(scores(&vectors, 1), [0.0, 1.0, f64::from(0.6_f32)]);
    }

    #[test]
    fn a_pool_is_of_vectors_alone() {
        let task = |task: &str| read(&format!(r#"{{"input":"a"{task}}}"#), EmbeddingsRequest::read_pooling);
        assert_eq!(task("").expect("valid").texts.name(0), "input");
        assert!(task(r#","task":"embed""#).is_ok());
        let refused = task(r#","task":"classify""#).expect_err("refused").to_string();
        assert!(refused.contains("`task`") && refused.contains("embed"), "{refused}");
    }

    #[test]
    fn a_vector_that_is_cut_is_of_length_one_again() {
        assert_eq!(cut(&[0.6, 0.8], 2), [0.6, 0.8]);
        assert_eq!(cut(&[0.6, 0.0, 0.8], 2), [1.0, 0.0]);
        assert_eq!(cut(&[0.0, 1.0], 1), [0.0]);
    }
}
