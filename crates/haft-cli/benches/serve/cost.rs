//! The start, the idle memory, and the cost of a response of a model that answers at once.

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

/// The cost of the answers to a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseCost {
    /// The CPU time of the server for one response, with one client.
    pub(crate) cpu: Duration,
    /// The number of responses per second, with several clients.
    pub(crate) rate: f64,
}

impl BenchTarget<'_> {
    pub(crate) fn cost(&self, responses: usize) -> ResponseCost {
        let mut client = self.client();
        // The first requests prepare the agent and open the connection to the model.
        (0..WARM_UPS).for_each(|_| client.post(self.path, self.body));
        let before = self.server.cpu();
        (0..responses).for_each(|_| client.post(self.path, self.body));
        let cpu = self.server.cpu().saturating_sub(before) / u32::try_from(responses).unwrap();
        ResponseCost { cpu, rate: self.responses_per_second(responses) }
    }

    fn responses_per_second(&self, responses: usize) -> f64 {
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let mut client = self.client();
                    (0..responses / CLIENTS).for_each(|_| client.post(self.path, self.body));
                });
            }
        });
        responses as f64 / began.elapsed().as_secs_f64()
    }

    fn client(&self) -> Client {
        Client::connect(self.server.address, self.key)
    }
}

impl std::fmt::Display for ResponseCost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cpu = self.cpu.as_secs_f64() * 1e6;
        write!(f, "{cpu:.0} µs of CPU a response, {:.0} responses/s with {CLIENTS} clients", self.rate)
    }
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
