//! Kills servers, makes them crash and cancels calls many times, and checks that haft leaks no process and no
//! descriptor.

use std::io::Write;

use super::{McpCallStream, tree};
use haft_testkit::{eventually, processes_with, send_signal, unique_marker};

const SERVERS: usize = 5;
const ROUNDS: usize = 200;

/// A deterministic random generator, so that a failure can be reproduced.
struct LeakTestRandom(u64);

impl LeakTestRandom {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[test]
fn random_kills_and_cancels_leak_no_process_or_descriptor() {
    let tree = tree();
    let marker = unique_marker();
    let modes = ["good", "exits-after-3", "ignores-term", "daemon", "noise"];
    let servers: Vec<String> = (0..SERVERS)
        .map(|number| {
            let own = format!("{marker}-{number}");
            format!("\"s{number}\": {{{}}}", tree.misbehaving_server(modes[number], &["300000", &own]))
        })
        .collect();
    tree.file("home/haft.json", &format!("{{\"mcpServers\": {{{}}}}}", servers.join(", ")));
    let mut stream = McpCallStream::open(&tree, &["--jobs", "8", "--timeout", "400ms"]);
    for number in 0..SERVERS {
        let up = || stream.ask(&format!("s{number}__echo"), r#"{"text":"up"}"#).contains("echo: up");
        eventually("every server is up", up);
    }
    let before = descriptors(stream.child.id());
    let mut dice = LeakTestRandom(7);
    let mut answers = 0;
    for _ in 0..ROUNDS {
        let number = dice.roll(SERVERS);
        let victims = processes_with(&format!("{marker}-{number}"));
        if dice.roll(3) == 0 && !victims.is_empty() {
            // The process may have exited after it was listed.
            let victim = victims[dice.roll(victims.len())];
            let _ = std::panic::catch_unwind(|| send_signal(u32::try_from(victim).unwrap(), 9));
        }
        // `slow` takes longer than the call timeout, so it is cancelled.
        let tool = ["echo", "slow", "fail"][dice.roll(3)];
        let line = format!("{{\"id\":1,\"tool\":\"s{number}__{tool}\",\"args\":{{}}}}\n");
        stream.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        answers += 1;
        if dice.roll(4) == 0 {
            (0..std::mem::take(&mut answers)).for_each(|_| drop(stream.answer()));
        }
    }
    (0..answers).for_each(|_| drop(stream.answer()));
    // A server that is being restarted holds more descriptors for a moment.
    let pid = stream.child.id();
    eventually("haft has no more open descriptors than before", || descriptors(pid) <= before);
    stream.end();
    assert!(processes_with(&marker).is_empty());
}
