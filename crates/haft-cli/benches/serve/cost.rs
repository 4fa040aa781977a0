//! Measures the start, the idle memory, and the cost of a response when the model answers immediately.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Client;
use crate::judge;
use crate::server::{BenchHome, ServeProcess};

const STARTS: usize = 15;
const RESPONSES: usize = 2_000;
const CLIENTS: usize = 16;
const WARM_UPS: usize = 200;

const START_MAX: Duration = Duration::from_millis(50);
const IDLE_MEGABYTES_MAX: f64 = 25.0;

pub(crate) fn measure(dir: &Path) -> bool {
    let home = BenchHome::with_fast_model(dir);
    let start = median((0..STARTS).map(|_| start_time(&home)).collect());
    let figure = format!("exec to ready: median {:.1} ms of {STARTS}", milliseconds(start));
    let mut is_kept = judge(&figure, "50 ms", start <= START_MAX);
    let server = home.serve();
    let idle = server.resident_megabytes();
    is_kept &= judge(&format!("idle: {idle:.1} MB"), "25 MB", idle <= IDLE_MEGABYTES_MAX);
    for store in [false, true] {
        let body = json!({"model": "openai/m", "input": "go", "store": store}).to_string();
        let target = BenchTarget { server: &server, key: &home.key, path: "/v1/responses", body: &body };
        let cost = target.cost(RESPONSES);
        println!("store {store}: {cost}");
    }
    println!("after all responses: {:.1} MB", server.resident_megabytes());
    is_kept
}

fn start_time(home: &BenchHome) -> Duration {
    let began = Instant::now();
    let _server = home.serve();
    began.elapsed()
}

/// A request that a server answers many times.
pub(crate) struct BenchTarget<'a> {
    pub(crate) server: &'a ServeProcess,
    pub(crate) key: &'a str,
    pub(crate) path: &'a str,
    pub(crate) body: &'a str,
}

/// The cost of one response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseCost {
    /// The CPU time of the server for one response, with one client.
    pub(crate) cpu: Duration,
    pub(crate) under_load: LoadCost,
}

/// The cost of responses to several clients at the same time. The server then handles several events each time it
/// wakes up, so a response takes less CPU time than with one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadCost {
    pub(crate) cpu: Duration,
    /// The number of responses per second.
    pub(crate) rate: f64,
}

impl ResponseCost {
    /// Returns the lower times and the higher rate of two measurements.
    pub(crate) fn best(self, other: Self) -> Self {
        let (one, two) = (self.under_load, other.under_load);
        let under_load = LoadCost { cpu: one.cpu.min(two.cpu), rate: one.rate.max(two.rate) };
        Self { cpu: self.cpu.min(other.cpu), under_load }
    }
}

impl BenchTarget<'_> {
    pub(crate) fn cost(&self, responses: usize) -> ResponseCost {
        let mut client = self.client();
        // The first requests prepare the agent and open the connection to the model.
        (0..WARM_UPS).for_each(|_| client.post(self.path, self.body));
        let before = self.server.cpu();
        (0..responses).for_each(|_| client.post(self.path, self.body));
        ResponseCost { cpu: self.cpu_since(before, responses), under_load: self.load_cost(responses) }
    }

    fn load_cost(&self, responses: usize) -> LoadCost {
        let (began, before) = (Instant::now(), self.server.cpu());
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let mut client = self.client();
                    (0..responses / CLIENTS).for_each(|_| client.post(self.path, self.body));
                });
            }
        });
        let rate = responses as f64 / began.elapsed().as_secs_f64();
        LoadCost { cpu: self.cpu_since(before, responses), rate }
    }

    /// Returns the CPU time per response since `before`.
    fn cpu_since(&self, before: Duration, responses: usize) -> Duration {
        self.server.cpu().saturating_sub(before) / u32::try_from(responses).unwrap()
    }

    fn client(&self) -> Client {
        Client::connect(self.server.address, self.key)
    }
}

impl std::fmt::Display for ResponseCost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
        let LoadCost { cpu, rate } = self.under_load;
        write!(
            f,
            "{:.0} µs of CPU a response; with {CLIENTS} clients {:.0} µs and {rate:.0} responses/s",
            microseconds(self.cpu),
            microseconds(cpu)
        )
    }
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
