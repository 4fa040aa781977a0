//! The memory and the CPU time of 10,000 open streams: responses in progress, and readers of one response.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::client::Client;
use crate::judge;
use crate::server::{BenchHome, ServeProcess};

const STREAMS: usize = 10_000;

/// The goal for the memory of all streams. Readers reach it. A response in progress does not, because it also has a
/// connection to the model, and its two connections take 40 KB of buffers. Its limit below only detects regressions.
const MEGABYTES_GOAL: f64 = 500.0;
const READER_KILOBYTES_MAX: f64 = 25.0;
const RESPONSE_KILOBYTES_MAX: f64 = 90.0;

/// The number of threads that open streams.
const OPENERS: usize = 4;

/// The number of file descriptors for everything except the streams, such as the logs of the server.
const OTHER_FILES: usize = 200;

/// The time for which the CPU time of the open streams is measured. Each stream sends one ping in this time.
const IDLE: Duration = Duration::from_secs(15);

pub(crate) fn measure(dir: &Path) -> bool {
    let files = raise_file_limit();
    let mut is_kept = true;
    for kind in [StreamKind::NotStored, StreamKind::Stored, StreamKind::Background, StreamKind::Readers] {
        let count = STREAMS.min((files - OTHER_FILES) / kind.files_per_stream());
        if count < STREAMS {
            println!("only {count} of {STREAMS} streams, because a process can open only {files} files");
        }
        let dir = dir.join(format!("{kind:?}"));
        std::fs::create_dir(&dir).unwrap();
        is_kept &= BenchStreams { kind, count }.measure(&dir);
    }
    is_kept
}

/// Raises the soft limit on open files to the hard limit, and returns the new limit. Child processes inherit the limit.
fn raise_file_limit() -> usize {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.map_or(usize::MAX, |maximum| usize::try_from(maximum).unwrap())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamKind {
    NotStored,
    Stored,
    Background,
    Readers,
}

impl StreamKind {
    fn name(self) -> &'static str {
        match self {
            Self::NotStored => "responses in progress, not stored",
            Self::Stored => "responses in progress, stored",
            Self::Background => "background responses in progress",
            Self::Readers => "readers of one response",
        }
    }

    /// Returns the number of descriptors that the server needs for a stream: the connection of the client, the
    /// connection to the model, and the journal.
    fn files_per_stream(self) -> usize {
        match self {
            Self::Readers => 1,
            Self::NotStored => 2,
            Self::Stored | Self::Background => 3,
        }
    }

    fn kilobytes_max(self) -> f64 {
        match self {
            Self::Readers => READER_KILOBYTES_MAX,
            Self::NotStored | Self::Stored | Self::Background => RESPONSE_KILOBYTES_MAX,
        }
    }

    fn body(self) -> Value {
        match self {
            Self::NotStored => json!({"store": false}),
            Self::Stored => json!({"store": true}),
            Self::Background | Self::Readers => json!({"background": true}),
        }
    }
}

struct BenchStreams {
    kind: StreamKind,
    count: usize,
}

impl BenchStreams {
    fn measure(&self, dir: &Path) -> bool {
        let most = self.count + OTHER_FILES;
        let serve = json!({"maxRuns": most, "maxWaitingRuns": most, "maxConnections": most});
        // The first chunk contains the first words, and the next chunk follows after the measurement.
        let pace = json!({"chunkBytes": 600, "betweenMilliseconds": 110_000});
        let text = "Some words arrive at once, and the others much later. ".repeat(2);
        let script = json!({"steps": [{"say": [{"text": text}], "pace": pace}]});
        let home = BenchHome::create(dir, &script, &serve);
        let server = home.serve();
        let open = |path: &Option<String>| open(server.address, &home.key, self.kind, path.as_deref());
        // The first response prepares the agent. This cost is not part of a stream.
        let (first, id) = open(&None);
        let path = (self.kind == StreamKind::Readers).then(|| format!("/v1/responses/{id}?stream=true"));
        let (before, cpu) = (server.resident_megabytes(), server.cpu());
        let streams: Vec<Client> = std::thread::scope(|scope| {
            let opener =
                |_| scope.spawn(|| (0..self.count / OPENERS).map(|_| open(&path).0).collect::<Vec<_>>());
            let openers: Vec<_> = (0..OPENERS).map(opener).collect();
            openers.into_iter().flat_map(|opener| opener.join().unwrap()).collect()
        });
        let is_kept = self.report(&server, before, cpu);
        drop((first, streams));
        is_kept
    }

    fn report(&self, server: &ServeProcess, before: f64, cpu: Duration) -> bool {
        let opening = server.cpu().saturating_sub(cpu).as_secs_f64() * 1e3 / self.count as f64;
        let (open, cpu) = (server.resident_megabytes(), server.cpu());
        std::thread::sleep(IDLE);
        let idle = server.cpu().saturating_sub(cpu).as_secs_f64() / IDLE.as_secs_f64() * 100.0;
        let each = (open - before) * 1e3 / self.count as f64;
        let all = before + each * STREAMS as f64 / 1e3;
        let figure = format!(
            "{} {}: {open:.0} MB, {each:.1} KB each ({STREAMS}: {all:.0} MB, goal {MEGABYTES_GOAL:.0} MB); opening \
             {opening:.2} ms of CPU each; open: {idle:.1} % of a core, {} files",
            self.count,
            self.kind.name(),
            server.open_files(),
        );
        let limit = self.kind.kilobytes_max();
        judge(&figure, &format!("{limit:.0} KB each"), each <= limit)
    }
}

/// Opens a stream, reads its first words, and returns it with the id of the response.
fn open(address: SocketAddr, key: &str, kind: StreamKind, reader_path: Option<&str>) -> (Client, String) {
    let mut client = Client::connect(address, key);
    if let Some(path) = reader_path {
        client.open("GET", path, "");
    } else {
        let mut body = json!({"model": "openai/m", "input": "go", "stream": true});
        body.as_object_mut().unwrap().extend(kind.body().as_object().unwrap().clone());
        client.open("POST", "/v1/responses", &body.to_string());
    }
    let created = client.read_to("response.created");
    let created: Value = serde_json::from_str(created.split_once("data: ").unwrap().1.trim()).unwrap();
    client.read_to("response.output_text.delta");
    (client, created["response"]["id"].as_str().unwrap().to_owned())
}
