//! Whether a model has room on its GPUs: known from its configuration, before a weight is read.

use base::Bytes;
use engine::checkpoint_reader::Checkpoint;
use engine::decoder::GpuDemand;
use engine::device::cuda::{CudaError, GpuInfo, device_count, gpu_info};
use engine::parallel::{ShardError, ShardedModel};
use engine::{Device, EngineConfig, Keep, Quantize};
use indicatif::BinaryBytes;

use super::Finding;

const SUBJECT: &str = "GPU memory";

/// Most GPUs that are proposed for a model that does not fit fewer.
const RANKS_MAX: usize = 8;

/// The GPUs that a model is to run on.
#[derive(Debug)]
struct GpuRoom {
    /// The one with the least memory.
    card: GpuInfo,
    ranks: usize,
    /// Whether no other model of the configuration may be on them.
    is_own: bool,
    /// What it means where the model does not run on them.
    otherwise: Otherwise,
}

/// What happens where the model does not run on its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Otherwise {
    /// The server does not start.
    Fails,
    /// The processor computes.
    OnProcessor,
    /// Nothing: they were only asked about.
    Nothing,
}

impl Otherwise {
    fn finding(self, text: String, remedy: String) -> Finding {
        match self {
            Self::Fails => Finding::failure(SUBJECT, text, remedy),
            Self::OnProcessor => Finding::warning(SUBJECT, format!("{text}: the processor computes"), remedy),
            Self::Nothing => Finding::warning(SUBJECT, text, remedy),
        }
    }
}

/// Whether a checkpoint fits the GPUs that are configured, or those that are asked about; `None` where there are none.
///
/// `is_own`: whether it is the only model here. Others are not counted: what each takes is decided as they are
/// loaded, one after the other.
pub(super) fn check(
    found: &Checkpoint,
    engine: &EngineConfig,
    given: Option<Bytes>,
    is_own: bool,
) -> Option<Finding> {
    let room = match room(engine, given)? {
        Ok(room) => GpuRoom { is_own, ..room },
        Err(finding) => return Some(finding),
    };
    let demand = |ranks: usize, keep: Keep| {
        ShardedModel::gpu_demand(&found.config, &found.weights, ranks, keep, engine.block_tokens)
    };
    Some(judge(&demand, engine, &room))
}

/// The GPUs that are meant; `None` where there are none, which another finding tells of.
fn room(engine: &EngineConfig, given: Option<Bytes>) -> Option<Result<GpuRoom, Finding>> {
    let ordinals = match &engine.device {
        Device::Cuda(ordinals) => ordinals.clone(),
        Device::Auto | Device::Cpu => (0..engine.tensor_parallel).collect(),
    };
    let ranks = ordinals.len();
    if let Some(free) = given {
        let card = GpuInfo { name: "a GPU".to_owned(), free: free.0, total: free.0, has_e4m3: true };
        return Some(Ok(GpuRoom { card, ranks, is_own: true, otherwise: Otherwise::Nothing }));
    }
    let otherwise = match engine.device {
        Device::Cpu => return None,
        Device::Auto => Otherwise::OnProcessor,
        Device::Cuda(_) => Otherwise::Fails,
    };
    let cards: Result<Vec<GpuInfo>, CudaError> = ordinals.into_iter().map(gpu_info).collect();
    match cards {
        Ok(cards) => {
            let card = cards.into_iter().min_by_key(|card| card.free)?;
            Some(Ok(GpuRoom { card, ranks, is_own: true, otherwise }))
        }
        Err(CudaError::NoDevice { .. }) => None,
        Err(_) if device_count().is_err() => None,
        Err(error) => {
            let remedy = "another GPU, or `--device cpu`".to_owned();
            Some(Err(otherwise.finding(error.to_string(), remedy)))
        }
    }
}

/// What a model takes in a number of ranks, with weights, keys and values kept in a way.
type Demand<'a> = &'a dyn Fn(usize, Keep) -> Result<GpuDemand, ShardError>;

