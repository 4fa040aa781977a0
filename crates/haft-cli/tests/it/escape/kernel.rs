//! Attempts with mounts, namespaces, devices, kernel interfaces and system calls.

use std::os::unix::fs::PermissionsExt;

use std::path::Path;

use haft_testkit::{TestUser, checks, copy_program, libc, users};

use super::{CANARY, EscapeTrial, TRIAL, python, refused, tried, whole};

checks!(refused {
    command_cannot_mount_tmpfs_over_a_directory: r#"mount -t tmpfs none "$outside" && echo ESCAPED"#;
    command_cannot_bind_mount_a_directory: r#"mkdir copy; mount --bind "$outside" copy && echo ESCAPED"#;
    command_cannot_mount_an_overlay:
        r#"mkdir up work; mount -t overlay none -o "lowerdir=$outside,upperdir=up,workdir=work" "$outside" && echo ESCAPED"#;
    command_cannot_remount_the_root_writable:
        r#"mount -o remount,rw / && echo ESCAPED; mount -o remount,rw,bind / && echo ESCAPED
           mount -o remount,rw,bind "$ws" && echo ESCAPED; echo x > "$outside/file""#;
    command_cannot_unmount_the_cover_of_haft_home:
        r#"umount "$home" && echo ESCAPED; umount -l "$home" && echo ESCAPED; cat "$home/data/db" && echo ESCAPED"#;
    command_cannot_unmount_the_workspace_and_proc:
        r#"umount -l "$ws" && echo ESCAPED; umount -l /proc && echo ESCAPED; umount -l / && echo ESCAPED"#;
    command_cannot_pivot_root: "mkdir -p new/old; pivot_root new new/old && echo ESCAPED";
    command_cannot_chroot: "chroot / true && echo ESCAPED";
    command_cannot_unshare_a_user_namespace:
        "unshare -Ur true && echo ESCAPED; unshare -Urm mount -o remount,rw,bind / && echo ESCAPED";
    command_cannot_unshare_other_namespaces:
        "for kind in m n p i u C T; do unshare -$kind true && echo ESCAPED; done";
    command_cannot_enter_the_namespaces_of_the_first_process:
        "nsenter -t 1 -m -- true && echo ESCAPED; nsenter -t 1 -a -- true && echo ESCAPED";
    command_cannot_clone_into_a_new_user_namespace: &python(&format!(
        "for flags in ({}, {}, {}):
    got = call({}, flags | signal.SIGCHLD, 0, 0, 0, 0)
    if got == 0: os._exit(0)
    print('ESCAPED' if got > 0 else errno.errorcode[ctypes.get_errno()])",
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS | libc::CLONE_NEWUSER,
        libc::CLONE_NEWNET,
        libc::SYS_clone
    ));
    command_cannot_clone3_into_a_new_user_namespace: &python(&format!(
        "words = struct.pack('8Q', {}, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
got = call({}, words, len(words))
if got == 0: os._exit(0)
print('ESCAPED' if got > 0 else errno.errorcode[ctypes.get_errno()])",
        libc::CLONE_NEWUSER,
        libc::SYS_clone3
    ));
    command_cannot_make_a_device_and_read_the_disk:
        r#"for place in . /tmp /dev/shm; do
             for disk in /sys/block/*/dev; do
               node=$place/node-$$; mknod "$node" b $(tr : ' ' < "$disk") && head -c 1 "$node" && echo ESCAPED; rm -f "$node"
             done
             mknod "$place/node-$$" c 1 1 && head -c 1 "$place/node-$$" && echo ESCAPED; rm -f "$place/node-$$"
           done"#;
    command_cannot_read_a_disk:
        r#"for disk in /sys/block/*; do head -c 1 "/dev/${disk##*/}" && echo ESCAPED; done; ls /sys/block > /dev/null"#;
    command_cannot_write_a_disk:
        r#"for disk in /sys/block/*; do dd if=/dev/null of="/dev/${disk##*/}" conv=notrunc && echo ESCAPED; done"#;
});

