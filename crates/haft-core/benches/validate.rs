//! Measures argument validation compared with the validator alone, in checks per second of CPU time.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark panics on an unexpected result and prints its numbers"
)]

use std::hint::black_box;
use std::time::Duration;

use haft_core::arguments::{ArgumentLimits, RawArguments};
use haft_core::validate::Schema;
use serde_json::{Value, json};

/// Returns the CPU time of this thread, which other programs on the machine do not affect.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}

/// Repeats the work and returns how often it runs in a second.
fn per_second(mut work: impl FnMut()) -> f64 {
    const ROUNDS: u32 = 100_000;
    (0..ROUNDS / 10).for_each(|_| work());
    let before = cpu_time();
    (0..ROUNDS).for_each(|_| work());
    f64::from(ROUNDS) / cpu_time().checked_sub(before).unwrap().as_secs_f64()
}

fn plain() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1},
            "offset": {"type": "integer", "minimum": 0},
            "limit": {"type": "integer", "minimum": 1, "maximum": 2000},
            "mode": {"enum": ["text", "bytes"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "follow": {"type": "boolean"},
        },
        "required": ["path"],
        "additionalProperties": false,
    })
}

/// Returns the same schema in the form that Pydantic and schemars write, with definitions and references.
fn with_references() -> Value {
    let mut schema = plain();
    schema["$defs"] = json!({"Mode": {"enum": ["text", "bytes"]}, "Tag": {"type": "string"}});
    schema["properties"]["mode"] = json!({"$ref": "#/$defs/Mode"});
    schema["properties"]["tags"]["items"] = json!({"$ref": "#/$defs/Tag"});
    schema
}

fn measure(name: &str, written: &Value, tags: usize) {
    let tags: Vec<String> = (0..tags).map(|tag| format!("tag{tag}")).collect();
    let value = json!({"path": "/src/lib.rs", "offset": 7, "limit": 200, "mode": "text", "tags": tags, "follow": false});
    let validator = jsonschema::validator_for(written).unwrap();
    let schema = Schema::compile(written);
    let text = RawArguments::from_value(&value);
    let limits = ArgumentLimits::default();
    let parsed = text.parse(&limits).unwrap();
    let alone = per_second(|| assert!(validator.is_valid(black_box(&value))));
    let copied = per_second(|| assert!(schema.validate(black_box(&parsed).clone()).is_ok()));
    let accepts = per_second(|| assert!(schema.accepts(black_box(&parsed))));
    let json = per_second(|| drop(serde_json::from_str::<Value>(black_box(text.as_text())).unwrap()));
    let parse = per_second(|| drop(text.parse(&limits).unwrap()));
    let all = per_second(|| drop(schema.validate(text.parse(&limits).unwrap()).unwrap()));
    println!("| {name} | {alone:.0} | {copied:.0} | {accepts:.0} | {json:.0} | {parse:.0} | {all:.0} |");
}

fn main() {
    println!(
        "| schema | jsonschema alone | copy and `validate` | `accepts` | serde_json alone | parse | parse and validate |"
    );
    println!("|---|---|---|---|---|---|---|");
    for tags in [2, 20] {
        measure(&format!("plain, {tags} tags"), &plain(), tags);
        measure(&format!("with references, {tags} tags"), &with_references(), tags);
    }
}