fn judge(demand: Demand<'_>, engine: &EngineConfig, room: &GpuRoom) -> Finding {
    let GpuRoom { card, ranks, otherwise, .. } = room;
    let keep = engine.keep();
    let found = match demand(*ranks, keep) {
        Ok(found) => found,
        Err(error) => {
            let (text, remedy) = match &error {
                ShardError::Quantize(reason) => {
                    (format!("`engine.quantize` {reason}"), "`--quantize fp8` or `q4`, or `--device cpu`")
                }
                ShardError::Kv(reason) => (format!("`engine.kv` {reason}"), "another `--kv`"),
                error => (error.to_string(), "`--device cpu`, another `--tp`, or another model"),
            };
            return otherwise.finding(text, remedy.to_owned());
        }
    };
    let (name, free) = (&card.name, BinaryBytes(card.free));
    if keep.quantize == Some(Quantize::Fp8) && !card.has_e4m3 {
        let text = format!("`engine.quantize` is fp8, which {name} (before 8.9) does not multiply");
        return otherwise.finding(text, "`--quantize q4`, or none".to_owned());
    }
    let each = if *ranks > 1 { format!(" on each of {ranks} GPUs") } else { String::new() };
    let takes = format!(
        "weights take {}{each}, a step up to {}, and a token's keys and values {}",
        BinaryBytes(found.weights),
        BinaryBytes(found.step),
        BinaryBytes(found.per_token)
    );
    let least = found.least();
    if least > card.free && least <= card.total {
        let (least, total) = (BinaryBytes(least), BinaryBytes(card.total));
        let text = format!(
            "{takes}; {least} are needed, and {name} has {free} of {total} free: something else has the rest, \
             perhaps this server"
        );
        let ways = remedy(demand, engine, room, GpuDemand::least);
        let ways = format!("unless it is this server, end what is there; or {ways}");
        return match otherwise {
            Otherwise::Fails => Finding::warning(SUBJECT, text, ways),
            Otherwise::OnProcessor | Otherwise::Nothing => otherwise.finding(text, ways),
        };
    }
    if least > card.free {
        let text = format!("{takes}; {} are needed, and {name} has {free} free", BinaryBytes(least));
        return otherwise.finding(text, remedy(demand, engine, room, GpuDemand::least));
    }
    let tokens = pool_tokens(&found, engine, room);
    let alone = if room.is_own { "" } else { " where no other model of this configuration is on it" };
    let text = format!("{takes}; {name} has {free} free, which is room for {tokens} tokens{alone}");
    if engine.kv_bytes.is_some_and(|bytes| bytes.0 / (*ranks as u64) < found.kv_min) {
        let text = format!("{text}, too few for a server");
        return Finding::warning(SUBJECT, text, "a larger `engine.kv_bytes`, or none");
    }
    if tokens < found.tokens_min as u64 || card.free < least.saturating_add(found.step) {
        let text = format!("{text}, and too little for the largest steps");
        return Finding::warning(SUBJECT, text, remedy(demand, engine, room, with_steps));
    }
    Finding::ok(SUBJECT, text)
}

/// What must be free for the least keys and values beside the largest step: a pool of the default size leaves a
/// tenth.
fn with_steps(demand: &GpuDemand) -> u64 {
    demand.least().saturating_add(demand.kv_min / 4).saturating_add(demand.step)
}

/// Tokens whose keys and values have room beside weights and steps, all requests together.
fn pool_tokens(found: &GpuDemand, engine: &EngineConfig, room: &GpuRoom) -> u64 {
    let left = room.card.free.saturating_sub(found.weights);
    let pool = match engine.kv_bytes {
        Some(bytes) => (bytes.0 / room.ranks as u64).min(left / 10 * 9),
        None => found.pool(room.card.free),
    };
    pool / found.per_token.max(1)
}

/// What would make a model fit, of which `needed` bytes must be free.
fn remedy(
    demand: Demand<'_>,
    engine: &EngineConfig,
    room: &GpuRoom,
    needed: fn(&GpuDemand) -> u64,
) -> String {
    let needs = |ranks: usize, keep: Keep| demand(ranks, keep).ok().map(|other| needed(&other));
    let fits = |ranks: usize, keep: Keep| needs(ranks, keep).filter(|bytes| *bytes <= room.card.free);
    let mut ways = Vec::new();
    for quantize in [Quantize::Fp8, Quantize::Q4] {
        let is_possible = engine.quantize.is_none() && (quantize != Quantize::Fp8 || room.card.has_e4m3);
        let keep = Keep { quantize: Some(quantize), ..engine.keep() };
        if let Some(bytes) = fits(room.ranks, keep).filter(|_| is_possible) {
            ways.push(format!("`--quantize {}` ({} are needed then)", quantize.name(), BinaryBytes(bytes)));
        }
    }
    let more = (room.ranks + 1..=RANKS_MAX).find_map(|ranks| Some((ranks, fits(ranks, engine.keep())?)));
    if let Some((ranks, bytes)) = more {
        ways.push(format!("{ranks} such GPUs ({} on each)", BinaryBytes(bytes)));
    }
    if ways.is_empty() {
        let bytes = needs(room.ranks, engine.keep()).unwrap_or_default();
        return format!("a smaller model, or GPUs with {} free", BinaryBytes(bytes));
    }
    ways.join(", or ")
}

