//! The kernels of ARM's processors, built and tested on another machine: in an emulator, on a processor that has all
//! their instructions and on one that has the least.

use crate::cargo::{Failed, cargo, cargo_with, runs};

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Links for it; compiles what its dependencies have in C.
const LINKER: &str = "aarch64-linux-gnu-gcc";

/// Where Debian and Ubuntu have its libraries.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

const EMULATOR: &str = "qemu-aarch64";

/// Processors as the emulator calls them. The second has no dot products of bytes.
const PROCESSORS: [&str; 2] = ["max", "cortex-a72"];

/// Tests of what runs on kernels.
const FILTERS: [&str; 3] = ["device::cpu::", "attention::", "pool::"];

/// Tests the kernels on both processors; on ARM, on the one that is there.
pub(crate) fn arm() -> Result<(), Failed> {
    let tests = |on: &str| format!("test {on}--package engine --lib -- {}", FILTERS.join(" "));
    if cfg!(target_arch = "aarch64") {
        return cargo(&tests(""), &[]);
    }
    let missing = [LINKER, EMULATOR].into_iter().find(|program| !runs(program, &["--version"]));
    if let Some(program) = missing {
        eprintln!("skipped: there is no {program} (`apt-get install qemu-user gcc-aarch64-linux-gnu`)");
        return Ok(());
    }
    if !has_target() {
        eprintln!("skipped: there is no standard library for {TARGET} (`rustup target add {TARGET}`)");
        return Ok(());
    }
    for processor in PROCESSORS {
        let runner = format!("{EMULATOR} -cpu {processor} -L {LIBRARIES}");
        let settings = [
            ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER),
            ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", &runner),
        ];
        cargo_with(&settings, &tests(&format!("--target {TARGET} --target-dir target/arm ")), &[])?;
    }
    Ok(())
}

/// Whether the compiler has the target's standard library.
fn has_target() -> bool {
    let asked =
        std::process::Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).output();
    asked.is_ok_and(|asked| std::path::Path::new(String::from_utf8_lossy(&asked.stdout).trim()).exists())
}
