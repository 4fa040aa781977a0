use super::*;

fn check(status: u16, body: &str, kind: ModelErrorKind, retry_ms: Option<u64>) {
    let error = decode(&ErrorHead::of_status(status), body.as_bytes());
    assert_eq!((error.kind, error.retry_after), (kind, retry_ms.map(Duration::from_millis)), "{body}");
    assert!(!error.message.is_empty());
}

#[test]
fn errors_of_all_providers_mean_the_same_things() {
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
fn the_longest_delay_counts() {
    let head = ErrorHead { status: 429, retry_after: Some("20"), retry_after_ms: Some("300") };
    let body = br#"{"error":{"message":"try again in 7s"}}"#;
    assert_eq!(decode(&head, body).retry_after, Some(Duration::from_secs(20)));
}

#[test]
fn a_key_in_an_error_is_not_repeated() {
    let body = br#"{"error":{"message":"Incorrect API key provided: sk-abcdefghijkl"}}"#;
    let error = decode(&ErrorHead::of_status(401), body);
    assert!(!error.to_string().contains("abcdef"), "{error}");
}