#[cfg(test)]
mod tests {
    use super::super::CheckStatus;
    use super::*;

    const GIB: u64 = 1 << 30;

    /// A model of 40 GiB in bf16.
    fn demand(ranks: usize, keep: Keep) -> Result<GpuDemand, ShardError> {
        let weights = match keep.quantize {
            Some(Quantize::Q8 | Quantize::Q8Wide) => {
                return Err(ShardError::Quantize("is q8, which is refused".to_owned()));
            }
            Some(Quantize::Fp8) => 22 * GIB,
            Some(Quantize::Q4) => 14 * GIB,
            None => 40 * GIB,
        };
        // Heads and widths divide by two alone.
        if !ranks.is_power_of_two() {
            return Err(ShardError::Uneven { field: "num_attention_heads", count: 64, ranks });
        }
        let of = |bytes: u64| bytes / ranks as u64;
        let (kv_min, tokens_min) = (of(GIB), 256);
        Ok(GpuDemand { weights: of(weights), step: 2 * GIB, kv_min, tokens_min, per_token: kv_min / 256 })
    }

    fn card(free: u64, total: u64, has_e4m3: bool) -> GpuInfo {
        GpuInfo { name: "a GPU".to_owned(), free: free * GIB, total: total * GIB, has_e4m3 }
    }

    fn found(engine: &EngineConfig, free: u64, (otherwise, has_e4m3): (Otherwise, bool)) -> Finding {
        let (ranks, card) = (engine.tensor_parallel, card(free, free, has_e4m3));
        judge(&demand, engine, &GpuRoom { card, ranks, is_own: true, otherwise })
    }

    /// One GPU of `total` GiB, of which `free` are free, that a server needs.
    fn needed(free: u64, total: u64) -> GpuRoom {
        GpuRoom { card: card(free, total, true), ranks: 1, is_own: true, otherwise: Otherwise::Fails }
    }

    #[test]
    fn a_model_that_fits_is_told_with_what_it_takes_and_how_many_tokens_have_room() {
        let engine = EngineConfig::default();
        let one = found(&engine, 80, (Otherwise::Fails, true));
        assert_eq!(
            one.to_string(),
            "ok      GPU memory: weights take 40.00 GiB, a step up to 2.00 GiB, and a token's keys and \
             values 4.00 MiB; a GPU has 80.00 GiB free, which is room for 9123 tokens"
        );
        let two = EngineConfig { tensor_parallel: 2, kv_bytes: Some(Bytes(8 * GIB)), ..engine };
        let two = found(&two, 24, (Otherwise::Fails, true));
        assert_eq!(
            two.to_string(),
            "ok      GPU memory: weights take 20.00 GiB on each of 2 GPUs, a step up to 2.00 GiB, and a \
             token's keys and values 2.00 MiB; a GPU has 24.00 GiB free, which is room for 1843 tokens"
        );
    }

    #[test]
    fn a_model_that_does_not_fit_is_told_with_what_would_make_it_fit() {
        let engine = EngineConfig::default();
        let failed = found(&engine, 24, (Otherwise::Fails, true));
        assert_eq!(failed.status, CheckStatus::Failure);
        assert!(failed.text.ends_with("; 41.00 GiB are needed, and a GPU has 24.00 GiB free"), "{failed}");
        let expected = "`--quantize fp8` (23.00 GiB are needed then), or `--quantize q4` (15.00 GiB are \
                        needed then), or 2 such GPUs (20.50 GiB on each)";
        assert_eq!(failed.remedy.as_deref(), Some(expected));
        let old = found(&engine, 16, (Otherwise::OnProcessor, false));
        assert_eq!(old.status, CheckStatus::Warning);
        assert!(old.text.ends_with("16.00 GiB free: the processor computes"), "{old}");
        let expected = "`--quantize q4` (15.00 GiB are needed then), or 4 such GPUs (10.25 GiB on each)";
        assert_eq!(old.remedy.as_deref(), Some(expected));
        let q4 = EngineConfig { quantize: Some(Quantize::Q4), ..engine };
        let tiny = found(&q4, 1, (Otherwise::Nothing, true));
        assert_eq!(tiny.status, CheckStatus::Warning);
        assert_eq!(tiny.remedy.as_deref(), Some("a smaller model, or GPUs with 15.00 GiB free"));
    }

