//! Tests of requests that are built from OpenAPI operations.
#![allow(clippy::needless_pass_by_value, reason = "tests pass JSON literals by value")]

use serde_json::{Value, json};

use super::super::body::{BodyField, BodyKind, BodyShape};
use super::super::parameter::{Explode, ParameterStyle};
use super::*;

fn parameter(name: &str, place: ParameterLocation, style: ParameterStyle) -> Parameter {
    Parameter {
        argument: name.into(),
        name: name.into(),
        place,
        style,
        explode: Explode::Yes,
        reserved: ReservedCharacters::Encoded,
    }
}

fn plan() -> OperationPlan {
    OperationPlan {
        method: Method::Put,
        base: Url::parse("https://api.example.com/v2/").unwrap(),
        path: vec![PathPiece::Text("/pets/".into()), PathPiece::Parameter(0)],
        parameters: vec![
            parameter("id", ParameterLocation::Path, ParameterStyle::Simple),
            parameter("tag", ParameterLocation::Query, ParameterStyle::Form),
            parameter("X-Trace", ParameterLocation::Header, ParameterStyle::Simple),
            parameter("sid", ParameterLocation::Cookie, ParameterStyle::Form),
        ],
        body: Some(BodyPlan {
            media_type: "application/json".into(),
            kind: BodyKind::Json,
            shape: BodyShape::Flat {
                fields: vec![BodyField {
                    name: "name".into(),
                    style: ParameterStyle::Form,
                    explode: Explode::Yes,
                    binary: false,
                }],
            },
        }),
        accept: None,
    }
}

fn made(arguments: Value) -> Result<RestRequest, ToolError> {
    plan().request(arguments.as_object().unwrap())
}

#[test]
fn arguments_are_sent_in_path_query_header_cookie_and_body() {
    let given = json!({"id": "a/b", "tag": ["x", "y z"], "X-Trace": "t", "sid": "1; admin=1", "name": "Rex"});
    let request = made(given).unwrap();
    assert_eq!(request.url.as_str(), "https://api.example.com/v2/pets/a%2Fb?tag=x&tag=y%20z");
    let headers: Vec<String> =
        request.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    assert_eq!(headers, ["x-trace: t", "cookie: sid=1%3B%20admin%3D1"]);
    assert_eq!(request.body.unwrap().bytes, br#"{"name":"Rex"}"#);
}

#[test]
fn missing_optional_arguments_are_not_sent() {
    let request = made(json!({"id": 7, "tag": null})).unwrap();
    assert_eq!(request.url.as_str(), "https://api.example.com/v2/pets/7");
    assert!(request.headers.is_empty());
    assert_eq!(request.body, None);
}

#[test]
fn path_traversal_and_header_injection_are_rejected() {
    let check = |arguments: Value, expected: &str| {
        let error = made(arguments.clone()).unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::InvalidArguments);
        assert!(error.message.contains(expected), "{arguments}: {}", error.message);
    };
    check(json!({}), "`id` is missing");
    check(json!({"id": null}), "`id` is missing");
    check(json!({"id": ""}), "must not be empty");
    check(json!({"id": ".."}), "`..`");
    check(json!({"id": "."}), "`.`");
    check(json!({"id": 1, "X-Trace": "a\r\nX-Evil: 1"}), "one line");
    check(json!({"id": 1, "X-Trace": "a\nb"}), "one line");
}

/// The URL standard treats more spellings than `..` between slashes as the parent directory.
#[test]
fn dot_segments_in_any_spelling_cannot_leave_the_base_path() {
    let base = Url::parse("https://api.example.com/v2/").unwrap();
    for path in
        ["/..", "/../x", "/x/%2e%2E/y", "/\\..\\..", "/x\\../y", "/.\t.", "/.\n./x", "/.%2e\r/x", "/."]
    {
        assert!(joined(&base, path).is_err(), "{path:?}");
    }
    for path in ["/x..", "/..x", "/...", "//evil.com/x", "@evil.com", "/a%5C..", "?a", "#a"] {
        let url = joined(&base, path).unwrap();
        assert_eq!(url.origin(), base.origin(), "{path:?}");
        assert!(url.path().starts_with("/v2"), "{path:?}: {url}");
    }
}