#[test]
fn only_harmless_devices_can_be_opened() {
    for mode in ["workspace", "network", "full"] {
        EscapeTrial { flags: &["--mode", mode], ..TRIAL }.refused(&python(
            "
import stat
for place, _, names in os.walk('/dev'):
    for name in names:
        path = os.path.join(place, name)
        if stat.S_ISREG(os.lstat(path).st_mode) or os.path.basename(path) in ('null', 'zero', 'full', 'random', 'urandom'): continue
        for how in (os.O_RDONLY, os.O_WRONLY):
            try:
                # What /dev/fd and /dev/stdout name is the command's own.
                if os.path.islink(path): continue
                os.open(path, how | os.O_NONBLOCK); print('ESCAPED', path)
            except OSError: pass",
        ));
    }
}

#[test]
fn command_cannot_open_fuse_kvm_memory_and_terminal_devices() {
    refused(
        r#"for name in fuse kvm mem port kmsg tty console ptmx pts/ptmx; do (exec 3<> "/dev/$name") && echo "ESCAPED $name"; done"#,
    );
}

/// Opens files for writing but writes nothing, so that a failing test does not harm the machine.
const OPEN_ALL_FOR_WRITING: &str = "
import stat
for place in PLACES:
    for place, below, names in os.walk(place):
        below[:] = [name for name in below if name not in ('debug', 'tracing')]
        for name in names:
            path = os.path.join(place, name)
            try:
                if stat.S_ISREG(os.lstat(path).st_mode): os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)); print('ESCAPED', path)
            except OSError: pass";

#[test]
fn command_cannot_set_a_kernel_parameter() {
    let script = python(&OPEN_ALL_FOR_WRITING.replace("PLACES", "['/proc/sys', '/proc/irq', '/proc/fs']"));
    for mode in ["workspace", "network", "full"] {
        EscapeTrial { flags: &["--mode", mode], ..TRIAL }.refused(&script);
    }
}

checks!(refused {
    command_cannot_set_the_program_for_core_dumps:
        ": >> /proc/sys/kernel/core_pattern && echo ESCAPED; : >> /proc/sys/kernel/modprobe && echo ESCAPED";
    command_cannot_trigger_magic_sysrq:
        ": >> /proc/sysrq-trigger && echo ESCAPED; : >> /proc/sys/kernel/sysrq && echo ESCAPED";
});

#[test]
fn command_cannot_write_below_sys() {
    let script = python(
        &OPEN_ALL_FOR_WRITING
            .replace("PLACES", "['/sys/kernel', '/sys/module', '/sys/class', '/sys/power', '/sys/block']"),
    );
    for mode in ["workspace", "full"] {
        EscapeTrial { flags: &["--mode", mode], ..TRIAL }.refused(&script);
    }
}

#[test]
fn command_cannot_move_to_another_cgroup() {
    let script = r#"for place in /sys/fs/cgroup /sys/fs/cgroup/*; do
        mkdir "$place/haft-test" && echo ESCAPED && rmdir "$place/haft-test"; echo $$ > "$place/cgroup.procs" && echo ESCAPED; done"#;
    for mode in ["workspace", "full"] {
        EscapeTrial { flags: &["--mode", mode], ..TRIAL }.refused(script);
    }
}

/// Checks that a system call is refused for any arguments.
#[track_caller]
fn system_call(mode: &str, number: libc::c_long, words: &str) {
    for user in users() {
        let tree = TRIAL.arena(user);
        let script = whole(&tree, &python(&format!("refused({number}, {words})")));
        let ran = tree.confined(&["--mode", mode], &script).output();
        tried(&ran);
        assert!(
            ran.stdout.starts_with("EPERM") || ran.stdout.starts_with("ENOSYS"),
            "as {user:?} in {mode}: {ran:?}"
        );
    }
}