    #[test]
    fn what_something_else_has_of_a_gpu_is_no_failure() {
        let engine = EngineConfig::default();
        let busy = judge(&demand, &engine, &needed(24, 80));
        assert_eq!(busy.status, CheckStatus::Warning);
        let expected = "; 41.00 GiB are needed, and a GPU has 24.00 GiB of 80.00 GiB free: something else has \
                        the rest, perhaps this server";
        assert!(busy.text.ends_with(expected), "{busy}");
        let remedy = busy.remedy.expect("a warning has one");
        let start = "unless it is this server, end what is there; or `--quantize fp8` (23.00 GiB";
        assert!(remedy.starts_with(start), "{remedy}");
        let small = judge(&demand, &engine, &needed(24, 40));
        assert_eq!(small.status, CheckStatus::Failure, "it never has room");
        let auto = GpuRoom { otherwise: Otherwise::OnProcessor, ..needed(24, 80) };
        let auto = judge(&demand, &engine, &auto);
        assert!(auto.text.ends_with("perhaps this server: the processor computes"), "{auto}");
    }

    #[test]
    fn a_model_that_leaves_steps_or_tokens_no_room_is_no_ok() {
        let engine = EngineConfig::default();
        let tight = found(&engine, 42, (Otherwise::Fails, true));
        assert_eq!(tight.status, CheckStatus::Warning, "{tight}");
        assert!(tight.text.ends_with(" tokens, and too little for the largest steps"), "{tight}");
        let remedy = tight.remedy.expect("a warning has one");
        assert!(remedy.starts_with("`--quantize fp8` (25.25 GiB are needed then), or "), "{remedy}");
        assert_eq!(found(&engine, 44, (Otherwise::Fails, true)).status, CheckStatus::Ok);
        let few = EngineConfig { kv_bytes: Some(Bytes(GIB / 2)), ..engine };
        let few = found(&few, 80, (Otherwise::Fails, true));
        assert_eq!(few.status, CheckStatus::Warning, "{few}");
        assert!(few.text.ends_with("room for 128 tokens, too few for a server"), "{few}");
        assert_eq!(few.remedy.as_deref(), Some("a larger `engine.kv_bytes`, or none"));
    }

    #[test]
    fn a_model_beside_others_is_told_to_be_judged_alone() {
        let engine = EngineConfig::default();
        let shared = judge(&demand, &engine, &GpuRoom { is_own: false, ..needed(80, 80) });
        let expected = "room for 9123 tokens where no other model of this configuration is on it";
        assert!(shared.text.ends_with(expected), "{shared}");
    }

    #[test]
    fn what_no_gpu_does_is_told_by_its_setting() {
        let quantized = |quantize| EngineConfig { quantize: Some(quantize), ..EngineConfig::default() };
        let refused = found(&quantized(Quantize::Q8), 80, (Otherwise::OnProcessor, true));
        assert_eq!(refused.text, "`engine.quantize` is q8, which is refused: the processor computes");
        let old = found(&quantized(Quantize::Fp8), 80, (Otherwise::Fails, false));
        assert_eq!(old.text, "`engine.quantize` is fp8, which a GPU (before 8.9) does not multiply");
        assert_eq!(old.status, CheckStatus::Failure);
        let uneven = EngineConfig { tensor_parallel: 3, ..EngineConfig::default() };
        let uneven = found(&uneven, 80, (Otherwise::Fails, true));
        assert_eq!(uneven.text, "`num_attention_heads` = 64 cannot be divided among 3 ranks");
    }

    #[test]
    fn gpus_that_are_only_asked_about_are_looked_for_nowhere() {
        let cpu = EngineConfig { device: Device::Cpu, tensor_parallel: 2, ..EngineConfig::default() };
        assert!(room(&cpu, None).is_none());
        let asked =
            room(&cpu, Some(Bytes(80 * GIB))).expect("they are asked about").expect("they have memory");
        assert_eq!((asked.card.free, asked.ranks, asked.otherwise), (80 * GIB, 2, Otherwise::Nothing));
    }
}
