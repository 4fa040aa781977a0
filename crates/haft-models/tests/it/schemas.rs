use haft_core::arguments::{ArgumentLimits, RawArguments};
use haft_core::validate::Schema;
use haft_model_server::schema_check;
use haft_models::schema::{DowngradedSchema, SchemaDialect, downgrade};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::fixture::tests_folder;

/// Checks a schema with the scripted server's own implementation of each language.
fn check_grammar(grammar: SchemaDialect, schema: &Value) {
    let judged = match grammar {
        SchemaDialect::Json => schema_check::SchemaUse::Tools,
        SchemaDialect::Anthropic => schema_check::SchemaUse::AnthropicTools,
        SchemaDialect::OpenaiStrict => schema_check::SchemaUse::OpenaiStrict,
        SchemaDialect::AnthropicOutput => schema_check::SchemaUse::AnthropicOutput,
        SchemaDialect::Gemini => schema_check::SchemaUse::Gemini,
        SchemaDialect::Ollama => schema_check::SchemaUse::Ollama,
    };
    if let Err(problem) = schema_check::judge(judged, schema) {
        panic!("{grammar:?}: {problem}\nin {schema}");
    }
}

/// Converts Gemini's `nullable` into a JSON Schema branch.
fn as_json_schema(schema: &Value) -> Value {
    match schema {
        Value::Object(object) => {
            let inner: Map<_, _> = object
                .iter()
                .filter(|(key, _)| *key != "nullable")
                .map(|(key, value)| (key.clone(), as_json_schema(value)))
                .collect();
            let nullable = object.get("nullable") == Some(&json!(true));
            if nullable { json!({"anyOf": [inner, {"type": "null"}]}) } else { Value::Object(inner) }
        }
        Value::Array(all) => all.iter().map(as_json_schema).collect(),
        other => other.clone(),
    }
}

/// Checks that arguments which are valid for the translated schema are also valid for the original, or that a loss was
/// reported and the validation error is clear.
fn check_acceptance(original: &Value, down: &DowngradedSchema, instance: &Value, what: &str) {
    let down_schema = as_json_schema(&down.schema);
    let Ok(told) = jsonschema::options().should_validate_formats(true).build(&down_schema) else {
        panic!("{what}: {down_schema} is not a valid schema");
    };
    if !told.is_valid(instance) {
        return;
    }
    let parsed = RawArguments::from_value(instance).parse(&ArgumentLimits::default()).unwrap();
    match Schema::compile(original).validate(parsed) {
        Ok(_) => {}
        Err(error) => {
            assert!(
                !down.losses.is_empty(),
                "{what}: the schema accepts {instance} without a noted loss: {}",
                down.schema
            );
            assert!(error.message.len() > 20, "{what}: {error}");
        }
    }
}

#[test]
fn downgraded_schemas_conform_to_each_provider_dialect() {
    let mut seen = 0;
    for entry in std::fs::read_dir(tests_folder().join("schemas")).unwrap() {
        let path = entry.unwrap().path();
        let schema: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for grammar in SchemaDialect::ALL {
            let down = downgrade(&schema, grammar);
            check_grammar(grammar, &down.schema);
            assert!(down.losses.iter().all(|loss| !loss.to_string().is_empty()));
            assert_eq!(down, downgrade(&schema, grammar), "the translation is deterministic");
        }
        seen += 1;
    }
    assert!(seen >= 20, "the directory has only {seen} schemas");
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({})),
        Just(json!(true)),
        Just(json!({"type": "string", "minLength": 1, "default": "x"})),
        Just(json!({"type": ["string", "null"]})),
        Just(json!({"type": ["integer", "boolean"]})),
        Just(json!({"const": "a"})),
        Just(json!({"const": 3})),
        Just(json!({"enum": ["a", "b", null]})),
        Just(json!({"type": "integer", "enum": [1, 2]})),
        Just(json!({"type": "number", "minimum": 0, "exclusiveMaximum": 2})),
        Just(json!({"type": "array"})),
        Just(json!({"type": "string", "format": "uri", "pattern": "^a"})),
        Just(json!({"$ref": "#/$defs/shared", "description": "here"})),
        Just(json!({"$ref": "#/$defs/loop"})),
        Just(json!({"not": {"type": "string"}})),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 24, 4, |inner| {
        let branches = proptest::collection::vec(inner.clone(), 1..3);
        let properties = proptest::collection::btree_map("[abc]", inner.clone(), 0..3);
        prop_oneof![
            (properties.clone(), branches.clone()).prop_map(|(properties, branches)| {
                json!({"type": ["object", "null"], "properties": properties, "anyOf": branches})
            }),
            branches.clone().prop_map(|branches| json!({"description": "d", "allOf": branches})),
            (properties, any::<bool>(), any::<bool>()).prop_map(|(properties, required, closed)| {
                let names: Vec<_> = properties.keys().filter(|_| required).cloned().collect();
                json!({"type": "object", "properties": properties, "required": names, "additionalProperties": !closed})
            }),
            inner.prop_map(|items| json!({"type": "array", "items": items})),
            branches.clone().prop_map(|branches| json!({"anyOf": branches})),
            branches.clone().prop_map(|branches| json!({"oneOf": branches})),
            branches.prop_map(|branches| json!({"allOf": branches})),
        ]
    })
}

fn tool() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map("[abc]", schema(), 0..3).prop_map(|properties| {
        json!({
            "type": "object",
            "properties": properties,
            "$defs": {
                "shared": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                "loop": {"type": "object", "properties": {"b": {"$ref": "#/$defs/loop"}}},
            },
        })
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!("a")),
        Just(json!("b")),
        Just(json!("")),
        Just(json!(1)),
        Just(json!(1.5)),
        Just(json!(3)),
        Just(json!(true)),
        Just(json!([])),
        Just(json!({})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            proptest::collection::btree_map("[abc]", inner, 0..3).prop_map(|object| json!(object)),
        ]
    })
}

fn arguments() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map("[abc]", value(), 0..3).prop_map(|object| json!(object))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn downgraded_schema_accepts_only_valid_arguments_or_notes_a_loss(tool in tool(), arguments in arguments()) {
        for grammar in SchemaDialect::ALL {
            let down = downgrade(&tool, grammar);
            check_grammar(grammar, &down.schema);
            check_acceptance(&tool, &down, &arguments, grammar.name());
        }
    }
}
