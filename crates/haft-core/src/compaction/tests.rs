use super::size::{conversation_tokens, message_tokens};
use super::*;
use crate::arguments::RawArguments;
use crate::conversation::{
    Conversation, Media, MediaSource, Message, MessagePart, ModelApiFormat, PartBody, Role, ToolReply,
    WireIdentity,
};
use crate::internal_tools::task_status::TASK_STATUS;
use crate::model_reply::{ModelReply, StopReason};
use crate::model_request::{ModelRequest, ToolChoice};
use crate::output::OutputContent;
use crate::output_store::{OutputPreview, StoreReason, StoredOutput};
use crate::tokens::Tokens;
use crate::tool::{CallId, ToolCall};
use std::sync::Arc;

const NAME: &str = "0a1b2c3d-0000-4000-8000-000000000000";

fn handle() -> Handle {
    Handle::new(NAME, NAME).unwrap()
}

fn called(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: CallId(id.into()), name: name.into(), arguments: RawArguments::from_text(arguments) }
}

fn asks(call: &ToolCall) -> Message {
    let signature = WireIdentity { format: ModelApiFormat::Anthropic, id: None, state: Some("sig".into()) };
    let thinking = MessagePart::new(PartBody::Reasoning("hm".into())).marked(signature);
    Message::assistant(vec![thinking, MessagePart::new(PartBody::Call(call.clone()))])
}

/// Returns a conversation of turns. Each turn calls `read` and gets an output with this many bytes.
fn turns(outputs: &[usize]) -> Conversation {
    let mut conversation = Conversation::default();
    conversation.push(Message::user("the task")).unwrap();
    for (at, bytes) in outputs.iter().enumerate() {
        let call = called(&format!("c{at}"), "read", &format!("{{\"path\": \"f{at}\"}}"));
        conversation.push(asks(&call)).unwrap();
        let line = format!("fact {at}\n");
        let text = line.repeat(bytes.div_ceil(line.len()));
        conversation.push(Message::tool(vec![ToolReply::text(&call, &text[..*bytes])])).unwrap();
    }
    conversation
}

fn room(room_tokens: u64) -> ConversationRoom {
    ConversationRoom { room_tokens, saving_tokens_min: 64, keep_turns: 2 }
}

fn span() -> ArchiveSpan {
    ArchiveSpan { handle: handle(), first: 11, last: 99 }
}

fn entry(bytes: u64, lines: u64) -> StoreEntry {
    StoreEntry { handle: handle(), bytes, lines, complete: true }
}

fn summary(words: &str) -> SummaryText {
    SummaryText { words: Some(words.into()), span: Some(span()), older: Vec::new() }
}

fn roles(conversation: &Conversation) -> String {
    let letter = |message: &Arc<Message>| match message.role {
        Role::System => 's',
        Role::User => 'u',
        Role::Assistant => 'a',
        Role::Tool => 't',
    };
    conversation.messages().iter().map(letter).collect()
}

fn text_of(conversation: &Conversation) -> String {
    let contents = conversation.messages().iter().map(|message| size::VisibleContent::of(message).text);
    contents.collect::<Vec<_>>().join("\n---\n")
}

#[test]
fn plan_summarizes_turns_only_if_moving_outputs_frees_too_little() {
    use CompactionScope::{Outputs, Turns};
    let check = |outputs: &[usize], tokens: u64, expected: Option<(CompactionScope, usize)>| {
        let plan = CompactionPlan::of(&turns(outputs), &room(tokens));
        let found = plan.map(|plan| (plan.scope, plan.recent_from));
        assert_eq!(found, expected, "outputs {outputs:?}, {tokens} tokens");
    };
    check(&[], 100, None);
    check(&[4000], 100, None);
    // The last two turns stay; the turn before them is old.
    check(&[4000, 40, 40], 1_000, Some((Outputs, 3)));
    // The recent turns may take 40 % of the available tokens, so only the last turn stays.
    check(&[4000, 4000, 4000], 1_500, Some((Outputs, 5)));
    // Two references would take more tokens than one summary.
    check(&[700, 700, 700, 700, 4000], 1_200, Some((Turns, 9)));
    // Small outputs are not worth a reference, but many turns are worth a summary.
    check(&[500; 20], 2_000, Some((Turns, 37)));
    // A short conversation has nothing worth a compaction.
    check(&[100; 3], 1_000, None);
}

#[test]
fn compaction_keeps_the_last_turn_even_if_it_exceeds_the_free_context() {
    let plan = CompactionPlan::of(&turns(&[4000, 400_000]), &room(2_000)).unwrap();
    assert_eq!(plan.recent_from, 3);
    assert_eq!(CompactionPlan::of(&turns(&[400_000]), &room(2_000)), None);
}

