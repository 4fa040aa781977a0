//! Installs the programs that tests need besides Rust.

use std::process::Command;

use crate::step::{exists, run};
use crate::{claude_code, clients, conformance, mcp_servers, python};

/// The programs that tests use, each with the Debian package that provides it.
const PROGRAMS: [(&str, &str); 17] = [
    ("bash", "bash"),
    ("caddy", "caddy"),
    ("cc", "gcc"),
    ("curl", "curl"),
    ("dbus-daemon", "dbus-daemon"),
    ("dbus-send", "dbus-bin"),
    ("git", "git"),
    ("gnome-keyring-daemon", "gnome-keyring"),
    ("nginx", "nginx"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("python3", "python3"),
    ("script", "bsdutils"),
    ("setfattr", "attr"),
    ("setpriv", "util-linux"),
    ("strace", "strace"),
    ("tar", "tar"),
];

/// Installs everything that is missing. Without root or apt-get, fails and names the Debian packages to install.
pub(crate) fn install() -> Result<(), String> {
    packages(&PROGRAMS)?;
    python::install()?;
    crate::api::install()?;
    mcp_servers::install()?;
    clients::install()?;
    claude_code::install()?;
    conformance::install()
}

/// Installs the Debian packages of the programs that are missing.
pub(crate) fn packages(programs: &[(&str, &'static str)]) -> Result<(), String> {
    let mut missing: Vec<&str> =
        programs.iter().filter(|(program, _)| !exists(program)).map(|(_, package)| *package).collect();
    if !python::can_install() {
        missing.push(python::DEBIAN_PACKAGE);
    }
    if missing.is_empty() {
        return Ok(());
    }
    if !exists("apt-get") || !is_root() {
        return Err(format!(
            "the tests need these Debian packages, which are not installed: {}",
            missing.join(" ")
        ));
    }
    run("apt-get", &["update", "-qq"])?;
    run("apt-get", &[&["install", "-y", "-qq", "--no-install-recommends"], missing.as_slice()].concat())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.starts_with(b"0\n"))
}
