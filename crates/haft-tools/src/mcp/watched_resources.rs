//! The resources whose changes clients of a gateway want to know about. A server without sessions reports changes only
//! on a stream whose request lists the resources. A server with a handshake forgets its subscriptions when it ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;

/// The maximum number of resources that are watched at one server. Each of them is part of the request for the stream.
const WATCHED_MAX: usize = 1_000;

/// The watched resources of one server, by URI.
#[derive(Debug, Default)]
pub(super) struct WatchedResources(watch::Sender<BTreeMap<String, WatchedResource>>);

#[derive(Debug, Clone, Copy)]
struct WatchedResource {
    /// The number of [`ResourceWatch`] values.
    watches: usize,
    state: WatchState,
}

/// The answer of the server to the request to watch a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchState {
    Requested,
    Confirmed,
    Refused,
}

/// Watches a resource until it is dropped.
#[derive(Debug)]
pub struct ResourceWatch {
    watched: Arc<WatchedResources>,
    uri: String,
}

impl Drop for ResourceWatch {
    fn drop(&mut self) {
        self.watched.0.send_if_modified(|resources| {
            let Some(resource) = resources.get_mut(&self.uri) else { return false };
            resource.watches -= 1;
            resource.watches == 0 && resources.remove(&self.uri).is_some()
        });
    }
}

impl WatchedResources {
    /// Watches a resource, if the limit allows it.
    pub(super) fn add(self: &Arc<Self>, uri: &str) -> Option<ResourceWatch> {
        let mut is_added = false;
        self.0.send_if_modified(|resources| {
            let is_new = !resources.contains_key(uri);
            is_added = !is_new || resources.len() < WATCHED_MAX;
            if is_added {
                let new = || WatchedResource { watches: 0, state: WatchState::Requested };
                resources.entry(uri.to_owned()).or_insert_with(new).watches += 1;
            }
            is_new && is_added
        });
        is_added.then(|| ResourceWatch { watched: Arc::clone(self), uri: uri.to_owned() })
    }

    pub(super) fn uris(&self) -> Vec<String> {
        self.0.borrow().keys().cloned().collect()
    }

    /// Returns true if the resource has several watches.
    pub(super) fn is_shared(&self, uri: &str) -> bool {
        self.0.borrow().get(uri).is_some_and(|resource| resource.watches > 1)
    }

    /// Waits until other resources are watched.
    pub(super) async fn changed_from(&self, uris: &[String]) {
        // The sender is never closed, because `self` owns it.
        let _ = self.0.subscribe().wait_for(|resources| !resources.keys().eq(uris)).await;
    }

    /// Waits until the server has confirmed or refused the resource. Returns true if the server has confirmed it.
    pub(super) async fn is_confirmed(&self, uri: &str) -> bool {
        let mut resources = self.0.subscribe();
        let state = |resources: &BTreeMap<String, WatchedResource>| {
            resources.get(uri).map_or(WatchState::Refused, |resource| resource.state)
        };
        let answered = resources.wait_for(|resources| state(resources) != WatchState::Requested).await;
        answered.is_ok_and(|resources| state(&resources) == WatchState::Confirmed)
    }

    /// Waits until the server has answered for all these resources.
    pub(super) async fn all_answered(&self, uris: &[String]) {
        for uri in uris {
            self.is_confirmed(uri).await;
        }
    }

    /// Notes that a new connection has no stream yet.
    pub(super) fn begin(&self) {
        self.set(|_, _| true, WatchState::Requested);
    }

    /// Reads the notification with which the server confirms a stream.
    pub(super) fn acknowledged(&self, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct AcknowledgedParams {
            notifications: AcknowledgedNotifications,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct AcknowledgedNotifications {
            #[serde(default)]
            resource_subscriptions: Vec<String>,
        }
        if let Some(params) = params
            && let Ok(params) = serde_json::from_str::<AcknowledgedParams>(params.get())
        {
            let confirmed = params.notifications.resource_subscriptions;
            self.set(|uri, _| confirmed.iter().any(|confirmed| confirmed == uri), WatchState::Confirmed);
        }
    }

    /// Notes that the server refused a stream with these resources.
    pub(super) fn refused(&self, uris: &[String]) {
        let is_open = |uri: &String, state| state == WatchState::Requested && uris.contains(uri);
        self.set(is_open, WatchState::Refused);
    }

    fn set(&self, is_meant: impl Fn(&String, WatchState) -> bool, state: WatchState) {
        self.0.send_if_modified(|resources| {
            let mut is_changed = false;
            for (uri, resource) in resources {
                if resource.state != state && is_meant(uri, resource.state) {
                    resource.state = state;
                    is_changed = true;
                }
            }
            is_changed
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.into()).unwrap()
    }

    #[tokio::test]
    async fn resource_is_watched_until_its_last_watch_is_dropped() {
        let watched = Arc::<WatchedResources>::default();
        let guards = [watched.add("a"), watched.add("a"), watched.add("b")];
        assert_eq!(watched.uris(), ["a", "b"]);
        assert!(watched.is_shared("a") && !watched.is_shared("b"));
        let [one, two, _other] = guards;
        drop(one);
        assert_eq!(watched.uris(), ["a", "b"]);
        assert!(watched.changed_from(&watched.uris()).now_or_never().is_none());
        drop(two);
        assert_eq!(watched.uris(), ["b"]);
        assert!(watched.changed_from(&["a".into(), "b".into()]).now_or_never().is_some());
    }

    #[tokio::test]
    async fn resource_is_confirmed_only_by_an_acknowledgement_that_lists_it() {
        let watched = Arc::<WatchedResources>::default();
        let _watches = [watched.add("a"), watched.add("b")];
        for odd in
            ["7", "{}", r#"{"notifications":{}}"#, r#"{"notifications":{"resourceSubscriptions":["b"]}}"#]
        {
            watched.acknowledged(Some(&raw(odd)));
            assert!(watched.is_confirmed("a").now_or_never().is_none(), "{odd}");
        }
        assert_eq!(watched.is_confirmed("b").now_or_never(), Some(true));
        watched.refused(&watched.uris());
        assert_eq!(watched.is_confirmed("a").now_or_never(), Some(false));
        assert_eq!(watched.is_confirmed("b").now_or_never(), Some(true), "the old stream has this resource");
        watched.begin();
        assert!(watched.is_confirmed("b").now_or_never().is_none(), "a new connection has no stream yet");
        assert_eq!(watched.is_confirmed("never watched").now_or_never(), Some(false));
    }

    #[test]
    fn number_of_watched_resources_is_limited() {
        let watched = Arc::<WatchedResources>::default();
        let guards: Vec<_> = (0..WATCHED_MAX).map(|number| watched.add(&number.to_string())).collect();
        assert!(guards.iter().all(Option::is_some));
        assert!(watched.add("one more").is_none());
        assert!(watched.add("0").is_some(), "the resource is already watched");
    }
}
