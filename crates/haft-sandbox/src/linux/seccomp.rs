//! Refuses system calls that no confined command needs, and system calls that would bypass another layer.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

use super::namespaces::LevelAttempt;
use super::stage::StageError;
use crate::message::SandboxLayer;
use crate::plan::SandboxPlan;
use crate::sockets::PlannedSockets;
use haft_core::settings::mode::SandboxMode;

const STAGE: &str = "seccomp";

/// The number of `open_tree_attr`, which opens a mount with new attributes since Linux 6.15. It is the same on all
/// architectures.
const OPEN_TREE_ATTR: libc::c_long = 467;

/// The system calls that the filter refuses in every mode. They create or change mounts and namespaces, access the
/// kernel's keyrings, load kernel programs, set the clock, control the machine itself, or belong to interfaces whose
/// requests no filter can inspect.
const NEVER: &[libc::c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
];

/// System calls that inspect or control other processes. The filter refuses them in every mode except `full`.
const OTHER_PROCESSES: &[libc::c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
];

/// System calls that change a process, with the position of the argument that contains the pid. Without a pid
/// namespace, a call with a pid other than 0 is refused, because the pid refers to another process.
const NAMES_A_PROCESS: &[(libc::c_long, u8)] = &[
    (libc::SYS_prlimit64, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_ioprio_set, 1),
    (libc::SYS_move_pages, 0),
    (libc::SYS_migrate_pages, 0),
];

