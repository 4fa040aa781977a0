//! Runs the checks of the fuzz targets, on their corpora and on some mutations of them. The seed is fixed, so a failure
//! can be repeated; `cargo xtask fuzz` tests more inputs.

use haft_testkit::checks;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

#[allow(
    dead_code,
    unreachable_pub,
    clippy::default_trait_access,
    clippy::must_use_candidate,
    clippy::missing_panics_doc,
    reason = "the file is a crate of its own, built by the fuzzer"
)]
#[path = "../../../../fuzz/src/lib.rs"]
mod checks;

/// The environment variable with the number of mutated inputs for each target.
const MUTATIONS: &str = "HAFT_TEST_MUTATIONS";
const MUTATIONS_DEFAULT: usize = 2_000;

/// The maximum number of changes to one input.
const CHANGES_MAX: usize = 6;

/// The maximum length of an input, in bytes.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// Texts that parsers handle specially.
const TOKENS: [&str; 24] = [
    "\"",
    "'",
    "\\",
    "{",
    "}",
    "[",
    "]",
    "$(",
    "`",
    ";",
    "\n",
    "\0",
    "-1",
    "1e999",
    "99999999999999999999",
    "null",
    "\u{202e}",
    "é",
    "---\n",
    "${include:agent.md}",
    "\"$ref\":\"#\"",
    "<<E",
    "&a",
    "*a",
];

/// A deterministic random generator.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end.max(1)
    }

    fn mutated(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(CHANGES_MAX) {
            self.change(&mut input, seeds);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        let end = (at + self.below(32)).min(input.len());
        match self.below(6) {
            0 => drop(input.drain(at..end)),
            1 => {
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece.repeat(1 + self.below(8)));
            }
            2 => {
                let token = TOKENS[self.below(TOKENS.len())];
                input.splice(at..at, token.bytes());
            }
            3 => {
                let other = &seeds[self.below(seeds.len())];
                let from = self.below(other.len() + 1);
                input.splice(at..end, other[from..].iter().take(64).copied());
            }
            4 => input.truncate(at),
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = self.0.to_le_bytes()[3];
                }
            }
        }
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{}", folder.display());
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

fn check_seeded(target: &str, check: fn(&[u8])) {
    let seeds = corpus(target);
    let mut random = SeededRandom(7);
    let count = std::env::var(MUTATIONS).map_or(MUTATIONS_DEFAULT, |number| number.parse().unwrap());
    let mutated = std::iter::repeat_with(|| random.mutated(&seeds)).take(count);
    for input in seeds.clone().into_iter().chain(mutated) {
        let checked = catch_unwind(AssertUnwindSafe(|| check(&input)));
        assert!(checked.is_ok(), "{target}: {}", input.escape_ascii());
    }
}

checks!(check_seeded {
    shell_lines_are_read_without_a_panic: "shell_line", checks::shell_line;
    configurations_are_read_without_a_panic: "config", checks::config;
    api_descriptions_are_imported_without_a_panic: "openapi", checks::openapi;
    mcp_messages_are_read_without_a_panic: "mcp", checks::mcp;
    agent_files_are_read_without_a_panic: "agent", checks::agent;
    journals_are_read_without_a_panic: "journal", checks::journal;
});
