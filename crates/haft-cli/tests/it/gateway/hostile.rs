//! Tests with clients and upstream servers that misbehave.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haft_testkit::{TestTree, eventually, unique_marker};
use serde_json::json;

use super::http::{GatewayReply, GatewayServer, request};
use super::{McpClient, configure, place, text};

#[test]
fn connection_continues_after_an_error_reply_to_a_malformed_message() {
    let place = place();
    configure(&place, &[], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let check = |client: &mut McpClient, line: &str, code: i64| {
        client.line(line);
        let reply = client.receive();
        assert_eq!(reply["error"]["code"], code, "{line:.60}: {reply}");
    };
    check(&mut client, "garbage", -32_700);
    check(&mut client, "[]", -32_600);
    check(&mut client, "{\"id\": 1, \"method\": \"ping\"}", -32_600);
    check(&mut client, &"[".repeat(200_000), -32_600);
    check(&mut client, &"{\"a\":".repeat(200_000), -32_700);
    check(&mut client, r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":[]}"#, -32_602);
    check(&mut client, r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":7}}"#, -32_602);
    check(&mut client, r#"{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{"cursor":"*"}}"#, -32_602);
    check(&mut client, r#"{"jsonrpc":"2.0","id":9,"method":"resources/none"}"#, -32_601);
    client.line("");
    client.line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#);
    client.line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}"#);
    client.line(r#"{"jsonrpc":"2.0","id":4242,"result":{}}"#);
    assert_eq!(client.ask("ping", json!({})), json!({}));
}

#[test]
fn overlong_client_message_is_skipped() {
    let place = place();
    configure(&place, &[], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let input = client.input.as_mut().unwrap();
    for _ in 0..40 {
        input.write_all(&vec![b'x'; 1 << 20]).unwrap();
    }
    input.write_all(b"\n").unwrap();
    assert_eq!(client.receive()["error"]["code"], -32_600);
    assert_eq!(client.ask("ping", json!({})), json!({}));
}

#[test]
fn client_cannot_change_its_protocol_revision() {
    let place = place();
    configure(&place, &[], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let modern = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    assert_eq!(client.error("tools/list", modern), -32_600);
    assert_eq!(client.error("initialize", json!({"protocolVersion": "2025-11-25"})), -32_600);
    client.end();
    let mut client = McpClient::stateless(&place, &[], json!({}));
    client.names();
    client.meta = None;
    assert_eq!(client.error("initialize", json!({"protocolVersion": "2025-11-25"})), -32_022);
    assert_eq!(client.error("tools/list", json!({})), -32_602);
    client.end();
    let mut client = McpClient::start(&place, &[]);
    assert_eq!(client.error("tools/list", json!({})), -32_600);
    assert_eq!(client.error("initialize", json!({})), -32_602);
    client.ask("initialize", json!({"protocolVersion": "1999-01-01"}));
}

#[test]
fn cancellation_of_a_call_reaches_the_upstream_server() {
    let place = place();
    let marker = unique_marker();
    let told = place.path("ws/cancelled.txt");
    configure(&place, &[("up", "never-answers", &[&marker, told.to_str().unwrap()])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.names();
    let id = client.begin("tools/call", json!({"name": "up__echo", "arguments": {}}));
    // Once haft has answered this later request, it has also read the call.
    client.ask("ping", json!({}));
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    eventually("the upstream server gets the cancellation", || place.exists("ws/cancelled.txt"));
    assert_eq!(client.ask("ping", json!({})), json!({}));
    assert!(client.others.iter().all(|message| message["id"] != id), "{:?}", client.others);
}

#[test]
fn reused_request_id_is_refused_while_the_first_request_runs() {
    let place = place();
    configure(&place, &[], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let fifo = place.path("ws/fifo");
    let call = |command: &str| {
        json!({"jsonrpc": "2.0", "id": "same", "method": "tools/call",
            "params": {"name": "bash", "arguments": {"command": command}}})
    };
    client.send(&call("mkfifo fifo && cat fifo"));
    eventually("the first call runs", || fifo.exists());
    client.send(&call("echo second"));
    let refused = client.receive();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(null), &json!(-32_600)), "{refused}");
    let other =
        client.begin("tools/call", json!({"name": "bash", "arguments": {"command": "echo first > fifo"}}));
    client.reply(other);
    let first = client.others.pop().unwrap_or_else(|| client.receive());
    assert_eq!((&first["id"], text(&first["result"]).trim()), (&json!("same"), "first"), "{first}");
}

#[test]
fn reused_request_id_over_http_is_refused_while_the_first_request_runs() {
    let place = place();
    configure(&place, &[], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let sessions = [server.session(&[]), server.session(&[])];
    let fifo = place.path("ws/fifo");
    let own = |session: usize| [("Mcp-Session-Id", sessions[session].as_str())];
    let call = |id: u64, command: &str| {
        request(id, "tools/call", &json!({"name": "bash", "arguments": {"command": command}}))
    };
    let mut first = server.open("/mcp", "POST", &own(0), &call(7, "mkfifo fifo && cat fifo").to_string());
    eventually("the first call runs", || fifo.exists());
    let refused = server.post(&own(0), &call(7, "touch made"));
    let error = refused.message();
    assert_eq!((refused.status(), &error["id"]), (400, &json!(null)), "{error}");
    assert_eq!(error["error"]["code"], -32_600, "{error}");
    assert!(!place.exists("ws/made"));
    // Another session may use the same id.
    assert_eq!(server.post(&own(1), &call(7, "echo first > fifo")).message()["id"], 7);
    let mut reply = String::new();
    first.read_to_string(&mut reply).unwrap();
    let reply = GatewayReply::of(reply).message();
    assert_eq!((&reply["id"], text(&reply["result"]).trim()), (&json!(7), "first"), "{reply}");
    // The request has ended, so its id is free.
    assert_eq!(text(&server.post(&own(0), &call(7, "echo again")).message()["result"]).trim(), "again");
}

#[test]
fn flood_of_requests_over_http_is_answered_completely() {
    let place = place();
    configure(&place, &[], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let session = server.session(&[]);
    let own = [("Mcp-Session-Id", session.as_str())];
    let methods = ["ping", "tools/list", "tools/call"];
    std::thread::scope(|scope| {
        for thread in 0..FLOOD_THREADS {
            let (server, own) = (&server, &own);
            scope.spawn(move || {
                // Send all requests before the first reply is read.
                let ids = (0..FLOOD_PER_THREAD).map(|number| thread * FLOOD_PER_THREAD + number);
                let open = |id: u64| {
                    let method = methods[usize::try_from(id % 3).unwrap()];
                    let params = json!({"name": "current_date", "arguments": {}});
                    (id, server.open("/mcp", "POST", own, &request(id, method, &params).to_string()))
                };
                for (id, mut stream) in ids.map(open).collect::<Vec<_>>() {
                    let mut reply = String::new();
                    stream.read_to_string(&mut reply).unwrap();
                    let reply = GatewayReply::of(reply).message();
                    assert_eq!((&reply["id"], reply.get("error")), (&json!(id), None), "{reply}");
                }
            });
        }
    });
    assert_eq!(server.post(&own, &request(1, "ping", &json!({}))).message()["result"], json!({}));
}

/// The number of threads that flood the gateway, and of requests that each of them sends at once.
const FLOOD_THREADS: u64 = 8;
const FLOOD_PER_THREAD: u64 = 60;

#[test]
fn upstream_server_that_dies_in_a_call_fails_only_this_call() {
    let place = place();
    configure(&place, &[("up", "exits-mid-call", &[]), ("fine", "good", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let failed = client.call("up__echo", json!({}));
    assert_eq!(failed["isError"], true, "{failed}");
    assert_eq!(text(&client.call("fine__echo", json!({"text": "x"}))), "echo: x");
}

/// The servers send a text of 200 MiB, and a line of more than a GiB without an end.
#[test]
fn gigantic_results_fail_only_their_calls_and_are_not_kept_in_memory() {
    let place = place();
    configure(
        &place,
        &[("text", "huge-result", &[]), ("line", "endless-line", &[]), ("fine", "good", &[])],
        "",
    );
    let mut client = McpClient::handshake(&place, &[], json!({}));
    for tool in ["text__echo", "line__echo"] {
        let failed = client.call(tool, json!({}));
        assert_eq!(failed["isError"], true, "{failed}");
        assert!(text(&failed).contains("larger than"), "{tool}: {failed}");
    }
    assert_eq!(text(&client.call("fine__echo", json!({"text": "x"}))), "echo: x");
    let peak = memory_mib(&client.child, "VmHWM:");
    // haft reads a message only up to its limit of 64 MiB, and its buffer moves while it grows.
    assert!(peak < 200, "{peak} MiB");
}

#[test]
fn upstream_with_countless_tools_is_listed_in_pages() {
    let place = place();
    configure(&place, &[("up", "many-tools", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let (mut names, mut cursor) = (Vec::new(), json!(null));
    loop {
        let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
        let page = client.ask("tools/list", params);
        let tools = page["tools"].as_array().unwrap();
        assert!(tools.len() <= 1_000);
        names.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    let count = names.len();
    names.dedup();
    assert!(names.is_sorted() && names.len() == count && count > 5_000, "{count}");
}

/// Ends the connection, and returns the standard error output of the gateway.
pub(super) fn reported_until_the_end(mut client: McpClient) -> String {
    let mut errors = client.child.stderr.take().unwrap();
    assert_eq!(client.end(), 0);
    let mut reported = String::new();
    errors.read_to_string(&mut reported).unwrap();
    reported
}

#[test]
fn operator_and_client_learn_once_that_the_tool_list_of_an_upstream_is_cut() {
    let place = place();
    configure(&place, &[("up", "many-tools", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let warning = "the server has more than 10000 tools, of which haft uses the first 10000";
    let logged = client.wait_for("notifications/message");
    assert!(logged["params"]["data"].as_str().unwrap().contains(warning), "{logged}");
    client.ask("tools/list", json!({}));
    let reported = reported_until_the_end(client);
    assert_eq!(reported.matches(warning).count(), 1, "{reported}");
}

#[test]
fn operator_and_client_learn_once_which_members_of_a_tool_are_left_out() {
    let place = place();
    configure(&place, &[("up", "sloppy", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let logged = client.wait_for("notifications/message");
    let warning = "the definition of the tool `up__odd_00` has members that many clients refuse, so haft leaves them out: description\n";
    assert!(logged["params"]["data"].as_str().unwrap().contains(warning.trim_end()), "{logged}");
    let listed = client.ask("tools/list", json!({}));
    let tools = listed["tools"].as_array().unwrap();
    let odd =
        |number: usize| tools.iter().find(|tool| tool["name"] == format!("up__odd_{number:02}")).unwrap();
    assert_eq!(*odd(0), json!({"name": "up__odd_00", "inputSchema": {"type": "object"}}));
    assert_eq!(odd(9)["annotations"], json!({}));
    client.ask("tools/list", json!({}));
    let reported = reported_until_the_end(client);
    assert_eq!(reported.matches(warning).count(), 1, "{reported}");
    // Of 24 such tools, 20 have a warning each.
    assert_eq!(reported.matches("so haft leaves them out").count(), 20, "{reported}");
    assert_eq!(reported.matches("number of these tools: 4\n").count(), 1, "{reported}");
    assert!(!reported.contains("up__echo"), "{reported}");
}

/// Returns the memory that a process uses, in MiB.
fn resident_mib(child: &std::process::Child) -> u64 {
    memory_mib(child, "VmRSS:")
}

/// Returns a size from the status of a process, in MiB.
pub(super) fn memory_mib(child: &std::process::Child, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn tools_of_an_upstream_with_a_million_tools_are_listed_up_to_the_limit() {
    for mode in ["million-tools", "million-pages"] {
        let place = place();
        configure(&place, &[("up", mode, &[])], "");
        let mut client = McpClient::handshake(&place, &[], json!({}));
        let (mut count, mut cursor) = (0, json!(null));
        loop {
            let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
            let page = client.ask("tools/list", params);
            count += page["tools"].as_array().unwrap().len();
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        assert!((5_000..=20_000).contains(&count), "{mode}: {count}");
        assert!(resident_mib(&client.child) < 400, "{mode}: {} MiB", resident_mib(&client.child));
        assert_eq!(client.ask("ping", json!({})), json!({}));
    }
}

#[test]
fn memory_stays_bounded_while_a_client_does_not_read() {
    let place = place();
    configure(&place, &[("up", "catalog", &["1000"])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.names();
    let mut input = client.input.take().unwrap();
    let written = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&written);
    let writer = std::thread::spawn(move || {
        // This loop ends when haft has ended.
        while input.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n").is_ok() {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (mut last, mut since) = (0, Instant::now());
    eventually("haft reads no more requests", || {
        let now = written.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        now > 0 && since.elapsed() > Duration::from_secs(1)
    });
    assert!(resident_mib(&client.child) < 400, "{} MiB", resident_mib(&client.child));
    // Closing the output ends haft, even while its queue is full.
    let McpClient { mut child, output, .. } = client;
    drop(output);
    child.wait().unwrap();
    writer.join().unwrap();
}

/// The number of resources that a client requests and does not read. Together they are larger than each limit.
const UNREAD_RESOURCES: u64 = 20;

/// The size of each of these resources, in MiB. A reply has a few hundred bytes more.
const RESOURCE_MIB: u64 = 15;

/// The maximum size of the replies that wait for one connection, and for one principal, in MiB.
const CONNECTION_MIB: u64 = 64;
const PRINCIPAL_MIB: u64 = 192;

/// The maximum number of copies of a resource that exist in addition to the waiting replies: three in the connection to
/// the upstream server (the old and the new buffer of the line while the buffer grows, and the result), three in the one
/// conversion of the principal (the text before and after a step, and the changed member), and one in each of two
/// threads that add the frame of an event to a reply.
const COPIES_MAX: u64 = 3 + 3 + 2;

/// The memory that haft itself uses, with the freed copies whose pages each thread of the allocator keeps for a moment,
/// in MiB. Measured peaks with two threads were up to 77 MiB above the other terms.
const OWN_MIB: u64 = 160;

/// The maximum time until these reads have ended, even on a busy machine.
const READS_WITHIN: Duration = Duration::from_mins(2);

fn resource_uri(path: &str) -> serde_json::Value {
    json!({"uri": format!("haft:up/note://{path}")})
}

fn large_resource() -> serde_json::Value {
    resource_uri(&format!("huge/{RESOURCE_MIB}"))
}

/// Returns the journal of the calls that clients of the gateway make.
fn call_journal(place: &TestTree) -> String {
    std::fs::read_to_string(place.path("home/data/gateway-calls.jsonl")).unwrap_or_default()
}

/// Waits until the read that never ends occupies the only slot of the queue.
fn wait_for_occupied_queue(place: &TestTree) {
    eventually("the first read begins", || call_journal(place).contains("note://never"));
}

/// Waits until the results of all large resources have arrived from their server.
fn wait_for_reads(place: &TestTree) {
    let began = Instant::now();
    let has_read = |line: &&str| line.contains(r#""type":"ended""#) && !line.contains(r#""cancelled""#);
    loop {
        let ended = call_journal(place).lines().filter(has_read).count();
        if u64::try_from(ended).unwrap() == UNREAD_RESOURCES {
            return;
        }
        assert!(began.elapsed() < READS_WITHIN, "{ended} reads have ended");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Checks the peak memory of a process whose waiting replies have this limit.
fn assert_bounded(peak: u64, limit: u64) {
    let max = limit + COPIES_MAX * RESOURCE_MIB + OWN_MIB;
    assert!(peak < max, "{peak} MiB; the maximum is {max} MiB");
}

#[test]
fn memory_stays_bounded_while_a_client_does_not_read_large_resources() {
    let place = place();
    configure(&place, &[("up", "offers", &[])], r#", "queues": {"default": {"maxConcurrency": 1}}"#);
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.names();
    // The reply to `ping` shows that haft has read all requests, before the first result can arrive.
    let blocking = client.begin("resources/read", resource_uri("never"));
    wait_for_occupied_queue(&place);
    let ids: Vec<u64> =
        (0..UNREAD_RESOURCES).map(|_| client.begin("resources/read", large_resource())).collect();
    client.ask("ping", json!({}));
    let params = json!({"requestId": blocking});
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    wait_for_reads(&place);
    let (mut whole, mut refused) = (0, 0);
    for id in ids {
        match client.reply(id)["error"]["message"].as_str() {
            None => whole += 1,
            Some(message) => {
                assert!(message.contains("has not read the replies"), "{message}");
                refused += 1;
            }
        }
    }
    assert_bounded(memory_mib(&client.child, "VmHWM:"), CONNECTION_MIB);
    let room = CONNECTION_MIB / RESOURCE_MIB;
    assert_eq!((whole, refused), (room, UNREAD_RESOURCES - room));
    // The client has read everything, so there is room again.
    assert!(client.ask("resources/read", large_resource())["contents"].is_array());
}

#[test]
fn memory_stays_bounded_while_clients_over_http_do_not_read_large_resources() {
    let place = place();
    configure(&place, &[("up", "offers", &[])], r#", "queues": {"default": {"maxConcurrency": 1}}"#);
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let sessions = [(); 4].map(|()| server.session(&[]));
    let own = |session: usize| [("Mcp-Session-Id", sessions[session].as_str())];
    let read = |id: u64, params: &serde_json::Value| {
        let session = usize::try_from(id % 4).unwrap();
        server.open("/mcp", "POST", &own(session), &request(id, "resources/read", params).to_string())
    };
    let _blocking = read(0, &resource_uri("never"));
    wait_for_occupied_queue(&place);
    let streams: Vec<_> = (1..=UNREAD_RESOURCES).map(|id| read(id, &large_resource())).collect();
    for stream in &streams {
        // The head of a response shows that haft has read the request, before the first result can arrive.
        stream.set_read_timeout(Some(READS_WITHIN)).unwrap();
        assert_eq!(stream.peek(&mut [0]).unwrap(), 1);
    }
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 0}});
    assert_eq!(server.post(&own(0), &cancelled).status(), 202);
    wait_for_reads(&place);
    let replies = streams.into_iter().map(|mut stream| {
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply.contains("has not read the replies")
    });
    let refused = replies.filter(|is_refused| *is_refused).count();
    assert_bounded(server.memory_mib("VmHWM:"), PRINCIPAL_MIB);
    let room = PRINCIPAL_MIB / RESOURCE_MIB;
    assert_eq!(u64::try_from(refused).unwrap(), UNREAD_RESOURCES - room);
    assert_eq!(server.post(&own(0), &request(1, "ping", &json!({}))).message()["result"], json!({}));
}

#[test]
fn flood_of_requests_is_answered_completely() {
    let place = place();
    configure(&place, &[], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    for _ in 0..2_000 {
        client.begin("ping", json!({}));
    }
    for _ in 0..100 {
        client.begin("tools/call", json!({"name": "current_date", "arguments": {}}));
    }
    let mut seen = std::collections::HashSet::new();
    for _ in 0..2_100 {
        assert!(seen.insert(client.receive()["id"].as_u64().unwrap()));
    }
}

#[test]
fn client_that_never_reads_does_not_make_haft_grow_or_hang() {
    let place = place();
    configure(&place, &[], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let mut input = client.input.take().unwrap();
    let writer = std::thread::spawn(move || {
        let line = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n";
        // This loop ends when haft reads no more input or has ended.
        for _ in 0..20_000 {
            if input.write_all(line).is_err() {
                return;
            }
        }
    });
    // Do not read the output, so that the queue fills up. Closing the output ends haft, even while its queue is full.
    let McpClient { mut child, output, .. } = client;
    drop(output);
    child.wait().unwrap();
    writer.join().unwrap();
}

#[test]
fn tool_list_that_changes_constantly_is_announced_about_once_a_second() {
    let place = place();
    configure(&place, &[("up", "restless", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.names();
    let began = Instant::now();
    client.wait_for("notifications/tools/list_changed");
    while began.elapsed() < Duration::from_secs(3) {
        assert_eq!(text(&client.call("up__echo", json!({"text": "x"}))), "echo: x");
        std::thread::sleep(Duration::from_millis(50));
    }
    let announced = client
        .others
        .iter()
        .filter(|message| message["method"] == "notifications/tools/list_changed")
        .count();
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
    // The first announcement is not counted. On a slow machine there are fewer announcements, but at least one.
    assert!((1..=seconds + 1).contains(&announced), "{announced} in {seconds} s: {:?}", client.others);
}

#[test]
fn late_answer_of_an_upstream_server_reaches_no_other_call() {
    let place = place();
    configure(&place, &[("up", "late", &[])], r#", "tools": {"up__echo": {"timeout": "500ms"}}"#);
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.names();
    let late = client.call("up__echo", json!({"text": "first"}));
    assert!(late["isError"] == true && text(&late).contains("timed out"), "{late}");
    eventually("the server answers again", || {
        let next = client.call("up__echo", json!({"text": "second"}));
        assert!(!text(&next).contains("first"), "{next}");
        text(&next) == "echo: second"
    });
}
