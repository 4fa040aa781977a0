//! Tests of responses that the server cannot store.

use std::fs;
use std::path::PathBuf;

use haft_model_server::{ResponsePace, Script, ScriptStep};
use haft_store::api_keys::KeyScope;
use haft_testkit::eventually;
use reqwest::Method;
use serde_json::json;

use super::fixture::{TestServer, scoped_key};
use super::responses::{ask, events, post, text};

fn answering(pace: ResponsePace) -> TestServer {
    TestServer::start(Script::of([ScriptStep::text("Hello.").at_pace(pace)]))
}

/// A directory in which every write fails, also for root, because a file has replaced it.
struct BrokenDirectory {
    path: PathBuf,
    moved: PathBuf,
}

impl BrokenDirectory {
    fn of(server: &TestServer, name: &str) -> Self {
        let path = server.data().join(name).join("default");
        let moved = path.with_extension("moved");
        fs::create_dir_all(&path).unwrap();
        fs::rename(&path, &moved).unwrap();
        fs::write(&path, "").unwrap();
        Self { path, moved }
    }

    fn repair(self) {
        fs::remove_file(&self.path).unwrap();
        fs::rename(&self.moved, &self.path).unwrap();
    }
}

fn errors(server: &TestServer, store: &str) -> u64 {
    let admin = scoped_key(&server.store, &[KeyScope::Admin]);
    let metrics = server.send(server.without_key(Method::GET, "/metrics").bearer_auth(&admin)).text;
    let name = format!("haft_store_errors_total{{store=\"{store}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

#[test]
fn response_that_cannot_be_stored_says_so_and_is_counted() {
    let server = answering(ResponsePace::default());
    assert_eq!(errors(&server, "responses"), 0);
    let broken = BrokenDirectory::of(&server, "responses");
    let reply = post(&server, &json!({"model": "helper", "input": "Hi", "shiny": 1}));
    let response = reply.json();
    assert_eq!(
        (reply.status, text(&response), &response["store"]),
        (200, "Hello.", &json!(false)),
        "{reply:?}"
    );
    let warnings = reply.headers["haft-warnings"].to_str().unwrap();
    assert!(warnings.contains("could not store this response") && warnings.contains("`shiny`"), "{warnings}");
    let stream = post(&server, &json!({"model": "helper", "input": "Hi", "stream": true}));
    let (kind, data) = events(&stream).into_iter().rev().find(|(_, data)| data != "[DONE]").unwrap();
    let data: serde_json::Value = serde_json::from_str(&data).unwrap();
    assert_eq!((kind.as_str(), &data["response"]["store"]), ("response.completed", &json!(false)), "{data}");
    assert_eq!(errors(&server, "responses"), 2);
    broken.repair();
    let stored = ask(&server, &json!({"model": "helper", "input": "Hi"}));
    assert_eq!(stored["store"], true);
    assert_eq!(server.get(&format!("/v1/responses/{}", stored["id"].as_str().unwrap())).status, 200);
}

#[test]
fn background_response_that_cannot_be_stored_is_refused() {
    let server = answering(ResponsePace::default());
    let broken = BrokenDirectory::of(&server, "responses");
    let request = json!({"model": "helper", "input": "Hi", "background": true});
    let refused = post(&server, &request);
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (503, &json!("store_failed")),
        "{refused:?}"
    );
    assert_eq!(refused.headers["retry-after"], "60");
    assert!(!refused.text.contains(server.data().to_str().unwrap()), "{}", refused.text);
    assert_eq!(errors(&server, "responses"), 1);
    broken.repair();
    assert_eq!(post(&server, &request).status, 200);
}

#[test]
fn background_response_stays_in_progress_until_its_end_is_stored() {
    let server = answering(ResponsePace { first_byte_milliseconds: 500, ..ResponsePace::default() });
    let begun = ask(&server, &json!({"model": "helper", "input": "Hi", "background": true}));
    let broken = BrokenDirectory::of(&server, "responses");
    eventually("the end cannot be stored", || errors(&server, "responses") > 0);
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    assert_eq!(server.get(&path).json()["status"], "in_progress");
    broken.repair();
    eventually("the end is stored", || server.get(&path).json()["status"] == "completed");
    let stored = server.get(&path).json();
    assert_eq!((text(&stored), &stored["store"]), ("Hello.", &json!(true)));
}

#[test]
fn background_response_that_could_not_be_stored_is_stored_after_a_restart() {
    let mut server = answering(ResponsePace { first_byte_milliseconds: 500, ..ResponsePace::default() });
    let begun = ask(&server, &json!({"model": "helper", "input": "Hi", "background": true}));
    let broken = BrokenDirectory::of(&server, "responses");
    eventually("the end cannot be stored", || errors(&server, "responses") > 0);
    server.stop_and_wait();
    broken.repair();
    server.restart();
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    eventually("the end is stored", || server.get(&path).json()["status"] == "completed");
    assert_eq!(server.model.requests().len(), 1, "the model is not asked again");
}

#[test]
fn background_response_that_cannot_be_read_at_a_restart_is_continued_later() {
    let mut server = answering(ResponsePace { first_byte_milliseconds: 500, ..ResponsePace::default() });
    let begun = ask(&server, &json!({"model": "helper", "input": "Hi", "background": true}));
    server.stop_and_wait();
    let broken = BrokenDirectory::of(&server, "responses");
    server.restart();
    eventually("the response cannot be read", || errors(&server, "responses") > 0);
    broken.repair();
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    eventually("the response continues", || server.get(&path).json()["status"] == "completed");
    assert_eq!(text(&server.get(&path).json()), "Hello.");
}

#[test]
fn response_names_no_conversation_if_its_items_cannot_be_added_to_it() {
    let server = answering(ResponsePace::default());
    let created = server
        .send(
            server
                .request(Method::POST, "/v1/conversations")
                .header("content-type", "application/json")
                .body("{}"),
        )
        .json();
    let conversation = created["id"].as_str().unwrap();
    // The server can still read the conversation, but a directory in place of the lock file prevents every change.
    let lock = server.data().join("conversations/default").join(format!("{conversation}.lock"));
    let _ = fs::remove_file(&lock);
    fs::create_dir(lock).unwrap();
    let reply = post(&server, &json!({"model": "helper", "input": "Hi", "conversation": conversation}));
    let response = reply.json();
    assert_eq!((&response["conversation"], &response["store"]), (&json!(null), &json!(true)), "{response}");
    assert!(reply.headers["haft-warnings"].to_str().unwrap().contains("conversation"), "{reply:?}");
    assert_eq!(errors(&server, "conversations"), 1);
    let stored = server.get(&format!("/v1/responses/{}", response["id"].as_str().unwrap())).json();
    assert_eq!(stored["conversation"], json!(null), "{stored}");
}
