//! Questions of upstream servers that ask a user to open a URL. In revisions with a handshake, each has an id, by which
//! the server later reports its end. The revision without sessions has no such ids.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::object::RawObject;

/// The member with the id of a question.
const ID: &str = "elicitationId";

/// The maximum number of questions that haft remembers for one client until the server reports their end. If there are
/// more, haft forgets the oldest.
const AWAITED_MAX: usize = 256;

/// The questions that one client received and whose end the server has not reported yet.
#[derive(Debug, Default)]
pub(super) struct AwaitedUrls(Mutex<VecDeque<AwaitedUrl>>);

#[derive(Debug, PartialEq, Eq)]
struct AwaitedUrl {
    server: String,
    id: String,
}

impl AwaitedUrls {
    pub(super) fn add(&self, server: &str, id: String) {
        let added = AwaitedUrl { server: server.to_owned(), id };
        let mut awaited = self.lock();
        awaited.retain(|other| *other != added);
        awaited.push_back(added);
        if awaited.len() > AWAITED_MAX {
            awaited.pop_front();
        }
    }

    /// Adds the questions in an error that lists them, with the code -32042.
    pub(super) fn add_listed(&self, server: &str, data: Option<&Value>) {
        let listed = data.and_then(|data| data["elicitations"].as_array());
        for question in listed.into_iter().flatten().take(AWAITED_MAX) {
            if let Some(id) = question[ID].as_str() {
                self.add(server, id.to_owned());
            }
        }
    }

    /// Ends a question. Returns true if the client received a question with this id from this server.
    pub(super) fn end(&self, server: &str, id: &str) -> bool {
        let mut awaited = self.lock();
        let before = awaited.len();
        awaited.retain(|other| other.server != server || other.id != id);
        awaited.len() < before
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<AwaitedUrl>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that asks for a URL to be opened, with an id.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IdentifiedUrl {
    /// The id that the server gave; `None` if it gave none and the question has a new id.
    pub(super) of_server: Option<String>,
    /// The parameters as JSON.
    pub(super) params: String,
}

/// Adds an id to a question about a URL, because clients with a handshake refuse a question without one. Returns `None`
/// for other questions.
pub(super) fn with_id(params: &str) -> Option<IdentifiedUrl> {
    let mut object = RawObject::of(params)?;
    if object.get("mode") != Some("\"url\"") {
        return None;
    }
    let of_server: Option<String> = object.get(ID).and_then(|id| serde_json::from_str(id).ok());
    if of_server.is_none() {
        object.set(ID, Value::from(uuid::Uuid::new_v4().to_string()).to_string());
    }
    Some(IdentifiedUrl { of_server, params: object.to_string() })
}

/// Removes the id from a question about a URL, because the revision without sessions does not define it.
pub(super) fn without_id(mut params: Value) -> Value {
    if params["mode"] == "url"
        && let Some(members) = params.as_object_mut()
    {
        members.remove(ID);
    }
    params
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn question_about_a_url_has_an_id_only_in_revisions_with_a_handshake() {
        let own = r#"{"mode":"url","url":"https://a.example","elicitationId":"e","x":1.0}"#;
        let kept = IdentifiedUrl { of_server: Some("e".into()), params: own.into() };
        assert_eq!(with_id(own), Some(kept));
        let added = with_id(r#"{"mode":"url","url":"https://a.example"}"#).unwrap();
        assert_eq!(added.of_server, None);
        let added: Value = serde_json::from_str(&added.params).unwrap();
        assert!(!added["elicitationId"].as_str().unwrap().is_empty(), "{added}");
        assert_eq!(without_id(added), json!({"mode": "url", "url": "https://a.example"}));
        for other in ["{}", "7", r#"{"mode":"form","elicitationId":"e"}"#] {
            assert_eq!(with_id(other), None, "{other}");
        }
        let form = json!({"mode": "form", "elicitationId": "e"});
        assert_eq!(without_id(form.clone()), form);
    }

    #[test]
    fn end_of_a_question_concerns_only_the_client_and_the_server_that_asked() {
        let (asked, other) = (AwaitedUrls::default(), AwaitedUrls::default());
        asked.add("up", "e".into());
        asked.add_listed("up", Some(&json!({"elicitations": [{"elicitationId": "f"}, {}, 7]})));
        assert!(!other.end("up", "e"), "another client");
        assert!(!asked.end("down", "e"), "another server");
        assert_eq!(["e", "f", "e"].map(|id| asked.end("up", id)), [true, true, false]);
        for number in 0..=AWAITED_MAX {
            asked.add("up", number.to_string());
        }
        assert_eq!(["0", "1"].map(|id| asked.end("up", id)), [false, true]);
    }
}
