use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use haft_core::event::NoEvents;
use haft_core::model_error::ModelErrorKind;
use haft_core::model_provider::ModelContext;
use haft_core::provider::Principal;
use haft_models::ReplyDelivery;
use haft_models::http::{
    CertificateAuthorities, ClientPool, HttpProvider, HttpSettings, ModelTimeouts, RetryPolicy,
};
use haft_models::prices::Prices;
use haft_models::providers::{ProviderOverrides, ProviderRow};
use haft_testkit::{OfferedProtocols, SecureServer, eventually};

use super::client::{asking, whole};

/// The number of requests that must be in progress before the server answers any of them.
const TOGETHER: usize = 8;

fn provider(server: &SecureServer, authorities: CertificateAuthorities) -> HttpProvider {
    let timeouts = ModelTimeouts { total: Duration::from_mins(1), ..ModelTimeouts::default() };
    let retry = RetryPolicy { attempts_max: 1, ..RetryPolicy::default() };
    provider_with(server, authorities, timeouts, retry)
}

fn provider_with(
    server: &SecureServer,
    authorities: CertificateAuthorities,
    timeouts: ModelTimeouts,
    retry: RetryPolicy,
) -> HttpProvider {
    HttpProvider::new(settings(server, authorities, timeouts, retry)).unwrap()
}

fn settings(
    server: &SecureServer,
    authorities: CertificateAuthorities,
    timeouts: ModelTimeouts,
    retry: RetryPolicy,
) -> HttpSettings {
    let row = ProviderRow::named("compatible").unwrap();
    let wishes = ProviderOverrides { base_url: Some(server.url()), ..ProviderOverrides::default() };
    HttpSettings {
        name: row.name.into(),
        endpoint: row.endpoint(wishes, &|_| None).unwrap(),
        authorities,
        delivery: ReplyDelivery::Streamed,
        timeouts,
        retry,
        prices: Prices::default(),
    }
}

fn authority(server: &SecureServer) -> CertificateAuthorities {
    CertificateAuthorities::from_pem(&std::fs::read(server.authority()).unwrap()).unwrap()
}

fn trusting(server: &SecureServer) -> HttpProvider {
    provider(server, authority(server))
}

fn context() -> ModelContext {
    ModelContext::new("1", Principal::local(), Arc::new(NoEvents))
}

/// Sends one request and then several at once. Returns their HTTP versions and the number of connections.
async fn asked(offer: OfferedProtocols) -> (Vec<String>, usize) {
    let server = SecureServer::start(offer, TOGETHER);
    let provider = trusting(&server);
    let (provider, cx) = (&provider, context());
    assert_eq!(whole(provider, asking("hi"), &cx).await.unwrap().text(), "safe");
    let replies = join_all((0..TOGETHER).map(|_| whole(provider, asking("hi"), &cx))).await;
    assert!(replies.into_iter().all(|reply| reply.is_ok_and(|reply| reply.text() == "safe")));
    let arrived = server.arrived();
    assert_eq!(arrived.len(), TOGETHER + 1);
    let mut versions: Vec<_> = arrived.iter().map(|request| format!("{:?}", request.version)).collect();
    let mut connections: Vec<_> = arrived.iter().map(|request| request.connection).collect();
    versions.dedup();
    connections.sort_unstable();
    connections.dedup();
    (versions, connections.len())
}

#[tokio::test]
async fn concurrent_http2_requests_share_one_connection() {
    assert_eq!(asked(OfferedProtocols::Http2).await, (vec!["HTTP/2.0".to_owned()], 1));
}

#[tokio::test]
async fn concurrent_http1_requests_use_separate_connections() {
    for offer in [OfferedProtocols::Http1, OfferedProtocols::Plain] {
        assert_eq!(asked(offer).await, (vec!["HTTP/1.1".to_owned()], TOGETHER), "{offer:?}");
    }
}

/// Sends one request through each of two providers that share a connection pool. Returns the number of connections that
/// the server saw.
async fn connections_of_two(offer: OfferedProtocols, connect: [Duration; 2]) -> usize {
    let server = SecureServer::start(offer, 1);
    let pool = ClientPool::default();
    let mut providers = Vec::new();
    for connect in connect {
        let authorities = if offer == OfferedProtocols::Plain {
            CertificateAuthorities::default()
        } else {
            authority(&server)
        };
        let timeouts = ModelTimeouts { connect, ..ModelTimeouts::default() };
        let settings = settings(&server, authorities, timeouts, RetryPolicy::NEVER);
        let provider = HttpProvider::sharing(settings, &pool).unwrap();
        assert_eq!(whole(&provider, asking("hi"), &context()).await.unwrap().text(), "safe");
        providers.push(provider);
    }
    let connections: HashSet<usize> = server.arrived().iter().map(|request| request.connection).collect();
    connections.len()
}

#[tokio::test]
async fn pooled_providers_share_connections_if_timeouts_and_cas_match() {
    let (short, long) = (Duration::from_secs(5), Duration::from_secs(10));
    assert_eq!(connections_of_two(OfferedProtocols::Plain, [long, long]).await, 1);
    assert_eq!(connections_of_two(OfferedProtocols::Plain, [long, short]).await, 2);
    assert_eq!(connections_of_two(OfferedProtocols::Http2, [long, long]).await, 2, "each has its own CA");
}

#[tokio::test]
async fn server_with_an_untrusted_certificate_receives_no_request() {
    let server = SecureServer::start(OfferedProtocols::Http2, 1);
    let stranger = provider(&server, CertificateAuthorities::default());
    let error = whole(&stranger, asking("hi"), &context()).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unreachable);
    assert!(error.message.contains("certificate"), "{error}");
    assert_eq!(server.arrived(), []);
    for wrong in ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let pem = CertificateAuthorities::from_pem(wrong.as_bytes());
        // Invalid content in a valid PEM frame is reported only when the certificate is used.
        assert!(pem.is_err() || wrong.contains("AAAA"), "{wrong}");
    }
}

// This test needs its own threads: waiting for the server blocks this thread, and the request must be cancelled at the
// same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_http2_request_is_cancelled_and_its_connection_reused() {
    let server = SecureServer::start(OfferedProtocols::Http2, 2);
    let (provider, cx) = (trusting(&server), context());
    whole(&provider, asking("hi"), &cx).await.unwrap();
    let arrived = async {
        while server.arrived().len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        _ = whole(&provider, asking("hi"), &cx) => panic!("the server answered before a second request arrived"),
        () = arrived => {}
    }
    eventually("the server sees that the client abandoned the request", || server.abandoned() == 1);
    // Together with the cancelled request there are now two requests, so the server answers.
    assert_eq!(whole(&provider, asking("hi"), &cx).await.unwrap().text(), "safe");
    assert!(server.arrived().iter().all(|request| request.connection == 0), "{:?}", server.arrived());
}

#[tokio::test]
async fn dead_http2_connection_is_replaced_after_a_failed_ping() {
    let server = SecureServer::start(OfferedProtocols::Http2, 1);
    let soon = Duration::from_secs(2);
    let timeouts = ModelTimeouts { ping_after: soon, pong_within: soon, ..ModelTimeouts::default() };
    let retry = RetryPolicy { delay_first: Duration::from_millis(1), ..RetryPolicy::default() };
    let provider = provider_with(&server, authority(&server), timeouts, retry);
    whole(&provider, asking("hi"), &context()).await.unwrap();
    server.freeze();
    assert_eq!(whole(&provider, asking("hi"), &context()).await.unwrap().text(), "safe");
    let connections: Vec<_> = server.arrived().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 1]);
}
