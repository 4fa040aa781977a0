//! Tables of validation errors and unusable schemas.

use std::time::{Duration, Instant};

use serde_json::json;

use super::*;
use crate::arguments::{ArgumentLimits, RawArguments};

fn parsed(value: &Value) -> ParsedArguments {
    RawArguments::from_value(value).parse(&ArgumentLimits::default()).unwrap()
}

fn message(schema: &Value, arguments: &Value) -> String {
    let error = Schema::compile(schema).validate(parsed(arguments)).unwrap_err();
    assert_eq!(error.kind, ToolErrorKind::InvalidArguments);
    error.message
}

#[test]
fn schema_errors_state_the_expected_and_the_actual_value() {
    let schema = json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "maxLength": 5},
            "limit": {"type": ["integer", "null"]},
            "mode": {"enum": ["fast", "slow"]},
            "at": {"type": "string", "format": "date"},
            "id": {"type": "string", "pattern": "^[a-z]+$"},
            "edits": {"type": "array", "items": {"$ref": "#/$defs/edit"}},
            "one": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        },
        "required": ["command"],
        "additionalProperties": false,
        "$defs": {"edit": {"type": "object", "properties": {"old": {"type": "string"}}, "required": ["old"]}},
    });
    let check = |arguments: Value, expected: &str| assert_eq!(message(&schema, &arguments), expected);
    check(json!({}), "Error: 'command' parameter is required (string)");
    check(
        json!({"command": "ls", "limit": "ten"}),
        "Error: 'limit' must be null or integer; got string \"ten\"",
    );
    check(json!({"command": 5}), "Error: 'command' must be string; got number 5");
    check(
        json!({"command": "ls", "mode": "x"}),
        "Error: 'mode' must be one of \"fast\", \"slow\"; got string \"x\"",
    );
    check(json!({"command": "ls", "at": "soon"}), "Error: 'at' must be a valid date; got string \"soon\"");
    check(
        json!({"command": "ls", "id": "A1"}),
        "Error: 'id' must match the pattern ^[a-z]+$; got string \"A1\"",
    );
    check(
        json!({"command": "sleep 9"}),
        "Error: 'command' is longer than 5 characters; got string \"sleep 9\"",
    );
    check(
        json!({"command": "ls", "edits": [{"old": "x"}, {}]}),
        "Error: 'edits[1].old' parameter is required (string)",
    );
    check(
        json!({"command": "ls", "one": []}),
        "Error: 'one' matches none of the allowed schemas ('one' must be string; got array of 0 items | \
         'one' must be integer; got array of 0 items); got array of 0 items",
    );
    check(
        json!({"command": "ls", "cmd": 1}),
        "Error: unknown parameter 'cmd'; known parameters are 'at', 'command', 'edits', 'id', 'limit', 'mode', 'one'",
    );
    check(
        json!({"limit": [], "mode": 1}),
        "Error: 'limit' must be null or integer; got array of 0 items\n\
         Error: 'mode' must be one of \"fast\", \"slow\"; got number 1\n\
         Error: 'command' parameter is required (string)",
    );
}

#[test]
fn schema_errors_are_limited_in_number_and_length() {
    let schema = json!({"type": "object", "properties": {"a": {"items": {"type": "string"}}}});
    let many = message(&schema, &json!({"a": vec![1; 100]}));
    assert_eq!(many.lines().count(), 21);
    assert!(many.ends_with("\nand 80 more"), "{many}");
    let huge = message(&schema, &json!({"a": vec![1; 1_000_000]}));
    assert_eq!(huge, "Error: 'a[0]' must be string; got number 1");
    let long =
        message(&json!({"properties": {"a": {"type": "integer"}}}), &json!({"a": "x".repeat(100_000)}));
    assert!(long.len() < 200, "{long}");
}

#[test]
fn schema_draft_defaults_to_2020_12() {
    let tuple = |schema: Value| {
        let schema = json!({"$schema": schema, "properties": {"a": {"items": [{"type": "string"}]}}});
        Schema::compile(&schema).validate(parsed(&json!({"a": [1]}))).is_ok_and(|valid| !valid.unvalidated())
    };
    assert!(!tuple(json!("http://json-schema.org/draft-07/schema#")), "in draft 7, `items` may be a list");
    let prefix = json!({"properties": {"a": {"prefixItems": [{"type": "string"}]}}});
    assert_eq!(message(&prefix, &json!({"a": [1]})), "Error: 'a[0]' must be string; got number 1");
}

