//! The example of the README, by the library and by the binary.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use haft_testkit::model_server::{ModelServer, Script};
use serde_json::{Value, json};

use crate::connection::post;

fn example() -> String {
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once("```jsonc\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

fn said(server: &ModelServer, messages: &Value) -> (u16, Value) {
    let tool = json!({ "type": "function", "function": { "name": "weather" } });
    let body = json!({ "model": "small", "messages": messages, "tools": [tool] });
    let came = post(server, "/v1/chat/completions", &body);
    (came.status, serde_json::from_str(&came.body()).unwrap())
}

#[test]
fn the_example_is_a_script_that_goes_as_it_says() {
    let server = ModelServer::start(Script::parse(&example()).unwrap()).unwrap();
    let mut messages = json!([{ "role": "user", "content": "How is the weather in Paris and Rome?" }]);
    assert_eq!(said(&server, &messages).0, 429);
    let calls = said(&server, &messages).1["choices"][0]["message"].clone();
    assert_eq!(calls["tool_calls"][1]["function"]["arguments"], "{\"city\":\"Rome\"}");
    let results = ["21", "25"].into_iter().zip(calls["tool_calls"].as_array().unwrap());
    let results =
        results.map(|(text, call)| json!({ "role": "tool", "tool_call_id": call["id"], "content": text }));
    messages.as_array_mut().unwrap().extend([calls.clone()].into_iter().chain(results));
    let (status, answer) = said(&server, &messages);
    assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, &json!("Rome is warmer.")));
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 80);
    let (_, other) = said(&server, &json!([{ "role": "user", "content": "Hello" }]));
    assert_eq!(other["choices"][0]["message"]["content"], "Ask me about the weather.");
}

#[test]
fn the_binary_serves_a_file_and_says_where() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("script.jsonc");
    std::fs::write(&file, example()).unwrap();
    let server = Command::new(env!("CARGO_BIN_EXE_model-server"))
        .arg("--script")
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut server = Running(server);
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://127.0.0.1:").map(|port| format!("127.0.0.1:{port}"));
    let mut connection = std::net::TcpStream::connect(address.unwrap()).unwrap();
    std::io::Write::write_all(&mut connection, b"GET /api/tags HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"model\":\"large\""), "{answer}");
}

/// Ends with its test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_script_that_is_none_is_refused_with_its_reason() {
    let check = |text: &str, words: &str| {
        let error = Script::parse(text).unwrap_err();
        assert!(error.contains(words), "{error}");
    };
    check("{", "not JSON");
    check("{}", "the script says nothing; give it `steps` or `conversations`");
    check("{ \"steps\": [{ \"sya\": [] }] }", "unknown field `sya`");
    check("{ \"steps\": [{ \"say\": [{ \"txt\": \"\" }] }] }", "unknown variant `txt`");
}
