//! What an operator may choose about the engine.

use base::Bytes;
use serde::{Deserialize, Serialize};

use crate::checkpoint::Dtype;
use crate::device::Isa;

/// How weights of layers are kept in fewer bits than they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantize {
    /// Eight-bit integers in groups of 32 to 128 inputs under one scale, 8.1 to 8.5 bits a weight; activations are
    /// rounded to such integers, in groups of 32, to meet them. For the processor.
    Q8,
    /// The same in groups of up to 512 inputs, of activations too, 8.0 to 8.3 bits a weight, more where inputs are padded
    /// to a multiple of 64, for matrix units that multiply such integers (AMX), which take as long to scale a small group
    /// as to multiply it. Every processor multiplies them; answers are further from those of the weights as they are
    /// stored (`relserve eval quant` measures both). What is stored in eight bits (GGUF's Q8_0) is rounded again. For the
    /// processor.
    #[serde(rename = "q8-wide")]
    Q8Wide,
    /// Four-bit numbers in groups of 32 inputs under one scale, above one minimum, 5 bits a weight. What is stored in four
    /// bits (GGUF's Q4_0, Q4_1, Q4_K; AWQ, GPTQ) is kept as it is. On the processor activations are rounded to eight-bit
    /// integers to meet them, and what is stored in other blocks is kept as `q8`; so is the vocabulary, unless it is
    /// stored in four bits. On GPUs activations stay as they are, and so do the vocabulary and what is stored in other
    /// blocks.
    Q4,
    /// Eight-bit floats (E4M3), a row of weights under one scale; activations are rounded to such floats,
    /// each token's under a scale of its own. For GPUs.
    Fp8,
}

impl Quantize {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Q8, Self::Q8Wide, Self::Q4, Self::Fp8];

    /// The word used in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q8 => "q8",
            Self::Q8Wide => "q8-wide",
            Self::Q4 => "q4",
            Self::Fp8 => "fp8",
        }
    }
}

/// What keys and values of tokens are kept as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvFormat {
    /// Single precision.
    F32,
    /// bf16: half the memory and reading; queries and attention weights are rounded to meet them where `isa` is a
    /// set from `avx512bf16` on.
    Bf16,
    /// Eight-bit integers under one scale per token and head: half of bf16 again, and read as it is.
    Q8,
    /// Eight-bit floats (E4M3) under such scales: as much memory. Small numbers beside a large one keep their digits,
    /// which as integers they lose; where none is so large, integers are closer. For GPUs.
    Fp8,
}

/// Why the processor does not keep keys and values as [`KvFormat::Fp8`].
pub(crate) const NO_FP8_ON_CPU: &str =
    "is fp8, which is for GPUs: the processor keeps keys and values as f32, bf16 or q8";

impl KvFormat {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::F32, Self::Bf16, Self::Q8, Self::Fp8];

    /// Those that the processor keeps.
    pub const ON_CPU: [Self; 3] = [Self::F32, Self::Bf16, Self::Q8];

    /// The word used in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Q8 => "q8",
            Self::Fp8 => "fp8",
        }
    }
}

/// What weights, keys and values are kept as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Their type; `None`: as they are stored.
    pub dtype: Option<Dtype>,
    /// What those that products read are kept as instead.
    pub quantize: Option<Quantize>,
    /// What keys and values are kept as; `None`: bf16 where weights are kept as bf16 or in fewer bits, else
    /// f32.
    pub kv: Option<KvFormat>,
}

impl Keep {
    /// What keys and values are kept as beside weights that are stored as `stored`.
    pub fn kv_beside(&self, stored: Dtype) -> KvFormat {
        let is_rounded = self.quantize.is_some() || self.dtype.unwrap_or(stored) == Dtype::Bf16;
        self.kv.unwrap_or(if is_rounded { KvFormat::Bf16 } else { KvFormat::F32 })
    }
}

