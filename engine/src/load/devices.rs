//! The devices that settings ask for, opened: GPUs, or threads of the processor.

use std::sync::Arc;

use super::EngineError;
use crate::checkpoint::{Dtype, ModelConfig};
use crate::decoder::{gpu_refusal, kernel_set};
use crate::device::cuda::{CudaRuntime, Gpu, device_count};
use crate::device::{Cpu, Isa};
use crate::parallel::ShardedModel;
use crate::settings::{Device, EngineConfig};

/// The GPUs that are asked for, open; `None`: the processor runs the model.
pub(super) fn gpus(
    (config, model): (&EngineConfig, &ModelConfig),
    stored: Dtype,
    cuda: &Arc<CudaRuntime>,
) -> Result<Option<Vec<Arc<dyn Gpu>>>, EngineError> {
    match &config.device {
        Device::Cpu => Ok(None),
        Device::Cuda(ordinals) => {
            let gpus = cuda.open_for(ordinals, kernel_set(stored, config.keep()));
            gpus.map(Some).map_err(|error| {
                let reason = format!("is {}, but {error}", config.device);
                EngineError::Config { field: "engine.device", reason }
            })
        }
        Device::Auto => match first_gpus((config, model), stored, cuda) {
            Ok(gpus) => Ok(Some(gpus)),
            Err(reason) => {
                tracing::info!(reason, "no GPU is used");
                Ok(None)
            }
        },
    }
}

/// The first GPUs of the machine, one for each rank; or why they cannot be used.
fn first_gpus(
    (config, model): (&EngineConfig, &ModelConfig),
    stored: Dtype,
    cuda: &Arc<CudaRuntime>,
) -> Result<Vec<Arc<dyn Gpu>>, String> {
    if let Some(what) = gpu_refusal(model) {
        return Err(format!("the model has {what}, which runs on the processor only"));
    }
    let count = config.tensor_parallel;
    let found = device_count().map_err(|error| error.to_string())?;
    if found < count {
        return Err(format!("there are {found} GPUs for {count} ranks"));
    }
    config.validate_on_gpus(count).map_err(|(field, reason)| format!("`{field}` {reason}"))?;
    let (ordinals, set) = ((0..count).collect::<Vec<_>>(), kernel_set(stored, config.keep()));
    let gpus = cuda.open_for(&ordinals, set).map_err(|error| error.to_string())?;
    ShardedModel::check_gpus(model, stored, &gpus, config.keep()).map_err(|error| error.to_string())?;
    Ok(gpus)
}

/// Threads beside so many GPUs: one waits for each, and rank 0's sample.
pub(super) fn beside_gpus(gpus: usize) -> Result<Vec<Arc<Cpu>>, EngineError> {
    let cpu = |rank| Cpu::new((rank > 0).then_some(1)).map(Arc::new).map_err(EngineError::Threads);
    (0..gpus).map(cpu).collect()
}

/// The threads, with the kernels that are asked for: shared out evenly among ranks, the first ones taking
/// what is left over.
pub(super) fn cpus(config: &EngineConfig) -> Result<Vec<Arc<Cpu>>, EngineError> {
    if let Some(isa) = config.isa.filter(|isa| !isa.is_available()) {
        let reason = format!("is {isa:?}, which this machine lacks; its best is {:?}", Isa::detect());
        return Err(EngineError::Config { field: "engine.isa", reason });
    }
    let threads = match config.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism().map_err(EngineError::Threads)?.get(),
    };
    let ranks = config.tensor_parallel;
    let share = |rank: usize| (threads / ranks + usize::from(rank < threads % ranks)).max(1);
    let cpu = |rank| {
        let threads = Some(share(rank));
        let cpu = config.isa.map_or_else(|| Cpu::new(threads), |isa| Cpu::with_isa(threads, isa));
        cpu.map(Arc::new).map_err(EngineError::Threads)
    };
    (0..ranks).map(cpu).collect()
}
