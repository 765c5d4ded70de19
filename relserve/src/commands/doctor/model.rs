//! The model: its files, and the memory that they take; or the servers that run it.

use std::path::Path;
use std::time::Duration;

use base::Bytes;
use engine::checkpoint::WeightSource as _;
use engine::checkpoint::shapes::parameters;
use engine::checkpoint_reader::Checkpoint;
use engine::{EngineConfig, memory};
use gateway::config::Config;
use indicatif::BinaryBytes;
use serving::config::{ReplicaKind, ReplicaSettings};

use super::{Finding, gpu_memory};
use crate::http::{self, cause};

/// Longest time for a server to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Looks at every model.
///
/// `gpu_memory`: what its GPUs are to have free, instead of what those of this machine have.
pub(super) async fn check(config: &Config, gpu_memory: Option<Bytes>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let backends = config.backends();
    let local = backends.iter().filter(|(_, one)| one.has_local_engine() && one.model.dir.is_some()).count();
    for (_, backend) in backends {
        if backend.has_local_engine() {
            match backend.model.dir {
                Some(path) => findings.extend(checkpoint(path, backend.engine, gpu_memory, local == 1)),
                None => findings.push(demo()),
            }
        }
        for replica in backend.named_replicas() {
            findings.extend(server(&replica).await);
        }
        if backend.discovery.is_on() {
            let text = "more replicas are found while the server runs; those are not looked at here";
            findings.push(Finding::ok("replicas", text));
        }
    }
    findings
}

fn demo() -> Finding {
    let text = "the built-in demo model, for labels, ratings and yes-no questions only";
    let remedy = "`relserve pull ORG/NAME` fetches a real one, `--model DIR` or model.dir names it";
    Finding::warning("model", text, remedy)
}

/// Reads all that a checkpoint's files say, without packing its weights, and what they would take of GPUs.
///
/// `is_own`: whether it is the only one here.
fn checkpoint(path: &Path, config: &EngineConfig, gpu_memory: Option<Bytes>, is_own: bool) -> Vec<Finding> {
    let shown = path.display();
    let found = match Checkpoint::path(path, config.template_date) {
        Ok(found) => found,
        Err(error) => {
            let remedy = "name a Hugging Face folder or a GGUF file by `--model` or model.dir; \
                          `relserve pull ORG/NAME` fetches one";
            return vec![Finding::failure("model", format!("{shown}: {error}"), remedy)];
        }
    };
    let bytes = |name: &String| {
        let (dtype, shape) = found.weights.layout(name).ok()?;
        Some(shape.iter().product::<usize>() as u64 * dtype.bytes() as u64)
    };
    let weights: u64 = found.weights.names().iter().filter_map(bytes).sum();
    let text = format!(
        "{} in {shown}: {:?}, {} parameters, weights of {}",
        found.name,
        found.config.family,
        parameters(&found.config),
        BinaryBytes(weights)
    );
    let model = match memory::available() {
        Some(free) if free.0 < weights => {
            let text = format!("{text}, and {} of memory are free", BinaryBytes(free.0));
            Finding::warning("model", text, "free memory, `--quantize q8` or `q4`, or a smaller model")
        }
        _ => Finding::ok("model", text),
    };
    [Some(model), gpu_memory::check(&found, config, gpu_memory, is_own)].into_iter().flatten().collect()
}

/// Asks a replica for its models.
async fn server(replica: &ReplicaSettings) -> Option<Finding> {
    let url = replica.url.as_deref().filter(|_| replica.kind != ReplicaKind::Local)?;
    let ask = async {
        let client = http::client(ANSWER_MAX).map_err(|error| error.to_string())?;
        let mut request = client.get(format!("{}/v1/models", url.trim_end_matches('/'))).timeout(ANSWER_MAX);
        if let Some(key) = &replica.api_key {
            request = request.bearer_auth(&key.0);
        }
        let response = request.send().await.map_err(|error| cause(&error.without_url()))?;
        let status = response.status();
        if status.is_success() { Ok(()) } else { Err(format!("answers {status}")) }
    };
    Some(match ask.await {
        Ok(()) => Finding::ok("replica", format!("{url} answers")),
        Err(reason) => {
            let remedy = "start it, or correct its url or api_key; rows wait for another one meanwhile";
            Finding::warning("replica", format!("{url}: {reason}"), remedy)
        }
    })
}
