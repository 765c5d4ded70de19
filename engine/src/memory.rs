//! How much memory this process may still take, where the system says so.

use base::Bytes;

/// The least of what the machine has free and what the process's control group leaves it. `None`
/// where neither can be read (not Linux).
pub fn available() -> Option<Bytes> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| meminfo_available(&text));
    let limit = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse::<u64>().ok());
    let used = read("/sys/fs/cgroup/memory.current").and_then(|text| text.trim().parse::<u64>().ok());
    let cached = read("/sys/fs/cgroup/memory.stat").and_then(|text| stat_file(&text)).unwrap_or(0);
    // Cached files count as used, mapped weights among them, but give way when memory is asked for.
    let group = limit.zip(used).map(|(limit, used)| limit.saturating_sub(used.saturating_sub(cached)));
    machine.into_iter().chain(group).min().map(Bytes)
}

/// `MemAvailable` of /proc/meminfo, in bytes.
fn meminfo_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// `file` of a control group's memory.stat: bytes of cached files.
fn stat_file(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("file "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_own_files_are_read_in_their_units() {
        assert_eq!(meminfo_available("MemTotal: 9 kB\nMemAvailable:   16 kB\n"), Some(16_384));
        assert_eq!(meminfo_available("MemTotal: 9 kB\n"), None);
        assert_eq!(meminfo_available("MemAvailable: many kB"), None);
        assert_eq!(stat_file("anon 5\nfile 7\nfile_mapped 3\n"), Some(7));
        assert_eq!(stat_file("anon 5\n"), None);
    }
}