/// System V IPC and POSIX message queues. Without an IPC namespace, they would give access to queues and memory of
/// other processes, and would stay after the call.
const SYSTEM_V: &[libc::c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// The namespaces that `clone` could create.
const CLONE_NAMESPACES: &[libc::c_int] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

type SeccompRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Enforces the filter for this process and its descendants. Installs one filter instead of three: at installation the
/// kernel tries each filter on every system call number, which would be half of a launcher's work.
pub(super) fn enforce(attempt: LevelAttempt, plan: &SandboxPlan) -> Result<SandboxLayer, StageError> {
    let failed = |error: &dyn std::fmt::Display| StageError::new(STAGE, error);
    let compiled = compile(refused(attempt, plan), libc::EPERM).map_err(|error| failed(&error))?;
    let program: BpfProgram = by_number().into_iter().chain(compiled).collect();
    seccompiler::apply_filter(&program).map_err(|error| failed(&error))?;
    Ok(SandboxLayer::active(
        "seccomp",
        "refuses mounts, namespaces, kernel modules, BPF, io_uring, kernel keyrings and foreign architectures",
    ))
}

fn refused(attempt: LevelAttempt, plan: &SandboxPlan) -> SeccompRules {
    let mut rules: SeccompRules = NEVER.iter().map(|call| (*call, Vec::new())).collect();
    let namespaces = CLONE_NAMESPACES.iter().filter_map(|flag| has_flag(*flag));
    rules.insert(libc::SYS_clone, namespaces.collect());
    rules.extend(SETS_MODE.iter().map(|call| (call.number, call.set_id_rules())));
    match plan.mode {
        SandboxMode::Workspace | SandboxMode::Network => {
            rules.extend(OTHER_PROCESSES.iter().map(|call| (*call, Vec::new())));
            let refused = foreign_family(attempt, plan).into_iter().chain(other_unix_sockets(plan));
            rules.insert(libc::SYS_socket, refused.collect());
        }
        SandboxMode::Full => {
            let families = denied_families(attempt, plan);
            let families = families.iter().filter_map(|family| family_is(*family));
            let refused: Vec<SeccompRule> = families.chain(other_unix_sockets(plan)).collect();
            if !refused.is_empty() {
                rules.insert(libc::SYS_socket, refused);
            }
        }
    }
    if plan.unix_sockets != PlannedSockets::All {
        // Refuse datagram pairs: a datagram socket from a pair can send to any socket address, but the ends of a stream
        // pair reach only each other.
        let datagrams = [libc::SOCK_DGRAM, libc::SOCK_RAW];
        rules.insert(libc::SYS_socketpair, datagrams.iter().filter_map(|kind| pair_of(*kind)).collect());
    }
    if !attempt.has_namespaces() {
        rules.extend(SYSTEM_V.iter().map(|call| (*call, Vec::new())));
        rules.extend(
            NAMES_A_PROCESS.iter().map(|(call, at)| (*call, argument_is_not(*at, 0).into_iter().collect())),
        );
    }
    rules
}

/// Matches every socket family that is not allowed.
fn foreign_family(attempt: LevelAttempt, plan: &SandboxPlan) -> Option<SeccompRule> {
    let mut families = vec![libc::AF_NETLINK];
    // In its own network namespace, a command without network access can reach only itself, so it may open internet
    // sockets. Without namespaces, only a command with network access may open them.
    if plan.network || attempt.has_namespaces() {
        families.extend([libc::AF_INET, libc::AF_INET6]);
    }
    match plan.unix_sockets {
        PlannedSockets::Denied => {}
        PlannedSockets::Named(_) | PlannedSockets::All => families.push(libc::AF_UNIX),
    }
    let conditions =
        families.iter().map(|family| condition(0, SeccompCmpOp::Ne, *family)).collect::<Option<Vec<_>>>()?;
    SeccompRule::new(conditions).ok()
}

/// Returns the socket families to refuse in `full` mode: only those that the operator denied.
fn denied_families(attempt: LevelAttempt, plan: &SandboxPlan) -> Vec<libc::c_int> {
    let unix = match plan.unix_sockets {
        PlannedSockets::Denied => Some(libc::AF_UNIX),
        PlannedSockets::Named(_) | PlannedSockets::All => None,
    };
    let reaches_out = !plan.network && !attempt.has_namespaces();
    let internet = if reaches_out { vec![libc::AF_INET, libc::AF_INET6] } else { Vec::new() };
    unix.into_iter().chain(internet).collect()
}

/// Matches unix sockets other than streams if the command may use only some sockets. A datagram socket can send to a
/// path without `connect`, so it could reach a socket that the operator did not name.
fn other_unix_sockets(plan: &SandboxPlan) -> Vec<SeccompRule> {
    let kinds = match plan.unix_sockets {
        PlannedSockets::Denied | PlannedSockets::All => return Vec::new(),
        PlannedSockets::Named(_) => [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET],
    };
    let rule = |kind: libc::c_int| {
        let family = condition(0, SeccompCmpOp::Eq, libc::AF_UNIX)?;
        SeccompRule::new(vec![family, condition(1, SeccompCmpOp::MaskedEq(KIND_MASK), kind)?]).ok()
    };
    kinds.into_iter().filter_map(rule).collect()
}

/// The bits of a socket type that select its kind. The others are flags.
const KIND_MASK: u64 = 0xf;

fn family_is(family: libc::c_int) -> Option<SeccompRule> {
    SeccompRule::new(vec![condition(0, SeccompCmpOp::Eq, family)?]).ok()
}

/// Matches a `socketpair` call of this kind, ignoring the flags in the same argument.
fn pair_of(kind: libc::c_int) -> Option<SeccompRule> {
    SeccompRule::new(vec![condition(1, SeccompCmpOp::MaskedEq(KIND_MASK), kind)?]).ok()
}

/// A system call that can set a file's mode, with the position of the mode argument.
struct SetsMode {
    number: libc::c_long,
    mode_at: u8,
    /// The position of the flags argument, if the mode is used only when the call creates a file.
    flags_at: Option<u8>,
}

/// The calls that must not set the set-user-ID or set-group-ID bit. If haft runs as root, such a file left in the
/// workspace would give root rights to any user who runs it later. A filter cannot distinguish files from directories,
/// so directories cannot get the bit either.
const SETS_MODE: &[SetsMode] = &[
    SetsMode { number: libc::SYS_fchmod, mode_at: 1, flags_at: None },
    SetsMode { number: libc::SYS_fchmodat, mode_at: 2, flags_at: None },
    SetsMode { number: SYS_FCHMODAT2, mode_at: 2, flags_at: None },
    SetsMode { number: libc::SYS_openat, mode_at: 3, flags_at: Some(2) },
    SetsMode { number: libc::SYS_mknodat, mode_at: 2, flags_at: None },
    #[cfg(target_arch = "x86_64")]
    SetsMode { number: libc::SYS_chmod, mode_at: 1, flags_at: None },
    #[cfg(target_arch = "x86_64")]
    SetsMode { number: libc::SYS_open, mode_at: 2, flags_at: Some(1) },
    #[cfg(target_arch = "x86_64")]
    SetsMode { number: libc::SYS_creat, mode_at: 1, flags_at: None },
    #[cfg(target_arch = "x86_64")]
    SetsMode { number: libc::SYS_mknod, mode_at: 1, flags_at: None },
];

/// The bits that let a program run with the rights of its owner or group.
const SET_ID_BITS: [u32; 2] = [libc::S_ISUID, libc::S_ISGID];

/// The flags with which `open` creates a file. `O_TMPFILE` is included, because a file without a name can get one
/// later.
const SET_ID_CREATES: [libc::c_int; 2] = [libc::O_CREAT, libc::O_TMPFILE];

/// The number of `fchmodat2`, the same on every architecture.
const SYS_FCHMODAT2: libc::c_long = 452;

impl SetsMode {
    /// Returns rules for each of the two bits. A call with flags gets one rule for each flag that creates a file.
    fn set_id_rules(&self) -> Vec<SeccompRule> {
        let has = |at: u8, bits: u32| {
            let bits = u64::from(bits);
            SeccompCondition::new(at, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), bits).ok()
        };
        let creates = match self.flags_at {
            Some(at) => SET_ID_CREATES.map(|flags| Some((at, flags.cast_unsigned()))).to_vec(),
            None => vec![None],
        };
        let pairs = creates.iter().flat_map(|creates| SET_ID_BITS.map(|bit| (bit, *creates)));
        let rule = |(bit, creates): (u32, Option<(u8, u32)>)| {
            let creates = creates.map(|(at, flags)| has(at, flags));
            let conditions = std::iter::once(has(self.mode_at, bit)).chain(creates);
            SeccompRule::new(conditions.collect::<Option<Vec<_>>>()?).ok()
        };
        pairs.filter_map(rule).collect()
    }
}

