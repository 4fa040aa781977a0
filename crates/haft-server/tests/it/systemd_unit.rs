//! The systemd unit in `docs/serving.md`.

use std::collections::HashMap;
use std::process::Command;
use std::time::Duration;

use super::proxies::documented;

/// The time that responses have to finish after SIGTERM. systemd must not kill the server earlier.
const DRAIN_TIME: Duration = Duration::from_secs(30);

/// The options that would stop haft's own sandbox, because it creates namespaces and mounts its own `/proc`.
const BREAK_THE_SANDBOX: [&str; 8] = [
    "RestrictNamespaces",
    "PrivateUsers",
    "SystemCallFilter",
    "ProtectProc",
    "ProcSubset",
    "ProtectKernelTunables",
    "ProtectKernelLogs",
    "ProtectControlGroups",
];

/// Returns the settings of a unit, with the section of each.
fn settings(unit: &str) -> HashMap<(String, String), String> {
    let mut section = String::new();
    let mut settings = HashMap::new();
    for line in unit.lines().filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("not a setting: {line}"));
        let before = settings.insert((section.clone(), key.to_owned()), value.to_owned());
        assert!(before.is_none() || key == "Environment", "{key} is set twice");
    }
    settings
}

#[test]
fn unit_of_the_documentation_restricts_the_server_and_gives_it_time_to_stop() {
    let settings = settings(&documented("ini"));
    let service = |key: &str| settings.get(&("Service".to_owned(), key.to_owned())).map(String::as_str);
    let expected = [
        ("User", "haft"),
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        ("UMask", "0077"),
        ("StateDirectoryMode", "0700"),
        ("LimitCORE", "0"),
        ("ExecReload", "/bin/kill -HUP $MAINPID"),
    ];
    for (key, value) in expected {
        assert_eq!(service(key), Some(value), "{key}");
    }
    for key in BREAK_THE_SANDBOX {
        assert_eq!(service(key), None, "{key}");
    }
    let seconds = service("TimeoutStopSec").and_then(|time| time.strip_suffix('s')?.parse().ok());
    assert!(Duration::from_secs(seconds.unwrap()) > DRAIN_TIME, "{seconds:?}");
    let home = service("Environment").and_then(|variable| variable.strip_prefix("HAFT_HOME=/var/lib/"));
    assert_eq!(home, service("StateDirectory"), "systemd creates the home directory");
}

/// Checks the unit with systemd itself, where it is installed.
#[test]
fn systemd_accepts_the_unit_of_the_documentation() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join("haft.service");
    // systemd checks that the program and the user exist.
    let text = documented("ini").replace("/usr/local/bin/haft", "/bin/true");
    let text = text.replace("User=haft", "User=root").replace("Group=haft", "Group=root");
    std::fs::write(&unit, text).unwrap();
    let checked = Command::new("systemd-analyze").arg("verify").arg(&unit).output().unwrap();
    let found = String::from_utf8_lossy(&checked.stderr);
    // An unknown setting is only a warning, so any line about the unit is a failure.
    assert!(checked.status.success() && !found.contains("haft.service"), "{found}");
}
