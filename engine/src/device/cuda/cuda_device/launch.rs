//! What the driver is told of a launch.

use std::collections::HashMap;

use cudarc::driver::sys;

use super::lost;
use crate::device::cuda::{GpuError, Grid, split_cluster};

/// A launch's attributes; `is_early`: whether its kernel may come before the one before it has ended.
pub(super) fn attributes(grid: Grid, is_early: bool) -> Vec<sys::CUlaunchAttribute> {
    use sys::CUlaunchAttributeID::{
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION as CLUSTER,
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION as EARLY,
    };
    let attribute = |id, value| sys::CUlaunchAttribute { id, pad: [0; 4], value };
    let early = sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 };
    let dimensions = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: grid.cluster, y: 1, z: 1 };
    let cluster = sys::CUlaunchAttributeValue { clusterDim: dimensions };
    let early = is_early.then(|| attribute(EARLY, early));
    early.into_iter().chain((grid.cluster > 1).then(|| attribute(CLUSTER, cluster))).collect()
}

/// A launch on a stream. It is read while `attributes` are there.
pub(super) fn config(
    grid: Grid,
    stream: sys::CUstream,
    attributes: &mut [sys::CUlaunchAttribute],
) -> sys::CUlaunchConfig {
    let [x, y] = grid.blocks;
    sys::CUlaunchConfig {
        gridDimX: x,
        gridDimY: y,
        gridDimZ: 1,
        blockDimX: grid.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: grid.shared,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
    }
}

/// How many clusters of the kernels that are made of them lie on the current context's device at once. It is not what multiprocessors
/// there are by a cluster's blocks: those of a cluster are of one part of the card, and what does not divide is left over.
pub(super) fn clusters_at_once(
    functions: &HashMap<String, sys::CUfunction>,
) -> Result<HashMap<String, usize>, GpuError> {
    let split = functions.iter().filter_map(|(name, function)| Some((name, *function, split_cluster(name)?)));
    let count = |(name, function, grid): (&String, sys::CUfunction, Grid)| {
        let mut attributes = attributes(grid, false);
        let config = config(grid, std::ptr::null_mut(), &mut attributes);
        let mut clusters = 0;
        // SAFETY: the function is of a loaded module, and the configuration and its attributes live until the driver has read them.
        let asked = unsafe { sys::cuOccupancyMaxActiveClusters(&mut clusters, function, &config) };
        asked.result().map_err(lost)?;
        Ok::<_, GpuError>((name.clone(), clusters.max(0) as usize))
    };
    split.map(count).collect()
}