/// Where the model runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Device {
    /// On GPUs where there are any that can run it, else on the processor.
    #[default]
    Auto,
    /// On the processor.
    Cpu,
    /// On these GPUs, a rank on each.
    Cuda(Vec<usize>),
}

impl std::str::FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be `auto`, `cpu`, `cuda` or `cuda:` and numbers of GPUs, not `{text}`");
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(vec![0])),
            _ => {
                let numbers = text.strip_prefix("cuda:").ok_or_else(wrong)?;
                let numbers: Result<Vec<usize>, _> = numbers.split(',').map(str::parse).collect();
                let numbers = numbers.map_err(|_| wrong())?;
                match numbers.iter().enumerate().any(|(at, number)| numbers[..at].contains(number)) {
                    true => Err(format!("names a GPU twice: `{text}`")),
                    false => Ok(Self::Cuda(numbers)),
                }
            }
        }
    }
}

impl TryFrom<String> for Device {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
                write!(f, "cuda:{}", numbers.join(","))
            }
        }
    }
}

/// How the local engine runs the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Where the model runs: `auto` (on GPUs where there are any that can run it, else on the processor),
    /// `cpu`, `cuda:0`, or `cuda:0,1` and so on, a rank on each.
    pub device: Device,
    /// Threads that compute; absent: one per core.
    pub threads: Option<usize>,
    /// Ranks that the model is cut into, each with its share of the threads (at least one) and of the memory.
    pub tensor_parallel: usize,
    /// Most memory for keys and values, of all ranks together; absent: 1 GiB on the processor, on GPUs nine
    /// tenths of what the weights leave. Less is taken where the model cannot use it or the machine does not
    /// have it.
    pub kv_bytes: Option<Bytes>,
    /// Memory of the host for blocks that leave the KV pool, of all ranks together: their prefixes can be hit
    /// still. 0: none. Beside a pool that is in the host's memory itself, more `kv_bytes` do the same without
    /// copies.
    pub host_kv_bytes: Bytes,
    /// Positions of a KV block: the unit of sharing.
    pub block_tokens: u32,
    /// What weights are kept as; absent: as they are stored, and what is stored in blocks of integers as bf16.
    pub dtype: Option<Dtype>,
    /// Keeps all weights that products read in fewer bits; `dtype` then is what the others are kept as.
    pub quantize: Option<Quantize>,
    /// What keys and values are kept as; absent: bf16 where weights are kept as bf16 or in fewer bits, else
    /// f32. A GPU keeps them as `q8` or `fp8`, or as is its own beside weights of their type: f32 beside f32, else
    /// bf16. `fp8` is for GPUs alone.
    pub kv: Option<KvFormat>,
    /// Instructions that products use, of those that the machine has; absent: the fastest, which a trial
    /// at start finds.
    /// Sets from `avx512bf16` on round activations to bf16 where weights are kept as bf16; `avx512fp16` rounds them
    /// to half floats where weights are kept as bf16 or f16.
    pub isa: Option<Isa>,
    /// Requests that may be in the KV pool at their full length at once; more blocks than those take
    /// are not made.
    pub sequences_max: u32,
    /// The date that a chat template may ask for, in unix seconds; absent: the template's own fixed
    /// date, so that prompts stay the same from day to day and caches keep their worth.
    pub template_date: Option<u64>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            device: Device::Auto,
            threads: None,
            tensor_parallel: 1,
            kv_bytes: None,
            host_kv_bytes: Bytes(0),
            block_tokens: 16,
            dtype: None,
            quantize: None,
            kv: None,
            isa: None,
            sequences_max: 256,
            template_date: None,
        }
    }
}

impl EngineConfig {
    /// What weights, keys and values are kept as.
    pub fn keep(&self) -> Keep {
        Keep { dtype: self.dtype, quantize: self.quantize, kv: self.kv }
    }

