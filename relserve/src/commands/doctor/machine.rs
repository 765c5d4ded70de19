//! What the machine gives: GPUs with their libraries, and ports.

use std::io::ErrorKind;
use std::net::SocketAddr;

use engine::Device;
use engine::device::cuda::{CudaError, device_count, missing_libraries};
use gateway::config::Config;
use gateway::ports::{BoundPort, ListenerKind};

use super::Finding;
use crate::commands::port_holder::{PortHolder, explained};

/// The subject of a finding about GPUs.
const GPU: &str = "GPU libraries";

/// Looks for the driver, GPUs and libraries that the local engine asks for.
pub(super) fn gpus(config: &Config) -> Finding {
    let engine = &config.engine;
    if !config.backends().iter().any(|(_, backend)| backend.has_local_engine()) {
        return Finding::ok(GPU, "none are needed: other servers run all rows");
    }
    let wanted = match &engine.device {
        Device::Cpu => return Finding::ok(GPU, "none are needed: engine.device is cpu"),
        Device::Auto => None,
        Device::Cuda(ordinals) => Some(ordinals.as_slice()),
    };
    let ranks = wanted.map_or(engine.tensor_parallel, <[usize]>::len);
    let last = wanted.and_then(|ordinals| ordinals.iter().max().copied()).unwrap_or(ranks - 1);
    match usable(last, ranks) {
        Ok(count) => Finding::ok(GPU, format!("the driver finds {count} GPUs, and no library is missing")),
        Err(reasons) if wanted.is_some() => {
            let remedy = "install what is missing, or `--device cpu`";
            Finding::failure(GPU, format!("engine.device is {}, but {reasons}", engine.device), remedy)
        }
        // Without a driver there is no GPU to miss anything for.
        Err(reasons) if device_count().is_err() => {
            Finding::ok(GPU, format!("{reasons}: the processor computes"))
        }
        Err(reasons) => {
            let remedy = "install what is missing, or `--device cpu` to say that it is meant so";
            Finding::warning(GPU, format!("{reasons}: the processor computes"), remedy)
        }
    }
}

/// The number of GPUs, where those up to `last` can be opened in groups of `ranks`; or all that is missing.
fn usable(last: usize, ranks: usize) -> Result<usize, String> {
    let mut reasons = Vec::new();
    let count = device_count();
    match &count {
        Err(error) => reasons.push(error.to_string()),
        Ok(count) if last >= *count => {
            reasons.push(CudaError::NoDevice { ordinal: last, count: *count }.to_string());
        }
        Ok(_) => {}
    }
    reasons.extend(missing_libraries(ranks).iter().map(CudaError::to_string));
    match count {
        Ok(count) if reasons.is_empty() => Ok(count),
        _ => Err(reasons.join("; ")),
    }
}

/// Binds each address for a moment.
pub(super) fn ports(config: &Config) -> Vec<Finding> {
    let http = port(ListenerKind::Http, config.server.listen);
    let sql = match config.sql.listen {
        Some(address) => port(ListenerKind::Sql, address),
        None => Finding::ok("port", "SQL is not served; `--sql ADDRESS` or sql.listen would"),
    };
    vec![http, sql]
}

fn port(listener: ListenerKind, address: SocketAddr) -> Finding {
    let error = match BoundPort::bind(listener, address) {
        Ok(_) if address.port() == 0 => {
            return Finding::ok(
                "port",
                format!("{} takes any free one of {}", listener.name(), address.ip()),
            );
        }
        Ok(_) => return Finding::ok("port", format!("{address} is free for {}", listener.name())),
        Err(error) => error,
    };
    let is_ours = error.cause.kind() == ErrorKind::AddrInUse
        && PortHolder::of(address).is_some_and(|holder| holder.is_relserve());
    if is_ours {
        let remedy = "nothing, if that is the server that is meant; else name another address";
        return Finding::warning("port", explained(&error), remedy);
    }
    Finding::failure("port", explained(&error), "end what has it, or name another address")
}