macro_rules! refused_system_calls {
    ($mode:literal: $($name:ident $number:ident $words:literal;)*) => {
        $(#[test] fn $name() { system_call($mode, libc::$number, $words); })*
    };
}

refused_system_calls! { "workspace":
    command_cannot_trace_the_keeper SYS_ptrace "16, 1, 0, 0";
    command_cannot_trace_own_process SYS_ptrace "0, 0, 0, 0";
    command_cannot_read_memory_of_the_keeper SYS_process_vm_readv "1, 0, 0, 0, 0, 0";
    command_cannot_write_memory_of_the_keeper SYS_process_vm_writev "1, 0, 0, 0, 0, 0";
    command_cannot_take_a_descriptor_of_the_keeper SYS_pidfd_getfd "os.pidfd_open(1), 3, 0";
    command_cannot_set_up_io_uring SYS_io_uring_setup "1, b'\\0' * 120";
    command_cannot_load_a_bpf_program SYS_bpf "5, b'\\0' * 120, 120";
    command_cannot_open_a_perf_event SYS_perf_event_open "b'\\0' * 120, 0, -1, -1, 0";
    command_cannot_handle_page_faults_with_userfaultfd SYS_userfaultfd "1";
    command_cannot_read_the_kernel_keyring SYS_keyctl "0, -3, 0";
    command_cannot_add_a_key_to_the_kernel_keyring SYS_add_key "b'user', b'k', b'v', 1, -2";
    command_cannot_open_a_file_by_handle SYS_open_by_handle_at "0, b'\\0' * 32, 0";
    command_cannot_watch_the_file_system_with_fanotify SYS_fanotify_init "0, 0";
}

refused_system_calls! { "full":
    command_cannot_open_tree_in_full_mode SYS_open_tree "-100, b'/', 1";
    command_cannot_open_a_file_system_in_full_mode SYS_fsopen "b'tmpfs', 0";
    command_cannot_change_a_mount_in_full_mode SYS_mount_setattr "-100, b'/', 0, b'\\0' * 32, 32";
    command_cannot_enter_a_namespace_in_full_mode SYS_setns "os.open('/proc/self/ns/mnt', os.O_RDONLY), 0";
    command_cannot_unshare_in_full_mode SYS_unshare "0x10000000";
    command_cannot_set_up_io_uring_in_full_mode SYS_io_uring_setup "1, b'\\0' * 120";
    command_cannot_load_a_kernel_module_in_full_mode SYS_finit_module "0, b'', 0";
    command_cannot_load_another_kernel_in_full_mode SYS_kexec_load "0, 0, 0, 0";
    command_cannot_set_the_clock_in_full_mode SYS_clock_settime "0, b'\\0' * 16";
    command_cannot_read_the_kernel_log_in_full_mode SYS_syslog "3, b'\\0' * 16, 16";
}

/// The number of `open_tree_attr`, for which `libc` has no constant yet.
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;

#[test]
fn command_cannot_open_tree_with_attributes() {
    for mode in ["workspace", "full"] {
        system_call(mode, SYS_OPEN_TREE_ATTR, "-100, b'/', 0, 0, 0");
    }
}

/// Runs machine code that makes a system call, in a child process that seccomp must kill.
#[cfg(target_arch = "x86_64")]
fn killed_by(code: &str) {
    for mode in ["workspace", "network", "full"] {
        EscapeTrial { flags: &["--mode", mode], ..TRIAL }.refused(&python(&format!(
            "
memory = mmap.mmap(-1, 4096, prot=7)
memory.write(bytes.fromhex('{code}'))
deed = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
child = os.fork()
if child == 0:
    deed(); os._exit(0)
status = os.waitpid(child, 0)[1]
print('killed' if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSYS else 'ESCAPED %d' % status)"
        )));
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn i386_system_calls_are_killed() {
    killed_by("b814000000cd80c3"); // mov eax, 20; int 0x80; ret
}

#[test]
#[cfg(target_arch = "x86_64")]
fn x32_system_calls_are_killed() {
    killed_by("b8270000400f05c3"); // mov eax, 0x40000000 + 39; syscall; ret
}

#[test]
fn commands_have_no_capabilities() {
    for mode in ["workspace", "network", "full"] {
        EscapeTrial { flags: &["--mode", mode], ..TRIAL }.granted(
            r"grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\t\n' |
               grep -qE '^CapInh:0+CapPrm:0+CapEff:0+CapBnd:[0-9a-f]+CapAmb:0+NoNewPrivs:1Seccomp:2$' && echo granted",
        );
    }
}

#[test]
fn setuid_program_gains_no_privileges() {
    if !users().contains(&TestUser::Nobody) {
        return;
    }
    for user in users() {
        let tree = TRIAL.arena(user);
        let program = tree.path("outside/who");
        copy_program(Path::new("/usr/bin/id"), &program);
        let (owner, mine) = if user == TestUser::Nobody { (0, "65534") } else { (65534, "0") };
        std::os::unix::fs::chown(&program, Some(owner), Some(owner)).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o6755)).unwrap();
        let script = r#""$outside/who" -u"#;
        assert_eq!(
            tree.unconfined(&whole(&tree, script)).stdout.lines().next(),
            Some(owner.to_string().as_str())
        );
        let ran = tree.confined(&["--mode", "full"], &whole(&tree, script)).output();
        assert_eq!(ran.stdout.lines().next(), Some(mine), "as {user:?}: {ran:?}");
    }
}

#[test]
fn program_with_file_capabilities_gains_no_privileges() {
    /// The bytes of a capability attribute: version 2, effective, permitted: `CAP_DAC_OVERRIDE`.
    const DAC_OVERRIDE: [u8; 20] = [1, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    if !users().contains(&TestUser::Nobody) {
        return;
    }
    let tree = TRIAL.arena(TestUser::Nobody);
    let (program, secret) = (tree.path("outside/cat"), tree.path("outside/of-root"));
    copy_program(Path::new("/usr/bin/cat"), &program);
    haft_testkit::set_attribute(&program, "security.capability", &DAC_OVERRIDE);
    std::fs::write(&secret, CANARY).unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    let script = whole(&tree, r#""$outside/cat" "$outside/of-root""#);
    assert!(tree.unconfined(&script).stdout.contains(CANARY));
    let ran = tree.confined(&["--mode", "full"], &script).output();
    tried(&ran);
    assert!(!ran.stdout.contains(CANARY), "{ran:?}");
}

#[test]
fn command_cannot_read_kernel_memory_and_log() {
    refused("head -c 1 /proc/kcore > /dev/null && echo ESCAPED; dmesg > /dev/null && echo ESCAPED");
}

/// A setuid file that root left in the workspace would give root privileges to any user who runs it later.
#[test]
fn command_cannot_create_setuid_program() {
    refused(
        "cp /usr/bin/id one && chmod 2755 one && echo ESCAPED; install -m 2755 /usr/bin/id five && echo ESCAPED",
    );
    for mode in ["0o4755", "0o2755"] {
        // A file that is created without a name (`O_TMPFILE`) can get a name later.
        refused(&python(&format!(
            r#"
try: file = os.open(".", os.O_TMPFILE | os.O_WRONLY, {mode})
except PermissionError: file = None
if file is not None:
    os.link(f"/proc/self/fd/{{file}}", "six", follow_symlinks=True)
    print("ESC" + "APED" if os.stat("six").st_mode & 0o6000 else "plain")"#
        )));
    }
    refused("cp /usr/bin/id one && chmod u+s one && echo ESCAPED");
    refused("install -m 4755 /usr/bin/id two && echo ESCAPED");
    refused(
        r#"python3 -c 'import os
try: os.open("three", os.O_CREAT | os.O_WRONLY, 0o4755)
except PermissionError: pass' ; [ -u three ] && echo ESCAPED"#,
    );
    refused(
        r#"python3 -c 'import os, stat
try: os.mknod("four", 0o4755 | stat.S_IFREG)
except PermissionError: pass' ; [ -u four ] && echo ESCAPED"#,
    );
}