fn has_flag(flag: libc::c_int) -> Option<SeccompRule> {
    let flag = u64::try_from(flag).ok()?;
    let condition =
        SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag).ok()?;
    SeccompRule::new(vec![condition]).ok()
}

fn argument_is_not(at: u8, value: libc::c_int) -> Option<SeccompRule> {
    SeccompRule::new(vec![condition(at, SeccompCmpOp::Ne, value)?]).ok()
}

fn condition(at: u8, op: SeccompCmpOp, value: libc::c_int) -> Option<SeccompCondition> {
    SeccompCondition::new(at, SeccompCmpArgLen::Dword, op, u64::try_from(value).ok()?).ok()
}

/// Compiles a filter that refuses matching calls. seccompiler adds code at the start that kills calls from a foreign
/// architecture.
fn compile(rules: SeccompRules, errno: libc::c_int) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let errno = u32::try_from(errno).unwrap_or_default();
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch)?.try_into()
}

/// Returns the instructions that decide by the call number alone. They run before all rules.
///
/// x32 calls are killed: they have the same architecture mark as native calls, but numbers that the rules do not cover.
/// `clone3` and `openat2` pass flags and mode through memory, which a filter cannot read; they fail with ENOSYS, so
/// that programs fall back to `clone` and `openat`.
fn by_number() -> [sock_filter; 6] {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const X32_BIT: u32 = 0x4000_0000;
    const KILL_PROCESS: u32 = 0x8000_0000;
    const NO_SUCH_CALL: u32 = 0x0005_0000 | libc::ENOSYS.cast_unsigned();
    const CLONE3: u32 = 435;
    const OPENAT2: u32 = 437;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    [
        step(LOAD_NUMBER, 0, 0, 0),
        step(JUMP_IF_AT_LEAST, 3, 0, X32_BIT),
        step(JUMP_IF_EQUAL, 1, 0, CLONE3),
        step(JUMP_IF_EQUAL, 0, 2, OPENAT2),
        step(RETURN, 0, 0, NO_SUCH_CALL),
        step(RETURN, 0, 0, KILL_PROCESS),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seccomp_filter_compiles_for_every_mode() {
        for attempt in [LevelAttempt::Namespaces, LevelAttempt::UserNamespaces, LevelAttempt::Landlock] {
            for mode in SandboxMode::ALL {
                let plan = SandboxPlan::for_tests(mode);
                assert!(compile(refused(attempt, &plan), libc::EPERM).is_ok(), "{attempt:?} {mode}");
            }
        }
    }

    #[test]
    fn clone3_and_openat2_have_the_expected_syscall_numbers() {
        assert_eq!((libc::SYS_clone3, libc::SYS_openat2), (435, 437));
    }

    #[test]
    fn every_conditional_seccomp_rule_is_built() {
        let plan = SandboxPlan::for_tests(SandboxMode::Workspace);
        let rules = refused(LevelAttempt::Namespaces, &plan);
        assert_eq!(rules[&libc::SYS_clone].len(), CLONE_NAMESPACES.len());
        assert_eq!(rules[&libc::SYS_socket].len(), 1);
        assert_eq!(rules[&libc::SYS_socketpair].len(), 2);
        for call in SETS_MODE {
            let expected = if call.flags_at.is_some() { 4 } else { 2 };
            assert_eq!(rules[&call.number].len(), expected, "{}", call.number);
        }
    }
}