    /// Rejects values with which nothing could run; the error names the field.
    pub fn validate(&self) -> Result<(), (&'static str, String)> {
        if self.threads == Some(0) {
            return Err(("engine.threads", "must be positive".to_owned()));
        }
        if self.tensor_parallel == 0 {
            return Err(("engine.tensor_parallel", "must be positive".to_owned()));
        }
        match &self.device {
            Device::Cuda(numbers) => self.validate_on_gpus(numbers.len())?,
            Device::Cpu => self.validate_on_cpu()?,
            Device::Auto => {}
        }
        if self.block_tokens == 0 {
            return Err(("engine.block_tokens", "must be positive".to_owned()));
        }
        if self.sequences_max == 0 {
            return Err(("engine.sequences_max", "must be positive".to_owned()));
        }
        Ok(())
    }

    /// What only GPUs can do is not asked of the processor.
    pub(crate) fn validate_on_cpu(&self) -> Result<(), (&'static str, String)> {
        if self.quantize == Some(Quantize::Fp8) {
            let reason = "is fp8, which is for GPUs: on the processor weights may be q8, q8-wide or q4";
            return Err(("engine.quantize", reason.to_owned()));
        }
        if self.kv == Some(KvFormat::Fp8) {
            return Err(("engine.kv", NO_FP8_ON_CPU.to_owned()));
        }
        Ok(())
    }

    /// What only the processor can do is not asked of `count` GPUs.
    pub(crate) fn validate_on_gpus(&self, count: usize) -> Result<(), (&'static str, String)> {
        if ![1, count].contains(&self.tensor_parallel) {
            let reason = format!("is {}, and `engine.device` names {count} GPUs", self.tensor_parallel);
            return Err(("engine.tensor_parallel", reason));
        }
        match self.quantize {
            Some(quantize @ (Quantize::Q8 | Quantize::Q8Wide)) => {
                let reason = "which is for the processor: on GPUs weights may be fp8 or q4";
                Err(("engine.quantize", format!("is {}, {reason}", quantize.name())))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_written_as_it_is_read() {
        for text in ["auto", "cpu", "cuda:0", "cuda:0,1,3"] {
            assert_eq!(text.parse::<Device>().map(|device| device.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("cuda".parse(), Ok(Device::Cuda(vec![0])));
        for text in ["", "gpu", "cuda:", "cuda:x", "cuda:0,", "cuda:1,1", "cpu:0"] {
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_gpu_cannot_do_is_refused_by_its_name() {
        let config = |change: fn(&mut EngineConfig)| {
            let mut config = EngineConfig { device: Device::Cuda(vec![0, 1]), ..EngineConfig::default() };
            change(&mut config);
            config.validate().map_err(|(field, _)| field)
        };
        assert_eq!(config(|_| ()), Ok(()));
        assert_eq!(config(|config| config.tensor_parallel = 2), Ok(()));
        assert_eq!(config(|config| config.tensor_parallel = 4), Err("engine.tensor_parallel"));
        assert_eq!(config(|config| config.quantize = Some(Quantize::Q8)), Err("engine.quantize"));
        assert_eq!(config(|config| config.quantize = Some(Quantize::Q8Wide)), Err("engine.quantize"));
        assert_eq!(config(|config| config.quantize = Some(Quantize::Q4)), Ok(()));
        assert_eq!(config(|config| config.quantize = Some(Quantize::Fp8)), Ok(()));
        assert_eq!(config(|config| config.kv = Some(KvFormat::Q8)), Ok(()));
        assert_eq!(config(|config| config.kv = Some(KvFormat::Fp8)), Ok(()));
        let on_cpu =
            EngineConfig { device: Device::Cpu, quantize: Some(Quantize::Fp8), ..Default::default() };
        assert_eq!(on_cpu.validate().map_err(|(field, _)| field), Err("engine.quantize"));
        let kept = |kv| EngineConfig { device: Device::Cpu, kv: Some(kv), ..Default::default() }.validate();
        for kv in KvFormat::ALL {
            let is_kept = KvFormat::ON_CPU.contains(&kv);
            assert_eq!(kept(kv), if is_kept { Ok(()) } else { Err(("engine.kv", NO_FP8_ON_CPU.to_owned())) });
        }
    }
}
