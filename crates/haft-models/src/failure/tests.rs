use super::*;

fn check(status: u16, body: &str, kind: ModelErrorKind, retry_ms: Option<u64>) {
    let error = decode(&ErrorHead::of_status(status), body.as_bytes());
    assert_eq!((error.kind, error.retry_after), (kind, retry_ms.map(Duration::from_millis)), "{body}");
    assert!(!error.message.is_empty());
}

#[test]
fn errors_of_every_provider_map_to_error_kinds() {
    use ModelErrorKind as Kind;
    for (status, body, kind, retry_ms) in [
        (
            401,
            r#"{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}"#,
            Kind::Unauthorized,
            None,
        ),
        (
            429,
            r#"{"error":{"message":"Rate limit reached. Please try again in 1.5s.","type":"tokens","code":"rate_limit_exceeded"}}"#,
            Kind::RateLimited,
            Some(1500),
        ),
        (
            429,
            r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#,
            Kind::QuotaExhausted,
            None,
        ),
        (
            400,
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}"#,
            Kind::ContextTooLong,
            None,
        ),
        (
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Kind::Overloaded,
            None,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens"}}"#,
            Kind::ContextTooLong,
            None,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
            Kind::QuotaExhausted,
            None,
        ),
        (
            429,
            r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"slow down","details":[{"@type":"x/RetryInfo","retryDelay":"13s"}]}}"#,
            Kind::RateLimited,
            Some(13_000),
        ),
        (
            429,
            r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"slow","details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProject"}]}]}}"#,
            Kind::QuotaExhausted,
            None,
        ),
        (
            400,
            r#"[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]"#,
            Kind::Unauthorized,
            None,
        ),
        (
            400,
            r#"{"error":"registry.ollama.ai/library/gemma:2b does not support tools"}"#,
            Kind::ToolsUnsupported,
            None,
        ),
        (404, r#"{"error":"model 'nope' not found"}"#, Kind::UnknownModel, None),
        (
            404,
            r#"{"error":{"message":"No endpoints found that support tool use.","code":404}}"#,
            Kind::ToolsUnsupported,
            None,
        ),
        (402, r#"{"error":{"message":"Insufficient credits","code":402}}"#, Kind::QuotaExhausted, None),
        (422, r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#, Kind::InvalidRequest, None),
        (502, "<html>Bad Gateway</html>", Kind::ServerFailed, None),
        (503, "", Kind::Overloaded, None),
    ] {
        check(status, body, kind, retry_ms);
    }
}

#[test]
fn generic_error_type_does_not_override_the_http_status() {
    use ModelErrorKind as Kind;
    for (status, body, kind, retry_ms) in [
        (
            401,
            r#"{"error":{"message":"You didn't provide an API key.","type":"invalid_request_error","code":null}}"#,
            Kind::Unauthorized,
            None,
        ),
        (
            402,
            r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}"#,
            Kind::QuotaExhausted,
            None,
        ),
        (
            404,
            r#"{"error":{"message":"no such path","type":"invalid_request_error"}}"#,
            Kind::UnknownModel,
            None,
        ),
        (
            413,
            r#"{"error":{"message":"Request too large for model","type":"tokens","code":"rate_limit_exceeded"}}"#,
            Kind::RequestTooLarge,
            None,
        ),
        (
            400,
            r#"{"error":{"message":"think value is not supported","type":"api_error"}}"#,
            Kind::InvalidRequest,
            None,
        ),
        (
            400,
            r#"{"code":"Client specified an invalid argument","error":"Incorrect API key provided: x"}"#,
            Kind::Unauthorized,
            None,
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"API key expired.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
            Kind::Unauthorized,
            None,
        ),
    ] {
        check(status, body, kind, retry_ms);
    }
}

