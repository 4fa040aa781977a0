use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::signing_key::tests::verified;
use super::*;

fn authorizer(directory: &tempfile::TempDir, server: &str) -> Authorizer {
    let server = Url::parse(server).unwrap();
    let file = TokenFile::new(directory.path(), "docs", &server);
    Authorizer::new("docs", &server, OauthConfig::default(), file, None).unwrap()
}

fn bound_token() -> AccessToken {
    AccessToken { secret: "token".into(), dpop: Some(DpopKey::generate().unwrap()) }
}

#[test]
fn dpop_proof_names_the_method_url_and_token_of_its_request() {
    let directory = tempfile::tempdir().unwrap();
    let auth = authorizer(&directory, "https://h/mcp");
    let token = bound_token();
    let claims = |method: Method, url: &str| {
        let mut request = Request::new(method, Url::parse(url).unwrap());
        auth.authorize(&mut request, &token).unwrap();
        assert_eq!(request.headers()[AUTHORIZATION], "DPoP token");
        let proof = request.headers()[dpop::PROOF_HEADER].to_str().unwrap();
        verified(proof, &token.dpop.as_ref().unwrap().0.public_jwk()).1
    };
    let (post, get) = (claims(Method::POST, "https://h/mcp"), claims(Method::GET, "https://h/other"));
    assert_eq!((&post["htm"], &post["htu"]), (&json!("POST"), &json!("https://h/mcp")));
    assert_eq!((&get["htm"], &get["htu"]), (&json!("GET"), &json!("https://h/other")));
    // SHA-256 of `token`.
    assert_eq!(post["ath"], "PEaenWxYddN6Q_NT1PiOYfz4EsZu7jRXRlpAsNpBU-A");
    assert_ne!(post["jti"], get["jti"]);
    assert!(now().abs_diff(post["iat"].as_u64().unwrap()) < 60, "{post}");
}

#[test]
fn concurrent_requests_are_all_repeated_with_a_new_dpop_nonce() {
    let directory = tempfile::tempdir().unwrap();
    let auth = authorizer(&directory, "https://h/mcp");
    let token = bound_token();
    let sent = || {
        let mut request = Request::new(Method::POST, Url::parse("https://h/mcp").unwrap());
        let nonce = auth.authorize(&mut request, &token).unwrap();
        let proof = request.headers()[dpop::PROOF_HEADER].to_str().unwrap();
        let (_, claims) = verified(proof, &token.dpop.as_ref().unwrap().0.public_jwk());
        assert_eq!(claims["nonce"].as_str(), nonce.as_deref());
        nonce
    };
    let demanded = Challenge { error: Some(dpop::NONCE_REQUIRED.into()), ..Challenge::default() };
    let is_repeated = |new: &str, challenge: Option<&Challenge>, sent: Option<&str>| {
        let headers = [("dpop-nonce".parse().unwrap(), new.parse().unwrap())];
        auth.keep_nonce(&HeaderMap::from_iter(headers), challenge, sent)
    };
    let (first, second) = (sent(), sent());
    assert!(is_repeated("n1", Some(&demanded), first.as_deref()));
    assert!(is_repeated("n1", Some(&demanded), second.as_deref()));
    let repeated = sent();
    assert_eq!(repeated.as_deref(), Some("n1"));
    // Without this limit, a server that rejects its own nonce would cause a loop.
    assert!(!is_repeated("n1", Some(&demanded), repeated.as_deref()));
    assert!(!is_repeated("n2", None, repeated.as_deref()));
    assert_eq!(sent().as_deref(), Some("n2"));
}

#[tokio::test]
async fn identity_provider_of_a_public_server_may_be_in_a_private_network() {
    let directory = tempfile::tempdir().unwrap();
    let auth = authorizer(&directory, "https://mcp.example.com/mcp");
    let client = PreregisteredClient { id: "me".into(), secret: None, key: None };
    let provider = IdentityProvider { issuer: identity_provider().await, client };
    let issuer =
        json!({"issuer": "https://as.example.com", "token_endpoint": "https://as.example.com/token"});
    let found = OauthDiscovery {
        resource: "https://mcp.example.com/mcp".into(),
        scopes: Vec::new(),
        issuer: serde_json::from_value(issuer).unwrap(),
        binds_tokens: false,
    };
    let grant = auth.exchange_id_token(&"id".into(), &provider, &found, &[]).await.unwrap();
    assert_eq!(grant.expose_secret(), "grant");
    // An MCP server with a public address still cannot use an authorization server in a private network.
    assert!(discovery::authorization_server(&auth.http, &auth.server, &provider.issuer).await.is_err());
}

/// Starts an identity provider on this machine and returns its issuer.
async fn identity_provider() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}", listener.local_addr().unwrap());
    let metadata = json!({"issuer": issuer, "token_endpoint": format!("{issuer}/token")});
    let grant = json!({"access_token": "grant", "issued_token_type": endpoint_requests::TOKEN_TYPE_ID_JAG});
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let request = request_text(&mut stream).await;
            answer(&mut stream, if request.starts_with("GET ") { &metadata } else { &grant }).await;
        }
    });
    issuer
}

async fn request_text(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        stream.read_buf(&mut bytes).await.unwrap();
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return String::from_utf8(bytes).unwrap();
        }
    }
}

async fn answer(stream: &mut TcpStream, body: &Value) {
    let body = body.to_string();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
}
