//! Models that can be called, as `/v1/models` lists them.

use serde::Serialize;
use serving::model::Model;
use utoipa::ToSchema;

/// A model that can be called.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ModelObject {
    /// Its name.
    pub id: String,
    /// Always `model`.
    pub object: &'static str,
    /// When it was loaded, unix seconds.
    pub created: u64,
    /// Always `relserve`.
    pub owned_by: &'static str,
    /// The model that an alias stands for (vLLM's name for it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Longest prompt and output together (vLLM's name for it).
    /// Absent where only the servers that run it know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_model_len: Option<u64>,
    /// What it is (our extension).
    pub description: String,
    /// Whether functions that write text are refused, since it can only pick among given answers: the demo model. Absent
    /// where it is not so (our extension).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub picks_only: bool,
    /// The ways on from here over other gateways, each as the random ids of the gateways on it: to gateways alone, which
    /// find by it that they lead to themselves (our extension).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<Vec<String>>,
}

/// The models that can be called.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ModelList {
    /// Always `list`.
    pub object: &'static str,
    /// The models.
    pub data: Vec<ModelObject>,
}

impl ModelObject {
    /// The served model, by its name and by each alias.
    pub fn all(model: &Model) -> Vec<Self> {
        let aliases = model
            .aliases
            .iter()
            .map(|alias| Self { root: Some(model.name.clone()), ..Self::named(model, alias) });
        std::iter::once(Self::named(model, &model.name)).chain(aliases).collect()
    }

    /// The embedding model.
    pub fn embedder(name: &str, created: u64) -> Self {
        Self {
            id: name.to_owned(),
            object: "model",
            created,
            owned_by: "relserve",
            root: None,
            max_model_len: None,
            description: "embedding model: /v1/embeddings, /v1/score, /v1/rerank".into(),
            picks_only: false,
            gateways: Vec::new(),
        }
    }

    fn named(model: &Model, name: &str) -> Self {
        Self {
            id: name.to_owned(),
            object: "model",
            created: model.created,
            owned_by: "relserve",
            root: None,
            max_model_len: model.has_ids().then_some(model.context_max.0),
            description: model.description.clone(),
            picks_only: model.picks_only,
            gateways: Vec::new(),
        }
    }
}
