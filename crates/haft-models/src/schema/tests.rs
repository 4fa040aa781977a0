use serde_json::json;

use super::*;

/// Checks the translation of a tool's property `x`, and the keywords that were lost.
fn check(grammar: SchemaDialect, written: &Value, said: &Value, lost: &[&str]) {
    let tool = json!({"type": "object", "properties": {"x": written}, "required": ["x"]});
    let down = downgrade(&tool, grammar);
    assert_eq!(&down.schema["properties"]["x"], said, "{grammar:?}: {written}");
    let keywords: Vec<_> = down.losses.iter().map(|loss| loss.keyword.as_str()).collect();
    assert_eq!(keywords, lost, "{grammar:?}: {written}");
}

#[test]
fn schemas_are_translated_to_the_gemini_dialect() {
    for (written, said, lost) in [
        (json!({"type": ["string", "null"]}), json!({"type": "string", "nullable": true}), vec![]),
        (json!({"type": ["string", "integer"]}), json!({"type": "string"}), vec!["type"]),
        (json!({"const": "a"}), json!({"type": "string", "enum": ["a"]}), vec![]),
        (json!({"type": "array"}), json!({"type": "array", "items": {"type": "string"}}), vec!["items"]),
        (json!({"type": "string", "format": "uri"}), json!({"type": "string"}), vec!["format"]),
        (
            json!({"type": "string", "format": "date-time"}),
            json!({"type": "string", "format": "date-time"}),
            vec![],
        ),
        (
            json!({"type": "object", "additionalProperties": false}),
            json!({"type": "object"}),
            vec!["additionalProperties"],
        ),
        (json!({}), json!({"type": "string"}), vec!["type"]),
        (
            json!({"type": "integer", "enum": [1, 2]}),
            json!({"type": "integer", "description": "One of: [1,2]."}),
            vec!["enum"],
        ),
        (
            json!({"type": "integer", "default": 3}),
            json!({"type": "integer", "description": "Default: 3."}),
            vec![],
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            json!({"type": "string", "nullable": true}),
            vec![],
        ),
        (
            json!({"oneOf": [{"type": "string"}, {"type": "integer"}]}),
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            vec!["oneOf"],
        ),
        (json!({"type": "string", "$comment": "x", "examples": ["a"]}), json!({"type": "string"}), vec![]),
        (
            json!({"type": "number", "exclusiveMinimum": 0}),
            json!({"type": "number"}),
            vec!["exclusiveMinimum"],
        ),
    ] {
        check(SchemaDialect::Gemini, &written, &said, &lost);
    }
}

#[test]
fn any_of_has_no_sibling_keywords_for_gemini() {
    for (written, said, lost) in [
        (
            json!({"description": "d", "anyOf": [{"type": "string"}, {"type": "integer", "description": "own"}, {"type": "null"}]}),
            json!({"anyOf": [
                {"type": "string", "description": "d", "nullable": true},
                {"type": "integer", "description": "own", "nullable": true},
            ]}),
            vec![],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}}),
            vec!["required", "type", "required", "type", "anyOf"],
        ),
        (
            json!({"type": "object", "anyOf": [{"type": "object"}, {"type": "string"}]}),
            json!({"anyOf": [{"type": "object"}, {"type": "string"}]}),
            vec!["type"],
        ),
        (
            json!({"enum": ["a"], "anyOf": [{"type": "string"}, {"type": "integer"}]}),
            json!({"type": "string", "enum": ["a"]}),
            vec!["anyOf"],
        ),
    ] {
        check(SchemaDialect::Gemini, &written, &said, &lost);
    }
}

#[test]
fn all_of_branches_are_merged_into_one_schema() {
    let list =
        json!({"allOf": [{"description": "d"}, {"type": "object", "properties": {"a": {"type": "string"}}}]});
    let said = json!({"type": "object", "description": "d", "properties": {"a": {"type": "string"}}});
    check(SchemaDialect::Gemini, &list, &said, &[]);
    let nullable = json!({"allOf": [{"type": ["string", "null"]}]});
    check(SchemaDialect::Gemini, &nullable, &json!({"type": "string", "nullable": true}), &[]);
}

#[test]
fn strict_dialect_adds_missing_types_and_array_items() {
    let any = json!(["string", "number", "boolean"]);
    for (written, said, lost) in [
        (json!({}), json!({"type": any}), vec!["type"]),
        (json!({"type": "array"}), json!({"type": "array", "items": {"type": any}}), vec!["items"]),
        (json!({"enum": ["a", 1]}), json!({"type": ["number", "string"], "enum": ["a", 1]}), vec![]),
        (json!({"const": true}), json!({"type": "boolean", "enum": [true]}), vec![]),
    ] {
        check(SchemaDialect::OpenaiStrict, &written, &said, &lost);
    }
}

