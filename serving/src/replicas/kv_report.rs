//! What a server says of the size of its KV memory: vLLM among its metrics, llama.cpp's server among its properties.
//!
//! It counts where the configuration names no `tokens_max`. Whatever is absent or cannot be read says nothing.

use base::TokenCount;
use serde_json::Value;

use crate::config::Dialect;

/// vLLM's gauge, whose labels are the settings of its cache: `vllm:cache_config_info{block_size="16",...} 1.0`.
const VLLM_CACHE: &str = "vllm:cache_config_info{";

/// Tokens that the KV memory of a server holds, by what it replied at [`Dialect::kv_path`].
pub(super) fn kv_tokens(dialect: Dialect, body: &[u8]) -> Option<TokenCount> {
    let tokens = match dialect {
        Dialect::Vllm => in_metrics(&String::from_utf8_lossy(body)),
        Dialect::LlamaCpp => in_properties(&serde_json::from_slice(body).ok()?),
        Dialect::Openai | Dialect::Sglang => None,
    };
    tokens.filter(|tokens| *tokens > 0).map(TokenCount)
}

/// Of all engines of a vLLM: each has a line.
fn in_metrics(metrics: &str) -> Option<u64> {
    let labels = metrics.lines().filter_map(|line| line.strip_prefix(VLLM_CACHE));
    labels.filter_map(of_engine).try_fold(0_u64, u64::checked_add)
}

/// Blocks times tokens of a block. Before they are counted there may be only how many were asked for.
fn of_engine(labels: &str) -> Option<u64> {
    let number = |name| label(labels, name)?.parse::<u64>().ok();
    let blocks = number("num_gpu_blocks").or_else(|| number("num_gpu_blocks_override"))?;
    blocks.checked_mul(number("block_size")?)
}

/// The value of a label in `a="1",b="2"} 1.0`: a quote inside of one stands behind a backslash.
fn label<'a>(mut labels: &'a str, wanted: &str) -> Option<&'a str> {
    loop {
        let (name, rest) = labels.split_once("=\"")?;
        let mut is_escaped = false;
        let end = rest.bytes().position(|byte| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        })?;
        if name.trim_start_matches([',', ' ']) == wanted {
            return Some(&rest[..end]);
        }
        labels = &rest[end + 1..];
    }
}

/// Tokens of a slot, however many slots there are: what the memory holds at least.
///
/// `n_ctx` is what one row may have there. Where each slot has memory of its own (`-np N`) all of it is that times
/// `total_slots`; where all slots share one memory (`-kvu`, and as it comes without `-np`, since
/// <https://github.com/ggml-org/llama.cpp/pull/16736>) it is all of it, or less (`--kv-unified-per-slot`). Neither `/props`
/// nor `/slots` says which. Too little makes rows wait; too much ends every row there with an error once the memory is full
/// (<https://github.com/ggml-org/llama.cpp/issues/23652>).
fn in_properties(properties: &Value) -> Option<u64> {
    properties["default_generation_settings"]["n_ctx"].as_u64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(dialect: Dialect, body: &str, expected: Option<u64>) {
        assert_eq!(kv_tokens(dialect, body.as_bytes()), expected.map(TokenCount), "{body}");
    }

    #[test]
    fn vllm_says_blocks_and_what_one_holds_for_each_of_its_engines() {
        let line = |labels: &str| format!("# TYPE x gauge\nvllm:cache_config_info{{{labels}}} 1.0\n");
        for (labels, tokens) in [
            (r#"block_size="16",num_gpu_blocks="1234""#, Some(19_744)),
            (r#"num_gpu_blocks="1234",num_gpu_blocks_override="None",block_size="16","#, Some(19_744)),
            (r#"block_size="16",num_gpu_blocks="None",num_gpu_blocks_override="10""#, Some(160)),
            (r#"block_size="16",num_gpu_blocks="None",num_gpu_blocks_override="None""#, None),
            (r#"path="a\"b,num_gpu_blocks=\"7\"}",block_size="8", num_gpu_blocks="2""#, Some(16)),
            (r#"num_gpu_blocks="1234""#, None),
            (r#"block_size="16",num_gpu_blocks="0""#, None),
            (r#"block_size="16",num_gpu_blocks="-4""#, None),
            (r#"block_size="16",num_gpu_blocks="18446744073709551615""#, None),
            (r#"block_size="16",num_gpu_blocks="12"#, None),
        ] {
            check(Dialect::Vllm, &line(labels), tokens);
        }
        let engine = |number| line(&format!(r#"engine="{number}",block_size="16",num_gpu_blocks="10""#));
        check(Dialect::Vllm, &(engine(0) + &engine(1)), Some(320));
        check(Dialect::Vllm, "vllm:num_requests_running 3\n", None);
        check(Dialect::Vllm, "", None);
        check(Dialect::Openai, &engine(0), None);
    }

    /// What llama.cpp's server replies under `/props`, without what it says of the model.
    fn properties(n_ctx: u64, total_slots: u64) -> String {
        let settings =
            json!({"params": {"n_predict": -1, "temperature": 0.8, "stream": true}, "n_ctx": n_ctx});
        let properties = json!({
            "default_generation_settings": settings, "total_slots": total_slots, "model_alias": "m",
            "modalities": {"vision": false, "audio": false}, "endpoint_slots": true, "endpoint_props": false,
            "endpoint_metrics": false, "chat_template_caps": {}, "build_info": "b9265-0123abcd", "is_sleeping": false,
        });
        properties.to_string()
    }

    #[test]
    fn of_llama_cpp_as_much_counts_as_one_slot_holds_for_others_may_share_it() {
        // `-c 8192`: four slots that share all of it.
        check(Dialect::LlamaCpp, &properties(8_192, 4), Some(8_192));
        // `-c 8192 -np 4`: each has a quarter. Nothing else in the reply is different.
        check(Dialect::LlamaCpp, &properties(2_048, 4), Some(2_048));
        check(Dialect::LlamaCpp, &properties(8_192, 1), Some(8_192));
        for (body, tokens) in [
            (r#"{"default_generation_settings": {"n_ctx": 4096}}"#, Some(4_096)),
            (r#"{"default_generation_settings": {"n_ctx": 0}, "total_slots": 4}"#, None),
            (r#"{"default_generation_settings": {"n_ctx": "4096"}, "total_slots": 4}"#, None),
            (r#"{"total_slots": 4}"#, None),
            // `/slots`, which tells no more.
            (r#"[{"id": 0, "n_ctx": 65536, "speculative": false, "is_processing": true}]"#, None),
            ("[]", None),
            ("not found", None),
        ] {
            check(Dialect::LlamaCpp, body, tokens);
        }
    }
}