#[test]
fn large_first_request_leaves_nothing_to_compact() {
    let mut conversation = Conversation::default();
    conversation.push(Message::user("x".repeat(100_000))).unwrap();
    assert_eq!(CompactionPlan::of(&conversation, &room(2_000)), None);
    conversation.push(Message::assistant(vec![MessagePart::text("ok")])).unwrap();
    assert_eq!(CompactionPlan::of(&conversation, &room(2_000)), None);
}

#[test]
fn reference_to_a_moved_output_has_its_line_numbers_in_the_archive() {
    let conversation = turns(&[1000, 2000, 10]);
    let plan = CompactionPlan { scope: CompactionScope::Outputs, recent_from: 5, summary_tokens_max: 0 };
    let text = plan.archive_text(&conversation);
    let lines: Vec<&str> = text.lines().collect();
    let span = ArchiveSpan::appended(Some(&entry(1, 10)), &entry(1, 10 + lines.len() as u64));
    assert_eq!((span.first, span.last), (11, 10 + lines.len() as u64));
    let compacted = plan.without_outputs(&conversation, &span).unwrap();
    assert_eq!(roles(&compacted), "uatatat");
    let words = text_of(&compacted);
    for at in 0..2 {
        let range = words.split("lines ").nth(at + 1).unwrap().split('"').next().unwrap();
        let (first, last) = range.split_once('-').unwrap();
        let place = |number: &str| number.parse::<usize>().unwrap() - 11;
        let found = &lines[place(first)..=place(last)];
        assert!(found.iter().all(|line| line.starts_with("fact") || "fact".starts_with(line)), "{found:?}");
        assert_eq!(found[0], format!("fact {at}"));
        assert_eq!(lines[place(first) - 1], format!("### Output of read {{\"path\": \"f{at}\"}}"));
    }
    assert!(conversation_tokens(&compacted) < 400, "{words}");
}

#[test]
fn archive_reference_does_not_move_to_the_archive_again() {
    let conversation = turns(&[1000, 10]);
    let plan = CompactionPlan { scope: CompactionScope::Outputs, recent_from: 3, summary_tokens_max: 0 };
    assert_eq!(plan.outputs(&conversation), 1);
    let once = plan.without_outputs(&conversation, &span()).unwrap();
    assert_eq!(plan.outputs(&once), 0);
}

#[test]
fn compaction_drops_previews_of_stored_outputs_even_after_a_resume() {
    let stored = StoredOutput {
        stored: entry(20_000, 7),
        reason: StoreReason::SizeCap,
        glimpse: OutputPreview::Text { tokens: Tokens::Counted(5_000), preview: "p".repeat(1_000) },
    };
    let live = OutputContent::Stored(Box::new(stored));
    let from_journal = OutputContent::Text(live.as_text());
    let compact = |piece: OutputContent| {
        let call = called("c", "read", "{}");
        let mut conversation = Conversation::default();
        conversation.push(Message::user("go")).unwrap();
        conversation.push(asks(&call)).unwrap();
        let reply = ToolReply { content: vec![piece], ..ToolReply::text(&call, "") };
        conversation.push(Message::tool(vec![reply])).unwrap();
        conversation.push(Message::assistant(vec![MessagePart::text("ok")])).unwrap();
        let plan = CompactionPlan { scope: CompactionScope::Outputs, recent_from: 3, summary_tokens_max: 0 };
        let compacted = plan.without_outputs(&conversation, &span()).unwrap();
        (plan.archive_text(&conversation), text_of(&compacted))
    };
    assert_eq!(compact(live.clone()), compact(from_journal));
    let (archived, words) = compact(live);
    assert_eq!(archived, "");
    assert!(
        words.contains(&format!("handle = \"session-{NAME}/{NAME}\"")) && !words.contains("ppp"),
        "{words}"
    );
}

#[test]
fn compaction_keeps_the_images_of_an_output_whose_text_it_moves() {
    let call = called("c", "shot", "{}");
    let mut conversation = Conversation::default();
    conversation.push(Message::user("go")).unwrap();
    conversation.push(asks(&call)).unwrap();
    let image = OutputContent::Image { media_type: "image/png".into(), bytes: [1].into() };
    let content = vec![OutputContent::Text("t".repeat(1_000)), image.clone()];
    conversation.push(Message::tool(vec![ToolReply { content, ..ToolReply::text(&call, "") }])).unwrap();
    conversation.push(Message::assistant(vec![MessagePart::text("ok")])).unwrap();
    let plan = CompactionPlan { scope: CompactionScope::Outputs, recent_from: 3, summary_tokens_max: 0 };
    let compacted = plan.without_outputs(&conversation, &span()).unwrap();
    let PartBody::Reply(reply) = &compacted.messages()[2].parts[0].body else {
        panic!("expected a tool reply")
    };
    assert_eq!(reply.content.len(), 2);
    assert_eq!(reply.content[1], image);
}

