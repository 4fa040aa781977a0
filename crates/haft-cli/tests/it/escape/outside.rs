//! Attempts to change files outside the workspace and `/tmp`.

use haft_testkit::{checks, libc};

use super::{EscapeTrial, TRIAL, attempt, python, refused};

#[test]
fn cannot_write_a_file() {
    attempt(r#"echo x > "$outside/file""#);
}

#[test]
fn cannot_write_in_network_mode() {
    EscapeTrial { flags: &["--mode", "network"], ..TRIAL }.attempt(r#"echo x > "$outside/file""#);
}

checks!(attempt {
    cannot_append_to_a_file: r#"echo x >> "$outside/file""#;
    cannot_truncate_a_file: r#"truncate -s 0 "$outside/file""#;
    cannot_truncate_through_an_open_descriptor:
        &python("os.ftruncate(os.open(outside + '/file', os.O_RDWR), 0)");
    cannot_punch_a_hole: r#"fallocate -p -o 0 -l 4 "$outside/file""#;
    cannot_write_through_shared_memory:
        &python("mmap.mmap(os.open(outside + '/file', os.O_RDWR), 0)[0:1] = b'x'");
});

#[test]
fn cannot_write_a_read_only_mapping_through_proc_self_mem() {
    refused(&python(
        "
view = mmap.mmap(os.open(outside + '/file', os.O_RDONLY), 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
line = next(line for line in open('/proc/self/maps') if 'outside/file' in line)
attempt(lambda: os.pwrite(os.open('/proc/self/mem', os.O_RDWR), b'x', int(line.split('-')[0], 16)))",
    ));
}

checks!(attempt {
    cannot_create_a_file: r#"touch "$outside/new""#;
    cannot_create_unnamed_file_and_link_it:
        &link("os.open(outside, os.O_TMPFILE | os.O_RDWR)", "outside + '/new'");
    cannot_make_a_directory: r#"mkdir "$outside/new""#;
    cannot_make_a_fifo: r#"mkfifo "$outside/new""#;
    cannot_make_a_symlink: r#"ln -s x "$outside/new""#;
});

#[test]
fn cannot_bind_a_socket() {
    EscapeTrial { flags: &["--unix-sockets", "allow"], ..TRIAL }
        .attempt(&python("socket.socket(socket.AF_UNIX).bind(outside + '/new')"));
}

checks!(attempt {
    cannot_delete_a_file: r#"rm -f "$outside/file""#;
    cannot_delete_anything_outside: r#"rm -rf "$outside" "$user""#;
    cannot_rename_a_file: r#"mv "$outside/file" "$outside/other""#;
    cannot_rename_into_the_workspace: &python("os.rename(outside + '/file', ws + '/taken')");
    cannot_rename_out_of_the_workspace: &python("os.rename(ws + '/own', outside + '/file')");
    cannot_rename_a_directory: r#"mv "$outside/dir" "$outside/other""#;
    cannot_rename_the_directory_above: r#"mv "$outside" "$outside.gone""#;
    cannot_exchange_files_with_renameat2: &python(&format!(
        "call({}, -100, (ws + '/own').encode(), -100, (outside + '/file').encode(), 2)",
        libc::SYS_renameat2
    ));
    cannot_hard_link_into_the_workspace: r#"ln "$outside/file" hard && echo x > hard"#;
    cannot_hard_link_through_an_open_descriptor:
        &link("os.open(outside + '/file', os.O_RDONLY)", "ws + '/hard'");
    cannot_hard_link_out_of_the_workspace: r#"ln own "$outside/new""#;
    cannot_write_through_a_symlink_to_a_file: r#"ln -s "$outside/file" link; echo x > link"#;
    cannot_create_a_file_through_a_symlink: r#"ln -s "$outside/new" link; echo x > link"#;
    cannot_write_through_a_symlink_to_a_directory: r#"ln -s "$outside" link; echo x > link/file"#;
    cannot_write_through_a_symlink_in_tmp:
        r#"dir=$(mktemp -d); ln -s "$outside" "$dir/link"; echo x > "$dir/link/file"; rm -r "$dir""#;
    cannot_write_to_dots_after_a_symlink: r#"ln -s "$outside/dir" link; echo x > link/../file"#;
    cannot_leave_tmp_with_dots: r#"echo x > "/tmp/..$outside/file""#;
});

#[test]
fn cannot_write_through_a_symlink_that_is_swapped() {
    attempt(
        r#"mkdir inside; (for i in {1..300}; do ln -sfn "$outside" link; ln -sfn inside link; done) &
           for i in {1..300}; do echo x > link/file; done 2>/dev/null; wait; ln -sfn "$outside" link; echo x > link/file"#,
    );
}

checks!(attempt {
    cannot_change_the_mode: r#"chmod 600 "$outside/file""#;
    cannot_change_the_mode_of_a_directory: r#"chmod 777 "$outside""#;
    cannot_change_the_mode_through_a_read_only_descriptor:
        &python("os.fchmod(os.open(outside + '/file', os.O_RDONLY), 0o600)");
    cannot_change_the_mode_through_proc: r#"exec 3< "$outside/file"; chmod 600 /proc/self/fd/3"#;
});

#[test]
fn cannot_change_the_owner() {
    refused(r#"chown 1:1 "$outside/file" && echo ESCAPED; chgrp -h 1 "$outside/dir" && echo ESCAPED"#);
}

checks!(attempt {
    cannot_change_the_times: r#"touch -d 2001-01-01 "$outside/file""#;
    cannot_change_the_times_through_a_read_only_descriptor:
        &python("os.utime(os.open(outside + '/file', os.O_RDONLY), (1, 1))");
    cannot_set_an_attribute: &python("os.setxattr(outside + '/file', 'user.mark', b'x')");
    cannot_set_an_attribute_through_a_read_only_descriptor:
        &python("os.setxattr(os.open(outside + '/file', os.O_RDONLY), 'user.mark', b'x')");
});

#[test]
fn cannot_set_an_inode_flag() {
    refused(&python(
        "attempt(fcntl.ioctl, os.open(outside + '/file', os.O_RDONLY), 0x40086602, struct.pack('l', 0x40))",
    ));
}

checks!(attempt {
    cannot_write_through_proc_self_root: r#"echo x > "/proc/self/root$outside/file""#;
    cannot_write_through_the_root_of_any_process:
        r#"for process in /proc/[0-9]*; do echo x > "$process/root$outside/file"; done"#;
});

#[test]
fn cannot_write_through_the_directory_of_any_process() {
    // Run the script only where it leads outside: without a sandbox, it must not write into directories of unrelated
    // processes.
    attempt(
        r#"cd "$outside"; for process in /proc/[0-9]*; do
            [ "$(readlink "$process/cwd")" = "$outside" ] && echo x > "$process/cwd/file"
        done"#,
    );
}

checks!(attempt {
    cannot_reopen_a_read_only_descriptor_for_writing: r#"exec 3< "$outside/file"; echo x > /proc/self/fd/3"#;
    cannot_change_into_a_directory_by_descriptor:
        &python("os.fchdir(os.open(outside, os.O_RDONLY)); open('file', 'w').write('x')");
    cannot_open_relative_to_a_directory: &python(
        "directory = os.open(outside, os.O_PATH); os.write(os.open('file', os.O_WRONLY, dir_fd=os.dup(directory)), b'x')",
    );
    cannot_open_with_openat2: &python(&format!(
        "how = struct.pack('QQQ', os.O_WRONLY | os.O_TRUNC, 0, 0)
call({}, -100, (outside + '/file').encode(), how, len(how))",
        libc::SYS_openat2
    ));
    cannot_reopen_a_path_descriptor: &python(
        "os.write(os.open('/proc/self/fd/%d' % os.open(outside + '/file', os.O_PATH), os.O_WRONLY), b'x')",
    );
    cannot_copy_out_with_copy_file_range: &python(
        "os.copy_file_range(os.open(ws + '/own', os.O_RDONLY), os.open(outside + '/file', os.O_WRONLY), 3)",
    );
    cannot_unpack_an_archive_with_absolute_names:
        r#"mkdir new; echo x > new/file; tar -C new -cPf pack.tar --transform "s,^,$outside/," file; tar -xPf pack.tar"#;
    program_run_from_memory_cannot_write_outside: &python(
        "memory = os.memfd_create('program')
os.write(memory, open('/usr/bin/touch', 'rb').read())
os.execve('/proc/self/fd/%d' % memory, ['touch', outside + '/new'], {})",
    );
});

#[test]
fn cannot_open_a_fifo_for_writing() {
    let setup = r#"mkfifo "$outside/pipe""#;
    EscapeTrial { setup, ..TRIAL }.refused(r#"if exec 3<> "$outside/pipe"; then echo ESCAPED; fi"#);
}

#[test]
fn cannot_make_a_repository() {
    attempt(r#"cd "$outside" && git init -q ."#);
}

/// Returns code that gives a name to an open file.
fn link(descriptor: &str, name: &str) -> String {
    let (number, follow) = (libc::SYS_linkat, libc::AT_SYMLINK_FOLLOW);
    python(&format!(
        "call({number}, -100, b'/proc/self/fd/%d' % {descriptor}, -100, ({name}).encode(), {follow})"
    ))
}
