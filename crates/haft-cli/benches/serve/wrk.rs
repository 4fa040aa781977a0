//! Measures the request rate with the load generator `wrk`. All requests must succeed.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::judge;
use crate::server::BenchHome;

const CONNECTIONS: &str = "64";
const DURATION: &str = "10s";

pub(crate) fn measure(dir: &Path) -> bool {
    let home = BenchHome::with_fast_model(dir);
    let server = home.serve();
    let mut is_kept = true;
    for (name, options) in [
        ("not stored", json!({"store": false})),
        ("stored", json!({"store": true})),
        ("streamed", json!({"store": false, "stream": true})),
    ] {
        let mut body = json!({"model": "openai/m", "input": "go"});
        body.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let script = dir.join("request.lua");
        std::fs::write(&script, request(&body.to_string(), &home.key)).unwrap();
        let mut command = Command::new("wrk");
        command.args(["--threads", "1", "--connections", CONNECTIONS, "--duration", DURATION, "--latency"]);
        command.arg("--script").arg(&script).arg(format!("http://{}/v1/responses", server.address));
        let output = command.output().unwrap();
        let report = String::from_utf8(output.stdout).unwrap();
        let value =
            |name: &str| report.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap_or("?").trim();
        let figure = format!(
            "{name}: {} responses/s with {CONNECTIONS} connections, half of them within {}, 99 % within {}",
            value("Requests/sec:"),
            value("50%"),
            value("99%")
        );
        // wrk prints these lines only if there were errors.
        let errors: Vec<&str> = report.lines().filter(|line| is_error(line)).map(str::trim).collect();
        let has_worked = output.status.success() && errors.is_empty();
        is_kept &= judge(&figure, &format!("no errors; {}", errors.join("; ")), has_worked);
    }
    is_kept
}

fn is_error(line: &str) -> bool {
    line.contains("Socket errors") || line.contains("Non-2xx")
}

/// Returns a Lua script that makes wrk send this request. A JSON string of ASCII characters is also a Lua string.
fn request(body: &str, key: &str) -> String {
    format!(
        "wrk.method = \"POST\"\nwrk.body = {}\nwrk.headers[\"Content-Type\"] = \"application/json\"\n\
         wrk.headers[\"Authorization\"] = \"Bearer {key}\"\n",
        json!(body)
    )
}
