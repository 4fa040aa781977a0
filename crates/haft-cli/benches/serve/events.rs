//! Measures whether the cost of an event grows during a response, from the first event to the 100,000th.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::judge;
use crate::server::{BenchHome, ServeProcess};

const EVENTS: usize = 100_000;

/// The number of events in one measured window, and in a short response.
const WINDOW: usize = 10_000;

/// The number of rounds. The best round counts, because other processes can only make a round slower.
const ROUNDS: usize = 3;

/// The number of characters in a delta of the model.
const DELTA_CHARACTERS: usize = 8;

/// The number of stream events of an item with one delta: two when it begins, the delta, and three when it ends.
const EVENTS_PER_ITEM: usize = 6;

/// The maximum ratio of the late cost to the early cost. If the cost grew with the number of events, the ratio would be
/// about ten.
const GROWTH_MAX: f64 = 2.0;

pub(crate) fn measure(dir: &Path) -> bool {
    let mut is_kept = true;
    for (kind, options) in [
        ("not stored", json!({"store": false})),
        ("stored", json!({"store": true})),
        ("in the background", json!({"background": true})),
    ] {
        let dir = dir.join(kind);
        std::fs::create_dir(&dir).unwrap();
        let home = BenchHome::create(&dir, &script(), &json!({}));
        let stream = EventStream { server: home.serve(), key: home.key.clone(), options };
        is_kept &= stream.deltas(kind);
        is_kept &= stream.items(kind);
        println!("  {:.0} MB after these responses", stream.server.resident_megabytes());
    }
    is_kept
}

/// Returns a script with three conversations: a short text, a long text, and many items. The items alternate between
/// reasoning and text, so that the server cannot merge their deltas.
fn script() -> Value {
    let text = |deltas: usize| json!([{"text": "x".repeat(deltas * DELTA_CHARACTERS)}]);
    let item = |number: usize| match number % 2 {
        0 => json!({"reasoning": {"text": "thought"}}),
        _ => json!({"text": "word"}),
    };
    let items: Vec<Value> = (0..=EVENTS / EVENTS_PER_ITEM).map(item).collect();
    let conversation =
        |about: &str, say: Value, pace: Value| json!({"about": about, "steps": [{"say": say, "pace": pace}]});
    // Send about 1,200 events at a time: the log of a response that is not stored drops old events if the reader is
    // 4,096 events behind.
    let pace = json!({"chunkBytes": 50_000, "betweenMilliseconds": 25});
    json!({"conversations": [
        conversation("short", text(WINDOW), json!({})),
        conversation("long", text(EVENTS), json!({})),
        conversation("items", json!(items), pace),
    ]})
}

/// A server, and the request options for one kind of response.
struct EventStream {
    server: ServeProcess,
    key: String,
    options: Value,
}

impl EventStream {
    /// Compares the CPU time per model delta in a short response with that in a long response. It compares whole
    /// responses, because the server merges deltas that arrive at the same time, so the position of a delta in the
    /// stream is not known exactly.
    fn deltas(&self, kind: &str) -> bool {
        let cpu = |input: &str| {
            let before = self.server.cpu();
            self.read(input, |_| {});
            self.server.cpu().saturating_sub(before)
        };
        let best = |input: &str| (0..ROUNDS).map(|_| cpu(input)).min().unwrap();
        let (short, long) = (each(best("short"), WINDOW), each(best("long"), EVENTS));
        judge_growth(
            &format!(
                "{kind}: {short:.2} µs of CPU a delta in a response of {WINDOW}, {long:.2} µs of {EVENTS}"
            ),
            long / short,
        )
    }

    /// Compares the CPU time of the first and of the last events in a response with many items.
    fn items(&self, kind: &str) -> bool {
        let rounds: Vec<Vec<Duration>> = (0..ROUNDS).map(|_| self.windows()).collect();
        let best = |at: usize| each(rounds.iter().map(|round| round[at]).min().unwrap(), WINDOW);
        let (first, last) = (best(0), best(EVENTS / WINDOW - 1));
        judge_growth(
            &format!(
                "{kind}: {first:.2} µs of CPU for each of the first {WINDOW} events, {last:.2} µs of the last"
            ),
            last / first,
        )
    }

    /// Returns the CPU time of the server for each window of events.
    fn windows(&self) -> Vec<Duration> {
        let (mut windows, mut seen, mut before) = (Vec::new(), 0, self.server.cpu());
        self.read("items", |chunk| {
            seen += chunk.matches("event: ").count();
            while windows.len() < EVENTS / WINDOW && seen >= (windows.len() + 1) * WINDOW {
                let now = self.server.cpu();
                windows.push(now.saturating_sub(before));
                before = now;
            }
        });
        assert_eq!(windows.len(), EVENTS / WINDOW, "the stream has only {seen} events");
        windows
    }

    fn read(&self, input: &str, mut each: impl FnMut(&str)) {
        let mut body = json!({"model": "openai/m", "input": input, "stream": true});
        body.as_object_mut().unwrap().extend(self.options.as_object().unwrap().clone());
        let mut client = Client::connect(self.server.address, &self.key);
        client.open("POST", "/v1/responses", &body.to_string());
        let mut is_completed = false;
        while let Some(chunk) = client.chunk() {
            each(&chunk);
            is_completed |= chunk.starts_with("event: response.completed");
        }
        assert!(is_completed, "the response `{input}` did not complete");
    }
}

fn each(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}

fn judge_growth(figure: &str, ratio: f64) -> bool {
    judge(&format!("{figure}, ratio {ratio:.2}"), "ratio 2", ratio <= GROWTH_MAX)
}
