//! Tables and property tests for the arguments parser.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn parse(text: &str) -> Result<ParsedArguments, ArgumentsError> {
    RawArguments::from_text(text).parse(&ArgumentLimits::default())
}

#[test]
fn almost_valid_json_is_repaired_and_each_repair_recorded() {
    let check = |text: &str, expected: Value, repairs: &[&str]| {
        let parsed = parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(Value::Object(parsed.object().clone()), expected, "{text:?}");
        assert_eq!(parsed.repairs(), repairs, "{text:?}");
    };
    check(r#"{"a": [1, {"b": null}]}"#, json!({"a": [1, {"b": null}]}), &[]);
    check("", json!({}), &["read an empty text as {}"]);
    check(" \n", json!({}), &["read an empty text as {}"]);
    check("```json\n{\"a\": 1}\n```", json!({"a": 1}), &["removed a code fence around the arguments"]);
    check("Sure: {\"a\": 1}. Done", json!({"a": 1}), &["removed text around the JSON object"]);
    check("{\"a\": 1}\u{a0}", json!({"a": 1}), &["removed text around the JSON object"]);
    check(r#"{"a": [1, 2,], "b": 3,}"#, json!({"a": [1, 2], "b": 3}), &["removed a trailing comma"]);
    check(r#"{"a": "x""#, json!({"a": "x"}), &["closed a bracket that was left open"]);
    check(
        r#"{"a": {"b": ["x y"#,
        json!({"a": {"b": ["x y"]}}),
        &["closed a string that was cut off", "closed a bracket that was left open"],
    );
    check(
        "{'a': 'it\\'s \"x\"'}",
        json!({"a": "it's \"x\""}),
        &["replaced single quotes by double quotes", "replaced an escape that is not valid JSON"],
    );
    check(
        r#"{"a": True, "b": [False, None]}"#,
        json!({"a": true, "b": [false, null]}),
        &["replaced a Python literal by its JSON form"],
    );
    check("{\"a\": \"x\ny\tz\"}", json!({"a": "x\ny\tz"}), &["escaped a control character in a string"]);
    check(
        r#""{\"a\": \"True\"}""#,
        json!({"a": "True"}),
        &["unwrapped the arguments object from a JSON string"],
    );
    check(
        r#""{\"a\": True}""#,
        json!({"a": true}),
        &["unwrapped the arguments object from a JSON string", "replaced a Python literal by its JSON form"],
    );
    check(r#"{"a": 1, "a": 2}"#, json!({"a": 2}), &[]);
}

#[test]
fn arguments_that_end_inside_a_value_are_marked_cut_off() {
    let check = |text: &str, expected: Value, cut_off: bool| {
        let parsed = parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(Value::Object(parsed.object().clone()), expected, "{text:?}");
        assert_eq!(parsed.cut_off(), cut_off, "{text:?}");
        assert!(!parsed.repairs().is_empty(), "{text:?}");
    };
    check("{", json!({}), false);
    check(r#"{"a": "x""#, json!({"a": "x"}), false);
    check(r#"{"a": "x","#, json!({"a": "x"}), false);
    check(r#"{"a": {"b": 1}"#, json!({"a": {"b": 1}}), false);
    check(r#"{"a": "x"#, json!({"a": "x"}), true);
    check(r#"{"a": "x\"#, json!({"a": "x"}), true);
    check(r#"{"a": "x\u00"#, json!({"a": "x"}), true);
    check(r#"{"a": 12"#, json!({"a": 12}), true);
    check(r#"{"a": 1."#, json!({}), true);
    check(r#"{"a": tru"#, json!({}), true);
    check(r#"{"a": 1, "b"#, json!({"a": 1}), true);
    check(r#"{"a": 1, "b""#, json!({"a": 1}), true);
    check(r#"{"a": 1, "b":"#, json!({"a": 1}), true);
    check(r#"{"a": [1, -"#, json!({"a": [1]}), true);
}

#[test]
fn arguments_without_a_safe_repair_are_an_error_that_says_why() {
    let check = |text: &str, expected: &str| assert_eq!(parse(text).unwrap_err().to_string(), expected);
    check("[1]", "the arguments must be a JSON object; got an array; send {\"name\": value, ...}");
    check("[{\"a\": 1},", "the arguments must be a JSON object; got an array; send {\"name\": value, ...}");
    check(
        "{\u{a0}}",
        "the arguments are not valid JSON: expected a property name in double quotes at line 1 column 2, \
         near `{\u{a0}}`; send one JSON object",
    );
    check("null", "the arguments must be a JSON object; got null; send {\"name\": value, ...}");
    check("\"ls\"", "the arguments must be a JSON object; got a string; send {\"name\": value, ...}");
    check(
        "ls -la",
        "the arguments are not valid JSON: expected value at line 1 column 1, near `ls -la`; send one JSON object",
    );
    check(
        "{\"a\": 1\n \"b\": 2}",
        "the arguments are not valid JSON: expected `,` or a closing bracket at line 2 column 2, \
         near `{\"a\": 1\n \"b\": 2}`; send one JSON object",
    );
    check(
        r#"{"path": "C:\dir"}"#,
        "the arguments are not valid JSON: expected a JSON escape after the backslash (write `\\\\` for a backslash) \
         at line 1 column 14, near `{\"path\": \"C:\\dir\"}`; send one JSON object",
    );
    check(
        r#"{"a": [1}"#,
        "the arguments are not valid JSON: expected `]` before this character at line 1 column 9, near `{\"a\": [1}`; \
         send one JSON object",
    );
    check(
        r#"{"a": nope}"#,
        "the arguments are not valid JSON: expected ident at line 1 column 8, near `{\"a\": nope}`; \
         send one JSON object",
    );
}

#[test]
fn parse_rejects_arguments_over_the_size_or_depth_limit() {
    let limits = ArgumentLimits { bytes_max: 10, depth_max: 2 };
    let check = |text: &str, expected: &str| {
        assert_eq!(RawArguments::from_text(text).parse(&limits).unwrap_err().to_string(), expected);
    };
    check("{\"a\":12345}", "the arguments have 11 bytes; the limit is 10");
    check(
        "{\"a\":[[]]}",
        "the arguments nest too deep: more than 2 levels at line 1 column 7, near `{\"a\":[[]]}`",
    );
    assert!(RawArguments::from_text("{\"[[[\":[]}").parse(&limits).is_ok());
    assert!(RawArguments::from_text("{\"\\\"[[\":1}").parse(&limits).is_ok());
}

#[test]
fn arguments_with_a_million_brackets_fail_with_a_short_error() {
    for text in ["[".repeat(1_000_000), "{\"a\":".repeat(1_000_000), "x{'a':[".repeat(100_000)] {
        let error = parse(&text).unwrap_err();
        assert!(matches!(error, ArgumentsError::TooDeep { .. } | ArgumentsError::NotJson { .. }), "{error}");
        assert!(error.to_string().len() < 300);
    }
    let nested = format!("{{\"a\":{}{}}}", "[".repeat(100), "]".repeat(100));
    assert!(matches!(parse(&nested), Err(ArgumentsError::TooDeep { depth_max: 64, .. })));
}

#[test]
fn raw_arguments_preserve_the_original_text() {
    assert_eq!(RawArguments::from_text("{ 'a' : 1 }").as_text(), "{ 'a' : 1 }");
    assert_eq!(RawArguments::from_value(&json!({"a": 1})).as_text(), r#"{"a":1}"#);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // `serde_json` does not parse every float with more digits to the same bits.
        (-1_000_000_i32..1_000_000).prop_map(|n| Value::from(f64::from(n) / 64.0)),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((".{0,6}", inner), 0..5)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

fn any_object() -> impl Strategy<Value = Value> {
    prop::collection::vec((".{0,6}", any_json()), 0..6)
        .prop_map(|pairs| Value::Object(pairs.into_iter().collect()))
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

proptest! {
    #[test]
    fn valid_json_object_needs_no_repair(value in any_object()) {
        let parsed = RawArguments::from_value(&value).parse(&ArgumentLimits::default()).unwrap();
        prop_assert_eq!(parsed.repairs(), &[] as &[&str]);
        prop_assert_eq!(parsed.into_value(), value);
    }

    #[test]
    fn every_prefix_of_an_object_parses_after_repair(value in any_object(), part in 0.0..1.0_f64) {
        let text = serde_json::to_string_pretty(&value).unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "the numbers of this test are small")]
        let end = text.floor_char_boundary((text.len() as f64 * part) as usize);
        let parsed = parse(&text[..end]).unwrap();
        prop_assert!(!parsed.repairs().is_empty());
    }

    #[test]
    fn repairing_valid_json_changes_nothing(value in any_object()) {
        let text = serde_json::to_string_pretty(&value).unwrap();
        let Ok(mended) = repair::mend(&text, 0, NESTING_MAX) else { panic!("valid JSON is rejected: {text}") };
        prop_assert_eq!(serde_json::from_str::<Value>(&mended.text).unwrap(), value);
        prop_assert_eq!(mended.repairs, Vec::<&str>::new());
    }

    #[test]
    fn parsing_any_text_never_panics_and_errors_are_short(text in ".{0,200}") {
        match parse(&text) {
            Ok(parsed) => prop_assert_eq!(parsed.repairs().is_empty(), is_json(&text)),
            Err(error) => prop_assert!(error.to_string().len() < 600),
        }
    }

    #[test]
    fn parsing_json_like_text_never_panics_and_records_every_repair(text in r#"\{("a"|'b'|"\\'"|:|,|\[|\]|\{|\}|1|True|nul|"|'|\\|\n|\u{a0}| ){0,12}\}?"#) {
        if let Ok(parsed) = parse(&text) {
            prop_assert_eq!(parsed.repairs().is_empty(), is_json(&text), "repairs are recorded only for invalid JSON");
            let again = RawArguments::from_value(parsed.value()).parse(&ArgumentLimits::default()).unwrap();
            prop_assert_eq!(again.repairs(), &[] as &[&str]);
        }
    }
}
