//! Tests of the worker over a real socket pair: every tool, malformed requests, and the end of the stream.

use std::io::{Read, Write};
use std::net::Shutdown;

use super::fixture::FileFixture;
use super::*;
use crate::frame::{FRAME_HEADER_BYTES, body_bytes, decode, encode};

fn connect() -> (UnixStream, std::thread::JoinHandle<Result<(), FrameError>>) {
    let (client, worker) = UnixStream::pair().unwrap();
    (client, std::thread::spawn(move || serve(worker)))
}

fn receive(client: &mut UnixStream) -> FileReply {
    let mut header = [0; FRAME_HEADER_BYTES];
    client.read_exact(&mut header).unwrap();
    let mut body = vec![0; body_bytes(header).unwrap()];
    client.read_exact(&mut body).unwrap();
    decode(&body).unwrap()
}

fn ask(client: &mut UnixStream, request: &FileRequest) -> FileReply {
    client.write_all(&encode(request).unwrap()).unwrap();
    receive(client)
}

#[test]
fn worker_serves_every_file_tool_until_the_stream_ends() {
    let fixture = FileFixture::new();
    let path = fixture.path("f");
    let (mut client, worker) = connect();
    let requests = [
        FileRequest::Write { path: path.clone(), content: "a a".into() },
        FileRequest::Edit {
            path: path.clone(),
            old_string: "a".into(),
            new_string: "b".into(),
            replace_all: true,
        },
        FileRequest::Read { path: path.clone(), offset: None, limit: None, bytes_max: 100 },
        FileRequest::Introspect { path: fixture.path("."), level: IntrospectLevel::All },
    ];
    let replies = requests.map(|request| ask(&mut client, &request).unwrap().text);
    assert_eq!(replies[0], format!("Wrote 3 bytes to {path}"));
    assert_eq!(replies[1], format!("Edited {path} (2 occurrence(s) of pattern, replaced all)"));
    assert_eq!(replies[2], "b b");
    assert_eq!(replies[3], "<codebase>\n<file path=\"f\">\nb b\n</file>\n</codebase>\n");
    drop(client);
    assert!(worker.join().unwrap().is_ok());
}

#[test]
fn worker_answers_a_malformed_request_with_an_error_and_continues() {
    let fixture = FileFixture::new();
    let path = fixture.file("f", "text");
    let (mut client, worker) = connect();
    for malformed in [b"{".as_slice(), b"", b"{\"delete\":{}}", b"\xff\xff"] {
        let length = u32::try_from(malformed.len()).unwrap().to_le_bytes();
        client.write_all(&[&length, malformed].concat()).unwrap();
        let error = receive(&mut client).unwrap_err();
        assert!(error.message.contains("could not parse the request"), "{}", error.message);
    }
    let request = FileRequest::Read { path, offset: None, limit: None, bytes_max: 100 };
    assert_eq!(ask(&mut client, &request), Ok("text".to_owned().into()));
    drop(client);
    assert!(worker.join().unwrap().is_ok());
}

#[test]
fn stream_ending_inside_a_frame_stops_the_worker() {
    let (mut client, worker) = connect();
    client.write_all(&[9, 0, 0, 0, b'{']).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(matches!(worker.join().unwrap(), Err(FrameError::Stream(_))));
}

#[test]
fn large_file_is_written_through_the_stream() {
    let fixture = FileFixture::new();
    let content = "line of text\n".repeat(4 * 1024 * 1024);
    let (mut client, worker) = connect();
    let request = FileRequest::Write { path: fixture.path("f"), content: content.clone() };
    assert!(ask(&mut client, &request).is_ok());
    assert!(fixture.content("f") == content);
    drop(client);
    assert!(worker.join().unwrap().is_ok());
}