#[test]
fn draft_for_schemas_without_dollar_schema_is_configurable() {
    let check = |draft: SchemaDraft, schema: &Value, refused: bool| {
        let schema = Schema::compile_as(schema, draft);
        assert!(matches!(schema, Schema::Checked(_)), "{schema:?}");
        assert_eq!(schema.validate(parsed(&json!({"a": [1]}))).is_err(), refused, "{}", draft.name());
    };
    let prefix = json!({"properties": {"a": {"prefixItems": [{"type": "string"}]}}});
    check(SchemaDraft::Draft202012, &prefix, true);
    for old in [SchemaDraft::Draft4, SchemaDraft::Draft6, SchemaDraft::Draft7, SchemaDraft::Draft201909] {
        check(old, &prefix, false);
        check(old, &json!({"properties": {"a": {"items": [{"type": "string"}]}}}), true);
        let named = "https://json-schema.org/draft/2020-12/schema";
        check(old, &json!({"$schema": named, "properties": prefix["properties"]}), true);
    }
}

/// Returns the paths of the corrected values and the result, or `None` if validation rejected the arguments.
fn mended(schema: &Value, arguments: &Value) -> Option<(String, Value)> {
    let valid = Schema::compile(schema).validate(parsed(arguments)).ok()?;
    Some((valid.mended().join(" "), Value::Object(valid.value().clone())))
}

#[test]
fn strings_are_coerced_only_if_the_schema_then_accepts_them() {
    let schema = json!({
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "minimum": 1},
            "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "deep": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "edits": {"type": "array", "items": {"type": "object", "properties": {"line": {"type": "integer"}}}},
            "level": {"enum": [1, 2]},
            "text": {"type": "string"},
            "either": {"type": ["integer", "string"]},
        },
        "additionalProperties": false,
    });
    let check = |arguments: Value, places: &str, expected: Value| {
        assert_eq!(mended(&schema, &arguments), Some((places.into(), expected)), "{arguments}");
    };
    check(json!({"limit": "5"}), "limit", json!({"limit": 5}));
    check(json!({"limit": " 5 "}), "limit", json!({"limit": 5}));
    check(json!({"ratio": "0.5"}), "ratio", json!({"ratio": 0.5}));
    check(json!({"ratio": "None"}), "ratio", json!({"ratio": null}));
    check(json!({"deep": "true"}), "deep", json!({"deep": true}));
    check(json!({"deep": "False"}), "deep", json!({"deep": false}));
    check(json!({"tags": "[\"a\", \"1\"]"}), "tags", json!({"tags": ["a", "1"]}));
    check(json!({"level": "2"}), "level", json!({"level": 2}));
    check(
        json!({"edits": "[{\"line\": \"7\"}]", "limit": "5"}),
        "edits limit edits[0].line",
        json!({"edits": [{"line": 7}], "limit": 5}),
    );
    check(json!({"text": "5", "either": "5"}), "", json!({"text": "5", "either": "5"}));
    let refused = |arguments: Value| assert_eq!(mended(&schema, &arguments), None, "{arguments}");
    refused(json!({"limit": "0"}));
    refused(json!({"limit": "5", "unknown": 1}));
    refused(json!({"limit": "five"}));
    refused(json!({"limit": "1.5"}));
    refused(json!({"limit": "123456789012345678901234567890"}));
    refused(json!({"deep": "yes"}));
    refused(json!({"tags": "a, b"}));
    refused(json!({"text": 5}));
}

