use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use haft_core::event::NoEvents;
use haft_core::model_error::ModelErrorKind;
use haft_core::model_provider::ModelContext;
use haft_core::provider::Principal;
use haft_models::Delivery;
use haft_models::http::{Authorities, HttpProvider, HttpSettings, RetryPolicy, Timeouts};
use haft_models::prices::Prices;
use haft_models::providers::{ProviderRow, Wishes};
use haft_testkit::{Offer, SecureServer};

use super::asker::{asking, whole};

/// So many requests are answered only when all of them are there.
const TOGETHER: usize = 8;

fn provider(server: &SecureServer, authorities: Authorities) -> HttpProvider {
    let row = ProviderRow::named("compatible").unwrap();
    let wishes = Wishes { base_url: Some(server.url()), ..Wishes::default() };
    HttpProvider::new(HttpSettings {
        name: row.name.into(),
        endpoint: row.endpoint(wishes, &|_| None).unwrap(),
        authorities,
        delivery: Delivery::Streamed,
        timeouts: Timeouts { total: Duration::from_mins(1), ..Timeouts::default() },
        retry: RetryPolicy { attempts_max: 1, ..RetryPolicy::default() },
        prices: Prices::default(),
    })
    .unwrap()
}

fn trusting(server: &SecureServer) -> HttpProvider {
    let pem = std::fs::read(server.authority()).unwrap();
    provider(server, Authorities::from_pem(&pem).unwrap())
}

fn context() -> ModelContext {
    ModelContext::new("1", Principal::local(), Arc::new(NoEvents))
}

/// The version in which one request and then several at once came, and over how many connections.
async fn asked(offer: Offer) -> (Vec<String>, usize) {
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
async fn where_http_2_is_offered_requests_share_one_connection() {
    assert_eq!(asked(Offer::Http2).await, (vec!["HTTP/2.0".to_owned()], 1));
}

#[tokio::test]
async fn where_it_is_not_offered_each_request_under_way_has_its_own() {
    for offer in [Offer::Http1, Offer::Plain] {
        assert_eq!(asked(offer).await, (vec!["HTTP/1.1".to_owned()], TOGETHER), "{offer:?}");
    }
}

#[tokio::test]
async fn a_server_for_which_nobody_vouches_is_not_asked() {
    let server = SecureServer::start(Offer::Http2, 1);
    let stranger = provider(&server, Authorities::default());
    let error = whole(&stranger, asking("hi"), &context()).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unreachable);
    assert!(error.message.contains("certificate"), "{error}");
    assert_eq!(server.arrived(), []);
    for wrong in ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let pem = Authorities::from_pem(wrong.as_bytes());
        // Nonsense inside of the armour is noticed when it is used.
        assert!(pem.is_err() || wrong.contains("AAAA"), "{wrong}");
    }
}
