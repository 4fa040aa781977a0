//! Attempts to change files outside the workspace and `/tmp`.

use haft_testkit::{checks, libc};

use super::{EscapeTrial, TRIAL, attempt, python, refused};

#[test]
fn command_cannot_write_a_file() {
    attempt(r#"echo x > "$outside/file""#);
}

#[test]
fn command_cannot_write_in_network_mode() {
    EscapeTrial { flags: &["--mode", "network"], ..TRIAL }.attempt(r#"echo x > "$outside/file""#);
}

checks!(attempt {
    command_cannot_append_to_a_file: r#"echo x >> "$outside/file""#;
    command_cannot_truncate_a_file: r#"truncate -s 0 "$outside/file""#;
    command_cannot_truncate_through_an_open_descriptor:
        &python("os.ftruncate(os.open(outside + '/file', os.O_RDWR), 0)");
    command_cannot_punch_a_hole: r#"fallocate -p -o 0 -l 4 "$outside/file""#;
    command_cannot_write_through_shared_memory:
        &python("mmap.mmap(os.open(outside + '/file', os.O_RDWR), 0)[0:1] = b'x'");
});

#[test]
fn command_cannot_write_a_read_only_mapping_through_proc_self_mem() {
    refused(&python(
        "
view = mmap.mmap(os.open(outside + '/file', os.O_RDONLY), 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
line = next(line for line in open('/proc/self/maps') if 'outside/file' in line)
attempt(lambda: os.pwrite(os.open('/proc/self/mem', os.O_RDWR), b'x', int(line.split('-')[0], 16)))",
    ));
}

checks!(attempt {
    command_cannot_create_a_file: r#"touch "$outside/new""#;
    command_cannot_create_unnamed_file_and_link_it:
        &link("os.open(outside, os.O_TMPFILE | os.O_RDWR)", "outside + '/new'");
    command_cannot_make_a_directory: r#"mkdir "$outside/new""#;
    command_cannot_make_a_fifo: r#"mkfifo "$outside/new""#;
    command_cannot_make_a_symlink: r#"ln -s x "$outside/new""#;
});

#[test]
fn command_cannot_bind_a_socket() {
    EscapeTrial { flags: &["--unix-sockets", "allow"], ..TRIAL }
        .attempt(&python("socket.socket(socket.AF_UNIX).bind(outside + '/new')"));
}

checks!(attempt {
    command_cannot_delete_a_file: r#"rm -f "$outside/file""#;
    command_cannot_delete_anything_outside: r#"rm -rf "$outside" "$user""#;
    command_cannot_rename_a_file: r#"mv "$outside/file" "$outside/other""#;
    command_cannot_rename_into_the_workspace: &python("os.rename(outside + '/file', ws + '/taken')");
    command_cannot_rename_out_of_the_workspace: &python("os.rename(ws + '/own', outside + '/file')");
    command_cannot_rename_a_directory: r#"mv "$outside/dir" "$outside/other""#;
    command_cannot_rename_the_directory_above: r#"mv "$outside" "$outside.gone""#;
    command_cannot_exchange_files_with_renameat2: &python(&format!(
        "call({}, -100, (ws + '/own').encode(), -100, (outside + '/file').encode(), 2)",
        libc::SYS_renameat2
    ));
    command_cannot_hard_link_into_the_workspace: r#"ln "$outside/file" hard && echo x > hard"#;
    command_cannot_hard_link_through_an_open_descriptor:
        &link("os.open(outside + '/file', os.O_RDONLY)", "ws + '/hard'");
    command_cannot_hard_link_out_of_the_workspace: r#"ln own "$outside/new""#;
    command_cannot_write_through_a_symlink_to_a_file: r#"ln -s "$outside/file" link; echo x > link"#;
    command_cannot_create_a_file_through_a_symlink: r#"ln -s "$outside/new" link; echo x > link"#;
    command_cannot_write_through_a_symlink_to_a_directory: r#"ln -s "$outside" link; echo x > link/file"#;
    command_cannot_write_through_a_symlink_in_tmp:
        r#"dir=$(mktemp -d); ln -s "$outside" "$dir/link"; echo x > "$dir/link/file"; rm -r "$dir""#;
    command_cannot_write_to_dots_after_a_symlink: r#"ln -s "$outside/dir" link; echo x > link/../file"#;
    command_cannot_leave_tmp_with_dots: r#"echo x > "/tmp/..$outside/file""#;
});

#[test]
fn command_cannot_write_through_a_symlink_that_is_swapped() {
    attempt(
        r#"mkdir inside; (for i in {1..300}; do ln -sfn "$outside" link; ln -sfn inside link; done) &
           for i in {1..300}; do echo x > link/file; done 2>/dev/null; wait; ln -sfn "$outside" link; echo x > link/file"#,
    );
}

checks!(attempt {
    command_cannot_change_the_mode: r#"chmod 600 "$outside/file""#;
    command_cannot_change_the_mode_of_a_directory: r#"chmod 777 "$outside""#;
    command_cannot_change_the_mode_through_a_read_only_descriptor:
        &python("os.fchmod(os.open(outside + '/file', os.O_RDONLY), 0o600)");
    command_cannot_change_the_mode_through_proc: r#"exec 3< "$outside/file"; chmod 600 /proc/self/fd/3"#;
});

#[test]
fn command_cannot_change_the_owner() {
    refused(r#"chown 1:1 "$outside/file" && echo ESCAPED; chgrp -h 1 "$outside/dir" && echo ESCAPED"#);
}

checks!(attempt {
    command_cannot_change_the_times: r#"touch -d 2001-01-01 "$outside/file""#;
    command_cannot_change_the_times_through_a_read_only_descriptor:
        &python("os.utime(os.open(outside + '/file', os.O_RDONLY), (1, 1))");
    command_cannot_set_an_attribute: &python("os.setxattr(outside + '/file', 'user.mark', b'x')");
    command_cannot_set_an_attribute_through_a_read_only_descriptor:
        &python("os.setxattr(os.open(outside + '/file', os.O_RDONLY), 'user.mark', b'x')");
});

#[test]
fn command_cannot_set_an_inode_flag() {
    refused(&python(
        "attempt(fcntl.ioctl, os.open(outside + '/file', os.O_RDONLY), 0x40086602, struct.pack('l', 0x40))",
    ));
}

checks!(attempt {
    command_cannot_write_through_proc_self_root: r#"echo x > "/proc/self/root$outside/file""#;
    command_cannot_write_through_the_root_of_any_process:
        r#"for process in /proc/[0-9]*; do echo x > "$process/root$outside/file"; done"#;
});

#[test]
fn command_cannot_write_through_the_directory_of_any_process() {
    // Write only through a process whose directory is `outside`: the script also runs without a sandbox, where it must
    // not write into the directories of unrelated processes.
    attempt(
        r#"cd "$outside"; for process in /proc/[0-9]*; do
            [ "$(readlink "$process/cwd")" = "$outside" ] && echo x > "$process/cwd/file"
        done"#,
    );
}

checks!(attempt {
    command_cannot_reopen_a_read_only_descriptor_for_writing: r#"exec 3< "$outside/file"; echo x > /proc/self/fd/3"#;
    command_cannot_change_into_a_directory_by_descriptor:
        &python("os.fchdir(os.open(outside, os.O_RDONLY)); open('file', 'w').write('x')");
    command_cannot_open_relative_to_a_directory: &python(
        "directory = os.open(outside, os.O_PATH); os.write(os.open('file', os.O_WRONLY, dir_fd=os.dup(directory)), b'x')",
    );
    command_cannot_open_with_openat2: &python(&format!(
        "how = struct.pack('QQQ', os.O_WRONLY | os.O_TRUNC, 0, 0)
call({}, -100, (outside + '/file').encode(), how, len(how))",
        libc::SYS_openat2
    ));
    command_cannot_reopen_a_path_descriptor: &python(
        "os.write(os.open('/proc/self/fd/%d' % os.open(outside + '/file', os.O_PATH), os.O_WRONLY), b'x')",
    );
    command_cannot_copy_out_with_copy_file_range: &python(
        "os.copy_file_range(os.open(ws + '/own', os.O_RDONLY), os.open(outside + '/file', os.O_WRONLY), 3)",
    );
    command_cannot_unpack_an_archive_with_absolute_names:
        r#"mkdir new; echo x > new/file; tar -C new -cPf pack.tar --transform "s,^,$outside/," file; tar -xPf pack.tar"#;
    program_run_from_memory_cannot_write_outside: &python(
        "memory = os.memfd_create('program')
os.write(memory, open('/usr/bin/touch', 'rb').read())
os.execve('/proc/self/fd/%d' % memory, ['touch', outside + '/new'], {})",
    );
});

#[test]
fn command_cannot_open_a_fifo_for_writing() {
    let setup = r#"mkfifo "$outside/pipe""#;
    EscapeTrial { setup, ..TRIAL }.refused(r#"if exec 3<> "$outside/pipe"; then echo ESCAPED; fi"#);
}

#[test]
fn command_cannot_make_a_repository_outside_the_workspace() {
    attempt(r#"cd "$outside" && git init -q ."#);
}

/// Returns code that gives a name to an open file.
fn link(descriptor: &str, name: &str) -> String {
    let (number, follow) = (libc::SYS_linkat, libc::AT_SYMLINK_FOLLOW);
    python(&format!(
        "call({number}, -100, b'/proc/self/fd/%d' % {descriptor}, -100, ({name}).encode(), {follow})"
    ))
}
