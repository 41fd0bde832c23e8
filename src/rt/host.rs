//! Shell. Is this machine fit to run a shard?
//!
//! Owns the questions to the kernel, the raising of soft limits and the plan of what may be locked. Always: one finding is one line that says what, where and
//! what to do. Source: glommio 0.9.0 (its limits and required operations), io_uring_setup(2).

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::executor::StartError;
use super::raw;

/// What glommio asks of RLIMIT_MEMLOCK before it makes a ring.
const MEMLOCK_BYTES_MIN: u64 = 512 * 1024;
/// Below this many open files a broker with a few thousand partitions and clients will run out.
const NOFILE_WANTED: u64 = 16 * 1024;
/// `epoll_pwait2`, with which the net task waits for less than a millisecond.
const KERNEL_MIN: (u32, u32) = (5, 11);
/// Older ones had direct-I/O hangs that were fixed or never measured.
const KERNEL_WANTED: (u32, u32) = (6, 1);
/// Entries of each ring; a mass of cancellations beyond it would panic inside glommio. Fewer where little memory may be
/// locked.
const RING_DEPTHS: [usize; 2] = [1024, 256];
/// Locked memory of a shard's three rings per entry of depth: submissions of 64 bytes, twice as many completions of 16, an
/// index, rounded up.
const RINGS_BYTES_PER_ENTRY: u64 = 3 * 128;
/// As small as a ring can be: the question is only whether it is permitted.
const PROBE_ENTRIES: u32 = 2;

/// Checks host facts before anything starts (kernel, io_uring permitted, memlock, nofile raised): the first fatal finding is
/// the error; the rest are warnings.
pub fn probe_host() -> Result<Vec<String>, StartError> {
    let mut warnings = Vec::new();
    let uname = rustix::system::uname();
    judge_kernel(&uname.release().to_string_lossy(), &mut warnings)?;
    judge_memlock(raise(Resource::Memlock))?;
    if let Some(warning) = judge_nofile(raise(Resource::Nofile)) {
        warnings.push(warning);
    }
    if let Err(errno) = raw::try_ring(PROBE_ENTRIES) {
        let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
        return Err(StartError::IoUring(explain_ring_failure(errno, disabled.as_deref().map(str::trim))));
    }
    Ok(warnings)
}

/// Raises a soft limit to its hard limit and tells what holds now; `None` is "no limit".
fn raise(resource: Resource) -> Option<u64> {
    let limit = getrlimit(resource);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum && setrlimit(resource, wanted).is_ok() { limit.maximum } else { limit.current }
}

/// How much memory this process may lock, `None` without a limit: for root, unless its container took that right away.
pub(super) fn memlock_bytes() -> Option<u64> {
    let privileged = rustix::thread::capabilities(None)
        .is_ok_and(|capabilities| capabilities.effective.contains(rustix::thread::CapabilitySet::IPC_LOCK));
    if privileged { None } else { getrlimit(Resource::Memlock).current }
}

/// How rings and pools share what may be locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LockedMemory {
    pub(super) ring_depth: usize,
    pub(super) pool_bytes: usize,
}

impl LockedMemory {
    /// `limit`: what this user may lock, `None` without a limit. The rings must fit. The pools need not: glommio tries to
    /// register each with three rings and goes on without when that fails, which costs nothing we could measure. But a pool
    /// that is registered must leave room for the rings of the next shard; so either all fit, or none, for which each is made
    /// too large to be locked (unlocked, only the part in use is resident).
    pub(super) fn plan(shards: usize, pool_bytes: usize, limit: Option<u64>) -> Result<Self, StartError> {
        let Some(limit) = limit else { return Ok(Self { ring_depth: RING_DEPTHS[0], pool_bytes }) };
        let rings_bytes = |depth: usize| shards as u64 * depth as u64 * RINGS_BYTES_PER_ENTRY;
        let Some(ring_depth) = RING_DEPTHS.into_iter().find(|depth| rings_bytes(*depth) <= limit) else {
            return Err(StartError::MemLock(format!(
                "memlock limit is {limit} bytes, the rings of {shards} shards need {}: raise it with `ulimit -l 8192`, \
                 LimitMEMLOCK=8M (systemd) or --ulimit memlock=8388608 (containers), or run fewer shards",
                rings_bytes(RING_DEPTHS[1])
            )));
        };
        let all_pools = 3 * shards as u64 * pool_bytes as u64;
        let fits = rings_bytes(ring_depth) + all_pools <= limit;
        let unlocked = usize::try_from(limit).unwrap_or(usize::MAX).max(pool_bytes);
        Ok(Self { ring_depth, pool_bytes: if fits { pool_bytes } else { unlocked } })
    }
}

fn judge_kernel(release: &str, warnings: &mut Vec<String>) -> Result<(), StartError> {
    let Some(version) = parse_release(release) else {
        warnings.push(format!("kernel {release}: not a version we can read; Linux 6.1 or newer is what we test"));
        return Ok(());
    };
    if version < KERNEL_MIN {
        return Err(StartError::IoUring(format!(
            "kernel {release} is too old: io_uring and epoll_pwait2 as used here need Linux {}.{}; run a newer kernel",
            KERNEL_MIN.0, KERNEL_MIN.1
        )));
    }
    if version < KERNEL_WANTED {
        warnings.push(format!(
            "kernel {release}: older than {}.{}, the oldest we test; large direct reads were seen to hang on some",
            KERNEL_WANTED.0, KERNEL_WANTED.1
        ));
    }
    Ok(())
}

fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn judge_memlock(limit: Option<u64>) -> Result<(), StartError> {
    match limit {
        Some(bytes) if bytes < MEMLOCK_BYTES_MIN => Err(StartError::MemLock(format!(
            "memlock limit is {bytes} bytes, the rings need {MEMLOCK_BYTES_MIN}: raise it with `ulimit -l 8192`, \
             LimitMEMLOCK=8M (systemd) or --ulimit memlock=8388608 (containers)"
        ))),
        _ => Ok(()),
    }
}

fn judge_nofile(limit: Option<u64>) -> Option<String> {
    let limit = limit.filter(|limit| *limit < NOFILE_WANTED)?;
    Some(format!(
        "only {limit} files may be open (hard limit): connections and partitions will run out early; raise it with \
         `ulimit -Hn {NOFILE_WANTED}`, LimitNOFILE={NOFILE_WANTED} (systemd) or --ulimit nofile={NOFILE_WANTED} (containers)"
    ))
}

fn explain_ring_failure(errno: Errno, disabled: Option<&str>) -> String {
    match (errno, disabled) {
        (Errno::NOSYS, _) => "io_uring is missing: this kernel was built without it or a sandbox (gVisor, old seccomp \
             profile) hides it; run on Linux 5.11 or newer with io_uring, outside such a sandbox"
            .into(),
        (Errno::PERM, Some("2")) => "io_uring is disabled on this host (kernel.io_uring_disabled = 2): \
             `sysctl kernel.io_uring_disabled=0` as root"
            .into(),
        (Errno::PERM, Some("1")) => {
            "io_uring is closed to unprivileged users on this host (kernel.io_uring_disabled = 1): \
             `sysctl kernel.io_uring_disabled=0` as root, or put the broker's group into kernel.io_uring_group"
                .into()
        }
        (Errno::PERM | Errno::ACCESS, _) => {
            "io_uring is not permitted here: most likely the container's seccomp profile; \
             run with --security-opt seccomp=unconfined or a profile that allows io_uring_setup, io_uring_enter and \
             io_uring_register"
                .into()
        }
        (Errno::NOMEM, _) => {
            "no memory for an io_uring: the memlock limit or the memory cgroup is too small; raise the \
             limit with `ulimit -l 8192`"
                .into()
        }
        (Errno::MFILE | Errno::NFILE, _) => "no descriptor left for an io_uring: raise the limit of open files \
             (`ulimit -n`)"
            .into(),
        (errno, _) => format!("io_uring cannot be set up: {errno}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_are_refused_and_strange_ones_are_warned_of() {
        let mut warnings = Vec::new();
        assert!(judge_kernel("5.10.0-28-amd64", &mut warnings).is_err());
        assert!(judge_kernel("4.19", &mut warnings).is_err());
        assert!(warnings.is_empty());
        assert!(judge_kernel("5.15.0-100-generic", &mut warnings).is_ok());
        assert_eq!(warnings.len(), 1);
        assert!(judge_kernel("6.18.44-fc", &mut warnings).is_ok());
        assert_eq!(warnings.len(), 1);
        assert!(judge_kernel("mainline", &mut warnings).is_ok());
        assert_eq!(warnings.len(), 2);
    }

    #[test]
    fn little_locked_memory_is_refused_in_one_line() {
        assert!(judge_memlock(None).is_ok());
        assert!(judge_memlock(Some(8 << 20)).is_ok());
        let text = judge_memlock(Some(64 << 10)).unwrap_err().to_string();
        assert!(text.contains("65536") && text.contains("ulimit -l") && !text.contains('\n'), "{text}");
    }

    #[test]
    fn few_open_files_are_warned_of() {
        assert_eq!(judge_nofile(None), None);
        assert_eq!(judge_nofile(Some(1 << 20)), None);
        assert!(judge_nofile(Some(1024)).unwrap().contains("1024"));
    }

    #[test]
    fn each_refusal_of_io_uring_names_its_cause() {
        for (errno, disabled, word) in [
            (Errno::NOSYS, None, "missing"),
            (Errno::PERM, Some("2"), "io_uring_disabled = 2"),
            (Errno::PERM, Some("1"), "io_uring_group"),
            (Errno::PERM, Some("0"), "seccomp"),
            (Errno::NOMEM, None, "memlock"),
            (Errno::INVAL, None, "cannot be set up"),
        ] {
            let text = explain_ring_failure(errno, disabled);
            assert!(text.contains(word) && !text.contains('\n'), "{text}");
        }
    }

    const MIB: usize = 1 << 20;

    #[test]
    fn pools_are_locked_all_or_none() {
        let plan = |shards, pool, limit| LockedMemory::plan(shards, pool, limit).unwrap();
        assert_eq!(plan(2, 4 * MIB, None), LockedMemory { ring_depth: 1024, pool_bytes: 4 * MIB });
        assert_eq!(plan(2, MIB, Some(8 << 20)), LockedMemory { ring_depth: 1024, pool_bytes: MIB });
        // Two of three would fit, and the third shard would find no room for its rings.
        assert_eq!(plan(3, MIB, Some(8 << 20)), LockedMemory { ring_depth: 1024, pool_bytes: 8 * MIB });
        assert_eq!(plan(64, 4 * MIB, Some(8 << 20)), LockedMemory { ring_depth: 256, pool_bytes: 8 * MIB });
    }

    #[test]
    fn rings_that_do_not_fit_are_one_clear_line() {
        let text = LockedMemory::plan(16, MIB, Some(512 << 10)).unwrap_err().to_string();
        assert!(text.contains("16 shards") && text.contains("ulimit -l") && !text.contains('\n'), "{text}");
    }
}