#[test]
fn null_of_an_optional_non_nullable_property_is_removed() {
    let schema = json!({
        "type": "object",
        "properties": {
            "a/b~c": {"type": "integer"},
            "edits": {"type": "array", "items": {"$ref": "#/$defs/range"}},
            "either": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/range"}]},
            "limit": {"type": "integer"},
            "mode": {"enum": ["a", "b"]},
            "null": {"type": ["string", "null"]},
            "path": {"type": "string"},
        },
        "required": ["path"],
        "additionalProperties": false,
        "$defs": {"range": {"type": "object", "properties": {"from": {"type": "integer"}}}},
    });
    let check = |arguments: Value, places: &str, expected: Value| {
        assert_eq!(mended(&schema, &arguments), Some((places.into(), expected)), "{arguments}");
    };
    check(
        json!({"a/b~c": null, "either": null, "limit": null, "mode": null, "null": null, "path": "a"}),
        "a/b~c either limit mode",
        json!({"null": null, "path": "a"}),
    );
    check(
        json!({"path": "a", "edits": [{"from": null}, {"from": "2"}]}),
        "edits[0].from edits[1].from",
        json!({"path": "a", "edits": [{}, {"from": 2}]}),
    );
    check(json!({"path": "a", "limit": "null"}), "limit limit", json!({"path": "a"}));
    let refused = |arguments: Value| assert_eq!(mended(&schema, &arguments), None, "{arguments}");
    refused(json!({"path": null}));
    refused(json!({"path": "a", "edits": [null]}));
    refused(json!({"path": "a", "unknown": null}));
    let told = message(&schema, &json!({"path": "a", "limit": null, "edits": [null]}));
    assert!(told.contains("'limit' must be integer; got null"), "{told}");
}

#[test]
fn fit_removes_optional_nulls_and_reports_other_mismatches() {
    let schema = Schema::compile(&json!({
        "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"],
    }));
    let fit = |answer: Value| schema.fit(answer, 20);
    assert_eq!(fit(json!({"a": "x", "b": 1})), Ok(json!({"a": "x", "b": 1})));
    assert_eq!(fit(json!({"a": "x", "b": null})), Ok(json!({"a": "x"})));
    assert_eq!(fit(json!({"a": null})), Err("'a' must be string; got null".into()));
    assert_eq!(fit(json!([])), Err("the value must be object; got array of 0 items".into()));
}

