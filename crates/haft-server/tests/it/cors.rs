//! Tests of CORS, which lets web pages of other sites use the APIs.

use haft_model_server::{Script, ScriptStep};
use reqwest::Method;

use super::fixture::{Reply, ServerOptions, TestServer};

const PAGE: &str = "https://console.example.com";

fn server(origins: &[&str]) -> TestServer {
    let allowed_origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
    let options = ServerOptions { allowed_origins, ..ServerOptions::default() };
    TestServer::with_options(Script::of([ScriptStep::text("Hello.")]), options)
}

fn preflight(server: &TestServer, path: &str, origin: &str) -> Reply {
    let request = server.without_key(Method::OPTIONS, path).header("origin", origin);
    let request = request.header("access-control-request-method", "POST");
    server.send(request.header("access-control-request-headers", "authorization,x-stainless-lang"))
}

fn cors(reply: &Reply) -> Vec<String> {
    let names = reply.headers.keys().map(|name| name.as_str().to_owned());
    names.filter(|name| name.starts_with("access-control-")).collect()
}

#[test]
fn page_of_an_allowed_origin_can_use_the_apis() {
    let server = server(&[PAGE]);
    for path in ["/v1/responses", "/api/v1/runs", "/mcp"] {
        let reply = preflight(&server, path, PAGE);
        assert_eq!((reply.status, reply.text.as_str()), (204, ""), "{path}: {reply:?}");
        assert_eq!(reply.headers["access-control-allow-origin"], PAGE, "{path}");
        assert_eq!(reply.headers["access-control-allow-headers"], "authorization,x-stainless-lang", "{path}");
        assert_eq!(reply.headers["access-control-allow-methods"], "GET, POST, PUT, DELETE", "{path}");
        assert_eq!(reply.headers["vary"], "origin", "{path}");
        assert!(!reply.headers.contains_key("access-control-allow-credentials"), "{path}");
    }
    let models = server.send(server.request(Method::GET, "/v1/models").header("origin", PAGE));
    assert_eq!(
        (models.status, &models.headers["access-control-allow-origin"]),
        (200, &PAGE.parse().unwrap())
    );
    let exposed = models.headers["access-control-expose-headers"].to_str().unwrap();
    assert!(exposed.contains("x-request-id") && exposed.contains("haft-warnings"), "{exposed}");
    let without_key = server.send(server.without_key(Method::GET, "/v1/models").header("origin", PAGE));
    assert_eq!(without_key.status, 401, "the page still needs a key");
    assert_eq!(without_key.headers["access-control-allow-origin"], PAGE, "and can read the error");
}

#[test]
fn pages_of_other_origins_get_no_cors_headers() {
    let server = server(&[PAGE]);
    let foreign = preflight(&server, "/v1/responses", "https://evil.com");
    assert_eq!((foreign.status, cors(&foreign)), (403, Vec::new()));
    assert_eq!(cors(&preflight(&server, "/metrics", PAGE)), Vec::<String>::new(), "only the APIs have CORS");
    let other_host = server.without_key(Method::OPTIONS, "/v1/responses").header("origin", PAGE);
    let other_host = other_host.header("access-control-request-method", "POST").header("host", "evil.com");
    let other_host = server.send(other_host);
    assert_eq!((other_host.status, cors(&other_host)), (421, Vec::new()));
}

#[test]
fn cors_is_off_without_allowed_origins() {
    let server = server(&[]);
    let reply = preflight(&server, "/v1/responses", PAGE);
    assert_eq!((reply.status, cors(&reply)), (403, Vec::new()));
    let same = server.send(server.request(Method::GET, "/v1/models").header("origin", server.url.clone()));
    assert_eq!((same.status, cors(&same)), (200, Vec::new()));
    assert!(!same.headers.contains_key("vary"), "{same:?}");
}
