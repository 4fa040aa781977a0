//! Compares the proxy `LiteLLM` with `haft serve`, in one run and with the same model.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::cost::{BenchTarget, ResponseCost};
use crate::server::{BenchHome, ServeProcess, free_address};

const KEY: &str = "sk-bench";
const ROUNDS: usize = 3;

/// The number of responses in a round. The proxy needs several milliseconds for each.
const RESPONSES: usize = 400;

/// Measures the servers in alternating rounds. The best round of each server counts.
pub(crate) fn measure(dir: &Path) -> bool {
    let home = BenchHome::with_fast_model(dir);
    let (haft, litellm) = (home.serve(), start(dir, &home.model.url));
    let to_haft = json!({"model": "openai/m", "input": "go", "store": false}).to_string();
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "go"}]}).to_string();
    let to_litellm = json!({"model": "m", "input": "go", "store": false}).to_string();
    let targets = [
        BenchTarget { server: &haft, key: &home.key, path: "/v1/responses", body: &to_haft },
        BenchTarget { server: &litellm, key: KEY, path: "/v1/responses", body: &to_litellm },
        BenchTarget { server: &litellm, key: KEY, path: "/v1/chat/completions", body: &chat },
    ];
    let rounds: Vec<[ResponseCost; 3]> =
        (0..ROUNDS).map(|_| targets.each_ref().map(|target| target.cost(RESPONSES))).collect();
    let best = |at: usize| {
        let costs = rounds.iter().map(|round| round[at]);
        costs.reduce(ResponseCost::best)
    };
    let haft_cost = best(0).unwrap();
    println!("haft {}: {haft_cost}, {:.0} MB", targets[0].path, haft.resident_megabytes());
    for (at, target) in targets.iter().enumerate().skip(1) {
        let cost = best(at).unwrap();
        println!(
            "LiteLLM {}: {cost}, {:.0} MB; haft needs {:.0} times less CPU and answers {:.0} times as many requests",
            target.path,
            litellm.resident_megabytes(),
            cost.cpu.as_secs_f64() / haft_cost.cpu.as_secs_f64(),
            haft_cost.under_load.rate / cost.under_load.rate,
        );
    }
    true
}

fn start(dir: &Path, model: &str) -> ServeProcess {
    let parameters = json!({"model": "openai/m", "api_base": format!("{model}/v1"), "api_key": "k"});
    let config = json!({
        "model_list": [{"model_name": "m", "litellm_params": parameters}],
        "general_settings": {"master_key": KEY},
    });
    // A JSON document is a YAML document too.
    std::fs::write(dir.join("litellm.yaml"), config.to_string()).unwrap();
    let address = free_address();
    let mut command = Command::new(program());
    command.args(["--config", "litellm.yaml", "--num_workers", "1", "--host", "127.0.0.1", "--port"]);
    command.arg(address.port().to_string()).current_dir(dir).env_clear();
    command.env("PATH", "/usr/bin:/bin").env("HOME", dir);
    // Otherwise the proxy downloads prices at its start and logs each request.
    command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("LITELLM_LOG", "ERROR");
    ServeProcess::start(command, address, "/health/readiness")
}

fn program() -> std::path::PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_haft"))
        .ancestors()
        .nth(2)
        .unwrap()
        .join("tools/python-litellm/bin/litellm");
    assert!(program.exists(), "{} is missing; `cargo xtask bench --long` installs it", program.display());
    program
}