#[test]
fn failed_coercion_reports_errors_for_the_original_values() {
    let schema = json!({"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}});
    let said = message(&schema, &json!({"a": "1", "b": "x"}));
    assert_eq!(
        said,
        "Error: 'a' must be integer; got string \"1\"\nError: 'b' must be integer; got string \"x\""
    );
}

#[test]
fn argument_coercion_has_bounded_size_depth_and_rounds() {
    let list = json!({"properties": {"a": {"type": "array", "items": {"type": "integer"}}}});
    assert!(mended(&list, &json!({"a": vec!["1"; 64]})).is_some());
    assert!(mended(&list, &json!({"a": vec!["1"; 65]})).is_none());
    let large = json!({"a": serde_json::to_string(&vec![1; 300_000]).unwrap()});
    assert!(mended(&list, &large).is_some(), "a single large string is coerced");
    let started = Instant::now();
    assert!(mended(&list, &json!({"a": vec!["1"; 300_000]})).is_none());
    assert!(started.elapsed() < Duration::from_mins(1));
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    assert!(mended(&json!({"properties": {"a": {"type": "array"}}}), &json!({"a": deep})).is_none());
    let nested = (0..10).fold("1".to_owned(), |inner, _| serde_json::to_string(&vec![inner]).unwrap());
    let recursive = json!({"$defs": {"n": {"anyOf": [{"type": "integer"}, {"items": {"$ref": "#/$defs/n"}, "type": "array"}]}},
        "properties": {"a": {"$ref": "#/$defs/n"}}});
    assert!(
        mended(&recursive, &json!({"a": nested})).is_none(),
        "a value that needs more than four rounds is not coerced"
    );
}

#[test]
fn schema_check_validates_a_value_without_coercing_it() {
    let schema = Schema::compile(&json!({"type": "object", "properties": {"a": {"type": "integer"}}}));
    assert_eq!(schema.check(&json!({"a": 1}), 7), Ok(()));
    let told = schema.check(&json!({"a": "1"}), 9).unwrap_err();
    assert_eq!(told, "'a' must be integer; got string \"1\"", "`check` coerces no value");
}

#[test]
fn unusable_schema_skips_validation_and_records_the_reason() {
    let check = |schema: &Value, expected: &str| {
        let schema = Schema::compile(schema);
        let Schema::Unchecked { reason } = &schema else {
            panic!("the schema compiled; expected the error {expected}")
        };
        assert!(reason.contains(expected), "{reason}");
        let valid = schema.validate(parsed(&json!({"a": 1}))).unwrap();
        assert!(valid.unvalidated());
        assert_eq!(valid.value()["a"], 1);
    };
    check(&json!({"type": "nonsense"}), "does not compile");
    check(&json!({"$ref": "https://example.com/schema.json"}), "does not compile");
    check(&json!({"$ref": "file:///etc/passwd"}), "does not compile");
    check(&json!({"properties": {"a": {"pattern": "("}}}), "does not compile");
    check(&json!({"description": "x".repeat(SCHEMA_BYTES_MAX)}), "larger than 1048576 bytes");
    let deep = (0..100).fold(json!({}), |inner, _| json!({"not": inner}));
    check(&deep, "deeper than 64 levels");
}

#[test]
fn pathological_patterns_fail_in_a_short_time() {
    // The time of a debug build on a busy machine. A release build needs a few milliseconds.
    let time_max = Duration::from_millis(500);
    let check = |properties: Value, text: &str| {
        let schema = Schema::compile(&json!({ "properties": properties }));
        assert!(matches!(schema, Schema::Checked(_)), "{properties}");
        let arguments = parsed(&json!({"a": text}));
        let started = Instant::now();
        assert!(schema.validate(arguments).is_err(), "{properties}");
        let elapsed = started.elapsed();
        println!("{properties}: {elapsed:?}");
        assert!(elapsed < time_max, "{properties}: {elapsed:?}");
    };
    let long = format!("{}b", "a".repeat(50_000));
    check(json!({"a": {"pattern": "(a+)+$"}}), &long);
    check(json!({"a": {"pattern": "^(a+)+$"}}), &long);
    // Another pattern of the schema needs the backtracking engine.
    check(json!({"a": {"pattern": "(a+)+$"}, "b": {"pattern": "^(?=x)"}}), &long);
    check(json!({"a": {"pattern": "^(?=(a+)+$)x"}}), &long);
    check(json!({"a": {"pattern": "^(?!b)(a+)+$"}}), &long);
    check(json!({"a": {"pattern": r"^(a|aa)+\1$"}}), &long);
}

#[test]
fn exponential_schema_is_rejected_by_the_step_limit() {
    let next = |at: usize| json!({"$ref": format!("#/$defs/d{}", at + 1)});
    let mut definitions: Map<_, _> =
        (0..200).map(|at| (format!("d{at}"), json!({"allOf": [next(at), next(at)]}))).collect();
    definitions.insert("d200".into(), json!({"type": "object"}));
    let started = Instant::now();
    let schema = json!({"$ref": "#/$defs/d0", "$defs": definitions});
    let said = message(&schema, &json!({}));
    let unfit = Schema::compile(&schema).fit(json!({"a": null}), 10).unwrap_err();
    assert!(unfit.contains("takes more than 2000000 steps"), "{unfit}");
    assert!(said.contains("takes more than 2000000 steps"), "{said}");
    assert!(started.elapsed() < Duration::from_mins(1), "the check stops before 2^200 steps");
}

#[test]
fn valid_arguments_deserialize_into_a_type() {
    let valid = Schema::compile(&json!({"type": "object"})).validate(parsed(&json!({"a": 1}))).unwrap();
    let typed: std::collections::BTreeMap<String, u8> = valid.to().unwrap();
    assert_eq!(typed["a"], 1);
    let error = valid.to::<std::collections::BTreeMap<String, String>>().unwrap_err();
    assert_eq!(error.kind, ToolErrorKind::InvalidArguments);
    assert!(!valid.unvalidated());
}

#[test]
fn schema_accepts_valid_arguments_without_copying_them() {
    let schema = Schema::compile(&json!({"type": "object", "properties": {"text": {"type": "string"}}}));
    let arguments = parsed(&json!({"text": "x".repeat(4 << 20)}));
    let time = |work: &dyn Fn()| {
        let began = Instant::now();
        (0..20).for_each(|_| work());
        began.elapsed()
    };
    let copying = time(&|| drop(std::hint::black_box(arguments.clone())));
    let accepting = time(&|| assert!(schema.accepts(&arguments)));
    assert!(accepting < copying / 2, "`accepts` took {accepting:?}, a copy took {copying:?}");
}
