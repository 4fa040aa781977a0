//! The time that the server adds to the first token of a stream, and to a whole response.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Client;
use crate::cost::{median, milliseconds};
use crate::server::BenchHome;

const PAIRS: usize = 1_000;
const WARM_UPS: usize = 200;

const TEXT: &str = "These words arrive in a few deltas, as the answer of a model does.";

/// Measures both times. Requests to the model alternate with requests to the server, so that both have the same load.
pub(crate) fn measure(dir: &Path) -> bool {
    let home = BenchHome::create(dir, &json!({"steps": [{"say": [{"text": TEXT}]}]}), &json!({}));
    let server = home.serve();
    let (mut direct, mut through) = (home.model_client(), Client::connect(server.address, &home.key));
    for stream in [true, false] {
        let to_model =
            json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "go"}]});
        let to_server = json!({"model": "openai/m", "stream": stream, "store": false, "input": "go"});
        let (to_model, to_server) = (to_model.to_string(), to_server.to_string());
        let mut pair = || {
            if stream {
                let model = direct.time_to("These", "/v1/chat/completions", &to_model);
                (model, through.time_to("These", "/v1/responses", &to_server))
            } else {
                let model = time_of(|| direct.post("/v1/chat/completions", &to_model));
                (model, time_of(|| through.post("/v1/responses", &to_server)))
            }
        };
        (0..WARM_UPS).for_each(|_| _ = pair());
        let (models, servers): (Vec<Duration>, Vec<Duration>) = (0..PAIRS).map(|_| pair()).unzip();
        let added =
            models.iter().zip(&servers).map(|(model, server)| server.saturating_sub(*model)).collect();
        println!(
            "{}: median {:.2} ms, of the model alone {:.2} ms, added {:.2} ms",
            if stream { "first token of a stream" } else { "whole response" },
            milliseconds(median(servers)),
            milliseconds(median(models)),
            milliseconds(median(added)),
        );
    }
    true
}

fn time_of(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}
