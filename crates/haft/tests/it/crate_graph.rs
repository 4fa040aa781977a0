//! Checks which crates a program that embeds haft compiles.

use std::process::Command;

/// Returns the names of the crates in a build of the library with these features, without development dependencies.
fn crates(features: &[&str]) -> Vec<String> {
    let mut command = Command::new(env!("CARGO"));
    command.args([
        "tree",
        "-p",
        "haft",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
        "--offline",
    ]);
    command.args(["--features", &features.join(",")]);
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

const HEAVY: [(&str, &str); 4] = [
    ("otlp", "opentelemetry-otlp"),
    ("keyring", "secret-service"),
    ("tiktoken", "tiktoken-rs"),
    ("model-server", "haft-model-server"),
];

#[test]
fn heavy_dependencies_are_compiled_only_with_their_feature() {
    let plain = crates(&[]);
    assert!(plain.iter().any(|name| name == "haft-runtime"), "{plain:?}");
    for name in ["clap", "anstream", "haft-cli"].into_iter().chain(HEAVY.map(|(_, name)| name)) {
        assert!(!plain.iter().any(|found| found == name), "the default build compiles {name}");
    }
    for (feature, name) in HEAVY {
        assert!(
            crates(&[feature]).iter().any(|found| found == name),
            "the feature {feature} does not compile {name}"
        );
    }
}