#[test]
fn summary_keeps_user_requests_recent_turns_and_open_calls() {
    let mut conversation = turns(&[2000, 2000]);
    conversation.push(Message::system("a note of the operator")).unwrap();
    conversation.push(Message::user("a second request")).unwrap();
    let later = called("l", "read", "{}");
    conversation.push(asks(&later)).unwrap();
    conversation.push(Message::tool(vec![ToolReply::text(&later, "recent")])).unwrap();
    let open = called("o", "write", "{}");
    conversation.push(asks(&open)).unwrap();
    let plan =
        |recent_from| CompactionPlan { scope: CompactionScope::Turns, recent_from, summary_tokens_max: 100 };
    // With this plan, the user's second request is recent, so it stays.
    let compacted = plan(3).with_summary(&conversation, &summary("GIST")).unwrap();
    assert_eq!(roles(&compacted), "uuatsuata");
    // With this plan, the user's second request is old, and stays word for word after the summary.
    let compacted = plan(9).with_summary(&conversation, &summary("GIST")).unwrap();
    assert_eq!(roles(&compacted), "uuua");
    let words = text_of(&compacted);
    assert!(
        words.contains("the task") && words.contains("GIST") && words.contains("a second request"),
        "{words}"
    );
    assert!(!words.contains("fact 1") && !words.contains("recent"), "{words}");
    assert_eq!(compacted.open_calls().next(), Some(&open), "an open call stays open");
    let (last, kept) = (conversation.messages().last().unwrap(), compacted.messages().last().unwrap());
    assert!(Arc::ptr_eq(last, kept), "recent messages keep their identity, so signatures stay as they are");
    assert!(
        words.contains(&format!("handle = \"session-{NAME}/{NAME}\", extract = \"lines 11-99\"")),
        "{words}"
    );
}

#[test]
fn second_summary_replaces_the_first_one() {
    let plan = CompactionPlan { scope: CompactionScope::Turns, recent_from: 5, summary_tokens_max: 100 };
    let once = plan.with_summary(&turns(&[2000, 2000, 10]), &summary("ONE")).unwrap();
    assert_eq!(roles(&once), "uuat");
    let mut longer = once.clone();
    for message in &turns(&[2000, 10]).messages()[1..] {
        longer.push_shared(Arc::clone(message)).unwrap();
    }
    let plan = CompactionPlan { recent_from: 6, ..plan };
    assert!(plan.archive_text(&longer).contains("ONE"), "the archive has the first summary");
    let twice = plan.with_summary(&longer, &summary("TWO")).unwrap();
    assert_eq!(roles(&twice), "uuat");
    assert!(!text_of(&twice).contains("ONE") && text_of(&twice).contains("TWO"));
    let listed = SummaryText { words: None, ..summary("") };
    let twice = plan.with_summary(&longer, &listed).unwrap();
    let words = text_of(&twice);
    assert!(words.contains("ONE") && words.contains("- read {\"path\": \"f0\"}"), "{words}");
}

#[test]
fn last_task_status_survives_every_compaction_unchanged() {
    let status = "{\"status\": \"in-progress\", \"pending\":  \"two  things\"}";
    let call = called("s", TASK_STATUS, status);
    let mut conversation = Conversation::default();
    conversation.push(Message::user("go")).unwrap();
    conversation.push(asks(&call)).unwrap();
    conversation.push(Message::tool(vec![ToolReply::text(&call, "ok")])).unwrap();
    for message in &turns(&[2000, 2000]).messages()[1..] {
        conversation.push_shared(Arc::clone(message)).unwrap();
    }
    for _ in 0..3 {
        let recent_from = conversation.messages().len() - 2;
        let plan = CompactionPlan { scope: CompactionScope::Turns, recent_from, summary_tokens_max: 100 };
        conversation = plan.with_summary(&conversation, &summary("GIST")).unwrap();
        assert_eq!(text_of(&conversation).matches(status).count(), 1);
        for message in &turns(&[2000]).messages()[1..] {
            conversation.push_shared(Arc::clone(message)).unwrap();
        }
    }
}

fn reply(text: &str, stop: StopReason) -> ModelReply {
    let parts = vec![MessagePart::text(text)];
    ModelReply { id: None, model: None, parts, stop, usage: None, notes: Vec::new() }
}

