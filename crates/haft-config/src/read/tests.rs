use std::fmt::Write;

use serde_json::json;

use super::*;

fn read_text(text: &str) -> Result<ConfigLayer, Vec<ConfigError>> {
    read(Path::new("/p/haft.json"), text, &|name| (name == "HOME").then(|| "/home/u".to_owned()))
}

fn check(text: &str, expected: &Value) {
    match read_text(text) {
        Ok(layer) => assert_eq!(Value::Object(layer.value), *expected, "{text}"),
        Err(errors) => panic!("{text}: {errors:?}"),
    }
}

/// Checks all errors, one per line.
fn check_errors(text: &str, expected: &[&str]) {
    let errors = read_text(text).unwrap_err();
    let told: Vec<String> =
        errors.iter().map(|error| error.to_string().replace("/p/haft.json:", "")).collect();
    assert_eq!(told, expected, "{text}");
}

#[test]
fn comments_trailing_commas_and_bom_are_accepted() {
    check("{}", &json!({}));
    check("\u{feff}{}", &json!({}));
    check("// nothing\n{ /* at all */ }", &json!({}));
    check("{\"toolsDenied\": [\"a\", \"b\",],}", &json!({"toolsDenied": ["a", "b"]}));
}

#[test]
fn parsed_config_values_are_normalized() {
    check(r#"{"toolTimeout": "1.5h"}"#, &json!({"toolTimeout": 5_400_000}));
    check(r#"{"toolTimeout": 1500}"#, &json!({"toolTimeout": 1500}));
    check(r#"{"tools": {"a*": {"cache": "off"}}}"#, &json!({"tools": {"a*": {"cache": "off"}}}));
    check(
        r#"{"sandbox": {"workspace": "sub", "writable": ["${HOME}/x"]}}"#,
        &json!({"sandbox": {"workspace": "/p/sub", "writable": ["/home/u/x"]}}),
    );
    check(r#"{"queues": {"q": {"maxConcurrency": 3}}}"#, &json!({"queues": {"q": {"maxConcurrency": 3}}}));
}

#[test]
fn old_names_of_keys_and_modes_are_accepted_with_a_warning() {
    let text = "{\"cache\": {\"bytesMax\": 5},\n \"sandbox\": {\"mode\": \"rx\"}}";
    let layer = read_text(text).unwrap();
    let expected = json!({"cache": {"maxBytes": 5}, "sandbox": {"mode": "network"}});
    assert_eq!(Value::Object(layer.value), expected);
    let warnings: Vec<String> = layer.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "/p/haft.json:1:12: cache.bytesMax: the key `bytesMax` was renamed to `maxBytes`; use the new name",
            "/p/haft.json:2:22: sandbox.mode: the value `rx` was renamed to \"network\"; use the new value",
        ]
    );
    assert!(read_text("{\"cache\": {\"maxBytes\": 5}}").unwrap().warnings.is_empty());
}

#[test]
fn old_key_in_seconds_becomes_milliseconds() {
    let layer =
        read_text("{\"sandbox\": {\"limits\": {\"cpuSeconds\": 3}}, \"mcpInitConcurrency\": 2}").unwrap();
    let expected = json!({"sandbox": {"limits": {"cpuTime": 3000}}, "maxMcpStarts": 2});
    assert_eq!(Value::Object(layer.value), expected);
    assert_eq!(layer.warnings.len(), 2);
}

#[test]
fn duration_without_a_unit_in_a_file_is_milliseconds_and_warned_about() {
    let warnings = |text: &str| -> Vec<String> {
        read_text(text).unwrap().warnings.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        warnings("{\"toolTimeout\": 5000, \"sessions\": {\"keep\": \"60000\"}}"),
        [
            "/p/haft.json:1:17: toolTimeout: the duration `5000` has no unit and means milliseconds; write \"5s\"",
            "/p/haft.json:1:44: sessions.keep: the duration `60000` has no unit and means milliseconds; write \"1m\"",
        ]
    );
    assert!(warnings("{\"toolTimeout\": \"5s\", \"cache\": {\"maxBytes\": 5}}").is_empty());
    let old = warnings("{\"queues\": {\"q\": {\"defaultTimeoutMs\": 5}}}");
    assert!(old.len() == 1 && old[0].contains("was renamed to `timeout`"), "{old:?}");
}

#[test]
fn config_error_has_position_key_and_hint() {
    check_errors(
        "{\n  \"sandbox\": { \"mod\": \"network\" }\n}",
        &["2:16: sandbox.mod: unknown key\n  hint: did you mean `mode`?"],
    );
    check_errors(
        "{\"tool_timeout\": 1}",
        &["1:2: tool_timeout: unknown key\n  hint: did you mean `toolTimeout`?"],
    );
    check_errors("{\"unheardOf\": {}}", &["1:2: unheardOf: unknown key"]);
    check_errors(
        "{\"naming\": \"singel\"}",
        &[
            "1:12: naming: expected one of \"double\", \"claude\", \"single\", \"bare\"; found \"singel\"\n  hint: did you mean \"single\"?",
        ],
    );
    check_errors(
        "{\"ü\": 1, \"naming\": null}",
        &[
            "1:2: [\"ü\"]: unknown key",
            "1:20: naming: expected one of \"double\", \"claude\", \"single\", \"bare\"; found null",
        ],
    );
}

#[test]
fn wrong_type_error_names_expected_and_found() {
    let check = |text: &str, expected: &str| check_errors(text, &[expected]);
    check("{\"toolTimeout\": true}", "1:17: toolTimeout: expected a duration such as \"90s\"; found true");
    check("{\"toolTimeout\": 1.5}", "1:17: toolTimeout: expected a duration such as \"90s\"; found 1.5");
    check("{\"toolTimeout\": 0}", "1:17: toolTimeout: expected a duration such as \"90s\"; found 0");
    check(
        "{\"toolTimeout\": \"off\"}",
        "1:17: toolTimeout: expected a duration such as 90s, 1500ms or 2m; got `off`",
    );
    check(
        "{\"maxToolResponseBytes\": -1}",
        "1:26: maxToolResponseBytes: expected a whole number of at least 1; found -1",
    );
    check(
        "{\"toolOutput\": {\"enabled\": \"yes\"}}",
        "1:28: toolOutput.enabled: expected true or false; found \"yes\"",
    );
    check("{\"toolsDenied\": \"a\"}", "1:17: toolsDenied: expected a list; found \"a\"");
    check("{\"toolsDenied\": [1]}", "1:18: toolsDenied[0]: expected a tool pattern; found 1");
    check("{\"sandbox\": []}", "1:13: sandbox: expected an object; found a list");
    check(
        "{\"tools\": {\"[\": {}}}",
        "1:12: tools[\"[\"]: the pattern `[` has a `[` without `]`; write `[[]` for a literal bracket",
    );
    check(
        "{\"queues\": {\"a b\": {}}}",
        "1:13: queues[\"a b\"]: a queue name must be 1 to 64 characters of A-Z a-z 0-9 _ - .; got `a b`",
    );
    check(
        "{\"policy\": {\"rules\": [{\"tool\": \"*\"}]}}",
        "1:23: policy.rules[0]: the required key `decision` is missing",
    );
    check(
        "{\"sandbox\": {\"environment\": [\"A=B\"]}}",
        "1:30: sandbox.environment[0]: expected a variable name; got `A=B`",
    );
    check(
        "{\"sandbox\": {\"workspace\": \"${NONE}\"}}",
        "1:27: sandbox.workspace: variable `NONE` is not set; set the variable, or write a default as in ${NONE:-value}",
    );
}

#[test]
fn all_errors_of_a_file_are_reported_together() {
    let text = "{\n\"a\": 1,\n\"naming\": 2,\n\"cache\": {\"b\": {}},\n\"toolsAllowed\": {}\n}";
    let errors = read_text(text).unwrap_err();
    let keys: Vec<(&str, Option<(usize, usize)>)> =
        errors.iter().map(|error| (error.key.as_str(), error.at)).collect();
    assert_eq!(
        keys,
        [
            ("a", Some((2, 1))),
            ("naming", Some((3, 11))),
            ("cache.b", Some((4, 11))),
            ("toolsAllowed", Some((5, 17))),
        ]
    );
}

#[test]
fn duplicate_config_key_is_an_error() {
    check_errors(
        "{\"toolTimeout\": 1,\n \"toolTimeout\": 2}",
        &["2:2: toolTimeout: duplicate key; the same key is already in line 1"],
    );
    check_errors(
        "{\"queues\": {\"q\": {\"concurrent\": 1, \"maxConcurrency\": 2}}}",
        &["1:36: queues.q.maxConcurrency: duplicate key; the same key is already in line 1"],
    );
}

#[test]
fn invalid_json_in_a_config_file_is_reported_with_its_position() {
    check_errors("", &["1:1: the file is empty; expected a JSON object, at least {}"]);
    check_errors(" \n // only this\n", &["1:1: the file is empty; expected a JSON object, at least {}"]);
    check_errors("[]", &["1:1: expected a JSON object; found a list"]);
    check_errors(
        "{\"naming\" \"bare\"}",
        &["1:11: expected colon after the string or word in object property"],
    );
    check_errors("{\"cache\": {}", &["1:1: unterminated object"]);
    check_errors("{naming: 'bare'}", &["1:2: expected string for object property"]);
    check_errors("{} {}", &["1:4: text cannot contain more than one JSON value"]);
}

#[test]
fn hint_prefers_the_most_restrictive_nearest_value() {
    assert_eq!(nearest("axx", ["ax", "awx"].into_iter()), Some("ax"));
    check_errors(
        "{\"sandbox\": {\"mode\": \"netwrk\"}}",
        &[
            "1:22: sandbox.mode: expected one of \"workspace\", \"network\", \"full\"; found \"netwrk\"\n  hint: did you mean \"network\"?",
        ],
    );
}

#[test]
fn truncated_config_is_an_error_and_never_panics() {
    let text = "{ // ü\n\"tools\": {\"gi*\": {\"cache\": \"o\\u0066f\", \"timeout\": 1e3}}, /* x */ \"toolsDenied\": [\"a\",],}";
    for (end, _) in text.char_indices() {
        assert!(read_text(&text[..end]).is_err(), "{}", &text[..end]);
    }
}

#[test]
fn deeply_nested_config_value_is_an_error() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let text = format!("{{\"toolsDenied\": {}1{}}}", open.repeat(100_000), close.repeat(100_000));
        let errors = read_text(&text).unwrap_err();
        assert!(errors[0].message.contains("maximum nesting depth exceeded"), "{}", errors[0]);
    }
}

#[test]
fn megabyte_of_unknown_keys_in_one_line_is_read_in_bounded_time() {
    let mut text = String::from("{");
    for n in 0..60_000 {
        let _ = write!(text, "\"key{n}\": [{n}],");
    }
    text.push('}');
    let begun = std::time::Instant::now();
    assert_eq!(read_text(&text).unwrap_err().len(), 60_000);
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn config_errors_contain_no_control_characters() {
    let errors = read_text("{\"\\u001b[2J\\u202e\": 1, \"naming\": \"\\u001b[2J\"}").unwrap_err();
    for error in errors {
        let told = error.to_string();
        assert!(
            told.lines().all(|line| !line.contains(|c: char| c.is_control() || c == '\u{202e}')),
            "{told:?}"
        );
    }
}