#[test]
fn quota_error_is_a_rate_limit_unless_the_quota_is_per_day() {
    use ModelErrorKind as Kind;
    for (status, body, kind, retry_ms) in [
        (
            429,
            r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota, please check your plan","details":[
                {"violations":[{"quotaId":"GenerateContentInputTokensPerModelPerMinute-FreeTier"}]},{"retryDelay":"26s"}]}}"#,
            Kind::RateLimited,
            Some(26_000),
        ),
        (
            429,
            r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota","details":[
                {"violations":[{"quotaId":"GenerateRequestsPerMinutePerProject"},{"quotaId":"GenerateRequestsPerDayPerProject"}]}]}}"#,
            Kind::QuotaExhausted,
            None,
        ),
    ] {
        check(status, body, kind, retry_ms);
    }
}

#[test]
fn tool_refusals_map_to_tools_unsupported() {
    use ModelErrorKind as Kind;
    for (status, body, kind, retry_ms) in [
        (
            400,
            r#"{"object":"error","message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set","type":"BadRequestError","code":400}"#,
            Kind::ToolsUnsupported,
            None,
        ),
        (
            500,
            r#"{"error":{"code":500,"message":"tools param requires --jinja flag","type":"server_error"}}"#,
            Kind::ToolsUnsupported,
            None,
        ),
        (
            400,
            r#"{"error":{"message":"deepseek-reasoner does not support Function Calling"}}"#,
            Kind::ToolsUnsupported,
            None,
        ),
        (
            400,
            r#"{"error":{"message":"Unsupported parameter: 'tools' is not supported with this model.","type":"invalid_request_error"}}"#,
            Kind::ToolsUnsupported,
            None,
        ),
    ] {
        check(status, body, kind, retry_ms);
    }
}

#[test]
fn error_inside_a_200_response_uses_the_status_in_its_body() {
    use ModelErrorKind as Kind;
    for (body, kind) in [
        (r#"{"error":{"code":402,"message":"add funds"}}"#, Kind::QuotaExhausted),
        (r#"{"error":{"code":503,"message":"try later","status":"UNAVAILABLE"}}"#, Kind::Overloaded),
        (r#"{"error":{"code":400,"message":"no"}}"#, Kind::InvalidRequest),
        (r#"{"type":"error","code":"rate_limit_exceeded","message":"slow"}"#, Kind::RateLimited),
        (r#"{"error":{"type":"invalid_request_error","message":"no"}}"#, Kind::InvalidRequest),
        (r#"{"error":{"code":7,"message":"odd"}}"#, Kind::ServerFailed),
        ("\"cut\"", Kind::ServerFailed),
    ] {
        assert_eq!(inside(&serde_json::from_str(body).unwrap()).kind, kind, "{body}");
    }
}

#[test]
fn error_message_includes_field_validation_details() {
    let body = br#"{"object":"error","message":[{"loc":["body","seed"],"msg":"Extra inputs are not permitted"}],"type":"invalid_request_error"}"#;
    let error = decode(&ErrorHead::of_status(422), body);
    assert!(error.message.contains("seed") && error.message.contains("not permitted"), "{error}");
    let body = br#"{"detail":[{"loc":["body","tools"],"msg":"field required"}]}"#;
    assert!(decode(&ErrorHead::of_status(422), body).message.contains("field required"));
}

#[test]
fn longest_retry_delay_in_a_response_is_used() {
    let head = ErrorHead { status: 429, retry_after: Some("20"), retry_after_ms: Some("300") };
    let body = br#"{"error":{"message":"try again in 7s"}}"#;
    assert_eq!(decode(&head, body).retry_after, Some(Duration::from_secs(20)));
}

#[test]
fn retry_after_ms_accepts_fractions_and_ignores_invalid_values() {
    let after = |ms| {
        let head = ErrorHead { status: 429, retry_after: None, retry_after_ms: Some(ms) };
        decode(&head, b"").retry_after
    };
    assert_eq!(after("1500"), Some(Duration::from_millis(1500)));
    assert_eq!(after("1500.5"), Some(Duration::from_micros(1_500_500)));
    assert_eq!((after("soon"), after("-1"), after("")), (None, None, None));
}

#[test]
fn api_key_in_an_error_is_redacted() {
    let body = br#"{"error":{"message":"Incorrect API key provided: sk-abcdefghijkl"}}"#;
    let error = decode(&ErrorHead::of_status(401), body);
    assert!(!error.to_string().contains("abcdef"), "{error}");
}