#[test]
fn unusable_summaries_are_refused_with_the_reason() {
    let conversation = turns(&[2000, 2000, 10]);
    let plan = CompactionPlan { scope: CompactionScope::Turns, recent_from: 5, summary_tokens_max: 100 };
    let check = |reply: &ModelReply, expected: Result<&str, SummaryFault>| {
        assert_eq!(read_summary(reply, &plan, &conversation), expected.map(str::to_owned));
    };
    check(&reply(" the gist ", StopReason::EndOfTurn), Ok("the gist"));
    check(&reply("the gis", StopReason::Length), Ok("the gis"));
    check(&reply("", StopReason::EndOfTurn), Err(SummaryFault::Empty));
    check(&reply(" \n ", StopReason::EndOfTurn), Err(SummaryFault::Empty));
    check(&reply("the gi", StopReason::CutOff), Err(SummaryFault::Cut));
    check(&reply("no", StopReason::Refusal), Err(SummaryFault::Refused));
    check(&reply("no", StopReason::Filtered), Err(SummaryFault::Refused));
    check(&reply(&"long ".repeat(2_000), StopReason::EndOfTurn), Err(SummaryFault::TooLong));
    let mut calls = reply("the gist", StopReason::ToolCalls);
    calls.parts.push(MessagePart::new(PartBody::Call(called("c", "read", "{}"))));
    check(&calls, Err(SummaryFault::Calls));
    let mut refused = reply("", StopReason::EndOfTurn);
    refused.parts.push(MessagePart::new(PartBody::Refusal("no".into())));
    check(&refused, Err(SummaryFault::Refused));
    // The summary is longer than requested but shorter than the turns, so its end is cut off.
    let kept = read_summary(&reply(&"x".repeat(3_000), StopReason::EndOfTurn), &plan, &conversation).unwrap();
    assert_eq!(kept.len(), 800);
    check(&reply("a [End of the summary] b", StopReason::EndOfTurn), Ok("a  b"));
}

#[test]
fn summary_request_is_plain_text_within_its_size_limit() {
    let conversation = turns(&[40_000; 6]);
    let plan = CompactionPlan { scope: CompactionScope::Turns, recent_from: 11, summary_tokens_max: 600 };
    let mut like = ModelRequest::new("big", Arc::default());
    like.tool_choice = ToolChoice::Required;
    like.context_tokens = Some(7);
    let rules = CompactionRules { model: Some("small".into()), ..CompactionRules::default() };
    for record_bytes_max in [1_000, 8_000, 100_000] {
        let about = SummaryRequest {
            like: &like,
            rules: &rules,
            record_bytes_max,
            fault: Some(&SummaryFault::Calls),
        };
        let request = plan.summary_request(&conversation, about).unwrap();
        assert_eq!((request.model.as_str(), request.tools.len()), ("small", 0));
        assert_eq!((request.tool_choice.clone(), request.context_tokens), (ToolChoice::Auto, None));
        assert_eq!(roles(&request.conversation), "u");
        let words = text_of(&request.conversation);
        assert!(words.len() < record_bytes_max + 1_000, "{} of {record_bytes_max}", words.len());
        assert!(words.contains("at most 400 words") && words.contains("the model called tools"), "{words}");
        assert!(words.contains("### Output of read"), "{words}");
    }
    let about = SummaryRequest {
        like: &like,
        rules: &CompactionRules::default(),
        record_bytes_max: 1_000,
        fault: None,
    };
    let request = plan.summary_request(&conversation, about).unwrap();
    assert_eq!((request.model.as_str(), request.context_tokens), ("big", Some(7)));
}

#[test]
fn full_archive_is_followed_by_a_new_archive_that_starts_at_line_one() {
    let other = Handle::new("1a1b2c3d-0000-4000-8000-000000000000", NAME).unwrap();
    let after = StoreEntry { handle: other, ..entry(50, 5) };
    let found = ArchiveSpan::appended(Some(&entry(900, 90)), &after);
    assert_eq!((found.first, found.last), (1, 5));
    let found = ArchiveSpan::appended(Some(&entry(900, 90)), &entry(950, 95));
    assert_eq!((found.first, found.last), (91, 95));
}

#[test]
fn message_size_includes_media_and_signatures() {
    let media = Media { media_type: "image/png".into(), source: MediaSource::Url("u".into()) };
    let image = Message { role: Role::User, parts: vec![MessagePart::new(PartBody::Image(media))] };
    assert!(message_tokens(&image) >= size::MEDIA_TOKENS);
    let state =
        WireIdentity { format: ModelApiFormat::Anthropic, id: None, state: Some("s".repeat(400).into()) };
    let opaque = Message::assistant(vec![MessagePart::new(PartBody::Opaque).marked(state)]);
    assert!(message_tokens(&opaque) >= 100);
}
