//! Attempts on system directories in the mode `full`, in which all other directories may be written.

use haft_testkit::{HaftOutput, TestUser, checks, users};

use super::{ESCAPED, EscapeTrial, TRIAL, tried, whole};

/// A script that runs as root on a temporary copy of the machine, because a failing test would damage the real machine.
const MACHINE: &str = r#"set -e
machine=$1; shift; mkdir "$machine"; mount -t tmpfs none "$machine"; cd "$machine"; mkdir up work root
mount -t overlay none -o lowerdir=/,upperdir=up,workdir=work root
for name in proc sys dev; do mount --rbind "/$name" "root/$name"; done
exec chroot root "$@""#;

fn in_overlay_root(mode: &str, script: &str) -> HaftOutput {
    let tree = TRIAL.arena(TestUser::Ourselves);
    let (machine, workspace) = (tree.path("machine"), tree.path("ws"));
    let wrapper = ["unshare", "-m", "bash", "-c", MACHINE, "bash", machine.to_str().unwrap()];
    let flags = ["--mode", mode, "--workspace", workspace.to_str().unwrap()];
    let ran = tree.confined(&flags, &whole(&tree, script)).through(&wrapper).output();
    tried(&ran);
    ran
}

/// Checks that the script fails as root in the mode `full`. Also tries it as an ordinary user, who cannot change these
/// directories even without a sandbox.
#[track_caller]
fn blocked(script: &str) {
    if users().contains(&TestUser::Nobody) {
        for mode in ["workspace", "full"] {
            let ran = in_overlay_root(mode, script);
            assert!(!ran.stdout.contains(ESCAPED), "{mode}: {ran:?}");
        }
        let tree = TRIAL.arena(TestUser::Nobody);
        let ran = tree.confined(&["--mode", "full"], &whole(&tree, script)).output();
        tried(&ran);
        assert!(!ran.stdout.contains(ESCAPED), "{ran:?}");
    } else {
        EscapeTrial { flags: &["--mode", "full"], ..TRIAL }.refused(script);
    }
}

#[test]
fn full_mode_can_write_outside_the_blocklist() {
    if users().contains(&TestUser::Nobody) {
        let ran = in_overlay_root(
            "full",
            "echo x > /opt/new && mkdir /srv/new && echo x > /usr/local/bin/new && echo open",
        );
        assert!(ran.stdout.contains("open\n"), "{ran:?}");
        let ran = in_overlay_root("workspace", "echo x > /opt/new && echo open; mkdir /srv/new && echo open");
        assert!(!ran.stdout.contains("open\n"), "{ran:?}");
    }
    EscapeTrial { flags: &["--mode", "full"], ..TRIAL }
        .granted(r#"echo x > "$outside/file" && echo granted"#);
}

checks!(blocked {
    command_cannot_write_into_etc:
        "echo x >> /etc/passwd && echo ESCAPED; echo x > /etc/new && echo ESCAPED; echo x > /etc/ld.so.preload && echo ESCAPED";
    command_cannot_write_a_program:
        "for place in /bin /sbin /usr/bin /usr/sbin /usr/lib /lib /usr/libexec; do echo x > $place/new && echo ESCAPED $place; done";
    command_cannot_overwrite_a_program:
        "cp /usr/bin/true /usr/bin/false && echo ESCAPED; ln -sf true /usr/bin/false && echo ESCAPED; chmod 777 /usr/bin/true && echo ESCAPED";
    command_cannot_write_into_boot_and_dev:
        "echo x > /boot/new && echo ESCAPED; echo x > /dev/new && echo ESCAPED; mkdir /dev/shm/../new && echo ESCAPED; ln -s x /dev/new && echo ESCAPED";
    command_cannot_rename_a_blocked_directory:
        "for name in /etc /boot /dev /proc /sys /usr/bin /usr/lib; do mv -T $name $name.x && echo ESCAPED $name; done";
    command_cannot_rename_the_parent_of_a_blocked_directory: "mv -T /usr /usr.x && echo ESCAPED";
});

#[test]
fn command_cannot_replace_the_link_that_names_a_blocked_directory() {
    blocked(
        "for name in /bin /sbin; do mv -T $name $name.x && echo ESCAPED $name; ln -sfn /opt $name && echo ESCAPED; done",
    );
}

checks!(blocked {
    command_cannot_change_the_mode_of_a_blocked_directory:
        "chmod 777 /etc && echo ESCAPED; chmod 666 /etc/passwd && echo ESCAPED; touch -d 2001-01-01 /usr/bin && echo ESCAPED";
    command_cannot_hard_link_out_of_a_blocked_directory:
        "ln /etc/passwd /var/tmp/haft-test-link && echo x >> /var/tmp/haft-test-link && echo ESCAPED";
});

#[test]
fn blocked_directory_cannot_be_granted_for_writing() {
    EscapeTrial { flags: &["--writable", "/usr/lib"], ..TRIAL }
        .refused("(: >> /usr/lib/new-$$) && echo ESCAPED");
    for user in users() {
        let tree = TRIAL.arena(user);
        let script = whole(&tree, "(: >> /etc/passwd) && echo ESCAPED; (: >> /etc/new-$$) && echo ESCAPED");
        // `/etc` also contains the password hashes of the machine, so haft refuses this grant for root.
        let ran = tree.confined(&["--writable", "/etc"], &script).output();
        if ran.code != Some(2) {
            tried(&ran);
        }
        assert!(!ran.stdout.contains(ESCAPED), "as {user:?}: {ran:?}");
    }
}