#[test]
fn json_dialect_adds_empty_items_to_untyped_arrays() {
    let written = json!({"type": "array", "default": [{"type": "array"}]});
    let said = json!({"type": "array", "items": {}, "default": [{"type": "array"}]});
    check(SchemaDialect::Json, &written, &said, &[]);
    let tuple = json!({"type": "array", "prefixItems": [{"type": "string"}]});
    check(SchemaDialect::Json, &tuple, &tuple, &[]);
}

#[test]
fn strict_objects_forbid_extra_properties_and_require_all() {
    let tool = json!({
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 1}, "c": {"enum": ["x"], "type": "string"}},
        "required": ["a"],
    });
    let down = downgrade(&tool, SchemaDialect::OpenaiStrict);
    assert_eq!(
        down.schema,
        json!({
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "b": {"type": ["integer", "null"], "description": "Default: 1."},
                "c": {"enum": ["x", null], "type": ["string", "null"]},
            },
            "required": ["a", "b", "c"],
            "additionalProperties": false,
        })
    );
    let at: Vec<_> = down.losses.iter().map(|loss| loss.at.as_str()).collect();
    assert_eq!(at, ["/properties/b", "/properties/c"]);
}

#[test]
fn keywords_beside_an_inlined_reference_take_precedence() {
    let tool = json!({
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/a%20b", "description": "mine"}},
        "$defs": {"a b": {"type": "string", "description": "theirs"}},
    });
    let down = downgrade(&tool, SchemaDialect::Gemini);
    assert_eq!(
        down.schema,
        json!({"type": "object", "properties": {"x": {"type": "string", "description": "mine"}}})
    );
    assert_eq!(down.losses, []);
}

#[test]
fn reference_at_the_schema_root_is_resolved() {
    let tool = json!({"$ref": "#/$defs/Args", "$defs": {"Args": {"type": "object", "properties": {"x": {"type": "string"}}}}});
    for grammar in SchemaDialect::ALL {
        assert!(downgrade(&tool, grammar).schema["properties"]["x"].is_object(), "{grammar:?}");
    }
}

#[test]
fn recursive_reference_is_cut_and_recorded_as_a_loss() {
    let tool = json!({
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}},
    });
    let down = downgrade(&tool, SchemaDialect::Gemini);
    let inner = &down.schema["properties"]["tree"]["properties"]["children"]["items"];
    assert_eq!(inner, &json!({"type": "object", "description": "the same shape again"}));
    assert_eq!(
        down.losses[0].to_string(),
        "/properties/tree/properties/children/items: `$ref`: the reference is recursive; haft does not expand it"
    );
}

#[test]
fn exponentially_growing_references_are_truncated() {
    let mut defs = serde_json::Map::new();
    for level in 0..30 {
        let next = format!("#/$defs/l{}", level + 1);
        defs.insert(
            format!("l{level}"),
            json!({"type": "object", "properties": {"a": {"$ref": next}, "b": {"$ref": next}}}),
        );
    }
    defs.insert("l30".into(), json!({"type": "string"}));
    let tool = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/l0"}}, "$defs": defs});
    let down = downgrade(&tool, SchemaDialect::Gemini);
    assert!(down.losses.iter().any(|loss| loss.why.contains("too deep")));
    assert!(down.schema.to_string().len() < 2_000_000);
}

#[test]
fn root_schema_is_always_an_object() {
    for grammar in SchemaDialect::ALL {
        for root in [
            json!({}),
            json!(true),
            json!(null),
            json!({"type": "string"}),
            json!({"anyOf": [{"type": "string"}]}),
        ] {
            let down = downgrade(&root, grammar);
            assert_eq!(down.schema["type"], "object", "{grammar:?}: {root}");
        }
        let branches = json!({"oneOf": [
            {"type": "object", "properties": {"a": {"type": "string"}, "c": {"type": "string"}}, "required": ["a", "c"]},
            {"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": "string"}}, "required": ["b", "c"]},
        ]});
        let down = downgrade(&branches, grammar);
        let names: Vec<_> = down.schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["a", "b", "c"], "{grammar:?}");
        assert!(down.losses.iter().any(|loss| loss.keyword == "oneOf"), "{grammar:?}");
    }
}
