//! `haft call --tree`: the operation tree, as text or as JSON.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haft_core::approval::shown;
use haft_core::event::{CallAccount, Event, EventSink};
use haft_core::event_log::note_text;
use haft_core::internal_tools::batch::BATCH;
use haft_core::model_error::ModelErrorKind;
use haft_core::model_provider::{AttemptFollowUp, ModelAccount, ModelAttempt};
use haft_core::op_tree::{
    ModelNode, OpTree, OperationNode, OperationState, OwnCallNode, SessionNode, TurnNode,
};
use haft_core::position::OperationId;
use haft_core::result::ToolErrorKind;
use haft_core::run::{Compaction, RunNote, SummaryAuthor};
use serde_json::{Value, json};

/// Collects the tree while calls are made.
#[derive(Debug, Default)]
pub(super) struct TreeKeeper(Mutex<OpTree>);

impl TreeKeeper {
    /// Returns the path of an operation in the tree; a dash if the tree no longer contains it.
    pub(super) fn path(&self, operation: OperationId) -> String {
        self.tree().path(operation).unwrap_or("-").to_owned()
    }

    pub(super) fn drawn(&self) -> String {
        drawn(&self.tree())
    }

    pub(super) fn json(&self) -> Value {
        as_json(&self.tree())
    }

    fn tree(&self) -> MutexGuard<'_, OpTree> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for TreeKeeper {
    fn emit(&self, event: Event) {
        self.tree().apply(&event);
    }
}

pub(super) fn drawn(tree: &OpTree) -> String {
    let mut text = String::new();
    for session in tree.roots() {
        draw_session(tree, session, "", &mut text);
    }
    let totals = tree.totals();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "calls: {}, errors: {}, cached: {}, {} ms, {} bytes in, {} bytes out",
        totals.calls,
        totals.errors,
        totals.cached,
        totals.latency.as_millis(),
        totals.bytes_in,
        totals.bytes_out
    );
    if totals.requests > 0 {
        let (requests, read, written) = (totals.requests, totals.tokens_in, totals.tokens_out);
        let _ = write!(text, "\nmodels: {requests}, {read} tokens in, {written} out");
        // The cost is zero if no price is known, and printing zero would be wrong.
        if totals.cost.nano_usd > 0 {
            let _ = write!(text, ", {}", totals.cost);
        }
    }
    if tree.left_out() > 0 {
        let _ = write!(text, " ({} calls counted but not shown)", tree.left_out());
    }
    text
}

fn draw_session(tree: &OpTree, session: &SessionNode, indent: &str, text: &mut String) {
    let _ = writeln!(text, "{indent}session {}", session.id);
    branches(tree.turns(session), indent, text, |turn, inside, text| {
        let _ = match turn.number {
            0 => writeln!(text, "before the first turn"),
            number => writeln!(text, "turn {number}"),
        };
        let (inner, outer): (Vec<_>, Vec<_>) =
            tree.operations(turn).partition(|operation| batch_of(turn, operation).is_some());
        let own = turn.own_calls.iter().map(|own| TurnLeaf::Own {
            call: own,
            inside: inner
                .iter()
                .filter(|operation| batch_of(turn, operation) == Some(own))
                .copied()
                .collect(),
        });
        let models = turn.models.iter().map(TurnLeaf::Model);
        let compactions = turn.compactions.iter().map(TurnLeaf::Compaction);
        let leaves: Vec<TurnLeaf<'_>> =
            compactions.chain(models).chain(own).chain(outer.into_iter().map(TurnLeaf::Operation)).collect();
        branches(&leaves, inside, text, |leaf, inside, text| draw_leaf(tree, leaf, inside, text));
    });
}

fn draw_leaf(tree: &OpTree, leaf: &TurnLeaf<'_>, inside: &str, text: &mut String) {
    match leaf {
        TurnLeaf::Model(model) => {
            let _ = writeln!(text, "{}", model_in_words(model));
        }
        TurnLeaf::Compaction(compaction) => {
            let _ = writeln!(text, "{}", note_text(&RunNote::Compacted(**compaction)));
        }
        TurnLeaf::Own { call, inside: operations } => {
            let _ = writeln!(text, "{} (by the run itself)", shown(&call.tool));
            branches(operations, inside, text, |operation, inside, text| {
                draw_leaf(tree, &TurnLeaf::Operation(operation), inside, text);
            });
        }
        TurnLeaf::Operation(operation) => {
            let _ = writeln!(text, "{}", describe(operation));
            for below in tree.below(operation) {
                draw_session(tree, below, inside, text);
            }
        }
    }
}

/// An entry of a turn in the drawn tree.
enum TurnLeaf<'t> {
    Model(&'t ModelNode),
    Compaction(&'t Compaction),
    /// A call of an internal tool, which the run answered itself. If the call is a batch, `inside` contains its calls.
    Own {
        call: &'t OwnCallNode,
        inside: Vec<&'t OperationNode>,
    },
    Operation(&'t OperationNode),
}

/// Returns the batch call that contains an operation.
fn batch_of<'t>(turn: &'t TurnNode, operation: &OperationNode) -> Option<&'t OwnCallNode> {
    let is_inside = |own: &&OwnCallNode| {
        let rest = operation.call.strip_prefix(own.call.as_str());
        own.tool == BATCH && rest.is_some_and(|rest| rest.starts_with('.'))
    };
    turn.own_calls.iter().find(is_inside)
}

fn model_in_words(node: &ModelNode) -> String {
    let ModelAttempt { provider, model, number } = &node.attempt;
    let name = shown(&format!("{provider}/{model}"));
    let again = if *number > 1 { format!(" (attempt {number})") } else { String::new() };
    let Some(account) = &node.account else { return format!("{name}{again} running") };
    let end = account.failure.map_or("ok", ModelErrorKind::name);
    let tokens = account.usage.map(|usage| format!(", {} tokens in, {} out", usage.input, usage.output));
    let cost = account.cost.map(|cost| format!(", {cost}"));
    let (tokens, cost) = (tokens.unwrap_or_default(), cost.unwrap_or_default());
    let retry = retry_after(account).map(|after| format!(", tried again after {} ms", after.as_millis()));
    let retry = retry.unwrap_or_default();
    format!("{name}{again} {end} [{} ms{tokens}{cost}{retry}]", account.latency.as_millis())
}

/// Returns the wait before the next attempt, if there is one.
fn retry_after(account: &ModelAccount) -> Option<Duration> {
    match account.next {
        AttemptFollowUp::Nothing => None,
        AttemptFollowUp::Retry { after } => Some(after),
    }
}

/// Returns the time that a call waited before it started, as text; empty if it did not wait.
fn waited_in_words(operation: &OperationNode) -> String {
    match operation.waited.as_millis() {
        0 => String::new(),
        waited => format!(", waited {waited} ms"),
    }
}

/// Draws each item after its branch line. Passes to `draw` the indentation for the lines inside the item.
fn branches<T>(items: &[T], indent: &str, text: &mut String, draw: impl Fn(&T, &str, &mut String)) {
    for (at, item) in items.iter().enumerate() {
        let last = at + 1 == items.len();
        let (branch, inside) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        text.push_str(indent);
        text.push_str(branch);
        draw(item, &format!("{indent}{inside}"), text);
    }
}

fn describe(operation: &OperationNode) -> String {
    let (path, tool) = (&operation.path, shown(operation.tool.name()));
    match &operation.state {
        OperationState::Running => format!("{path} {tool} running"),
        OperationState::Finished { failure, latency, account } => {
            let end = failure.map_or("ok", ToolErrorKind::name);
            let cached = if account.cached { ", cached" } else { "" };
            let read = if account.untrusted { ", untrusted" } else { "" };
            let untrusted = untrusted_rule(account).map(|rule| format!(", {rule}")).unwrap_or_default();
            let (bytes_in, bytes_out, ms) = (account.bytes_in, account.bytes_out, latency.as_millis());
            let waited = waited_in_words(operation);
            format!(
                "{path} {tool} {end} [{ms} ms, {bytes_in} bytes in, {bytes_out} bytes out{cached}{waited}{read}{untrusted}]"
            )
        }
    }
}

/// Returns the decision about a call that was made after the run had read untrusted text.
fn untrusted_rule(account: &CallAccount) -> Option<&str> {
    let rule = account.verdict.as_ref()?.rule.as_deref()?;
    rule.starts_with("afterUntrusted").then_some(rule)
}

pub(super) fn as_json(tree: &OpTree) -> Value {
    let totals = tree.totals();
    json!({
        "sessions": tree.roots().map(|session| session_json(tree, session)).collect::<Vec<_>>(),
        "totals": {
            "calls": totals.calls, "errors": totals.errors, "cached": totals.cached,
            "latency_ms": totals.latency.as_millis(), "bytes_in": totals.bytes_in, "bytes_out": totals.bytes_out,
            "requests": totals.requests, "tokens_in": totals.tokens_in, "tokens_out": totals.tokens_out,
            "cost_nano_usd": totals.cost.nano_usd,
        },
        "left_out": tree.left_out(),
    })
}

fn session_json(tree: &OpTree, session: &SessionNode) -> Value {
    let turns: Vec<_> = tree.turns(session).iter().map(|turn| turn_json(tree, turn)).collect();
    json!({ "session": session.id.to_string(), "turns": turns })
}

fn turn_json(tree: &OpTree, turn: &TurnNode) -> Value {
    let operations: Vec<_> = tree.operations(turn).map(|operation| operation_json(tree, operation)).collect();
    let models: Vec<_> = turn.models.iter().map(model_json).collect();
    let own = turn.own_calls.iter().map(|own| json!({ "call_id": own.call, "tool": own.tool }));
    let own: Vec<Value> = own.collect();
    let compactions: Vec<_> = turn.compactions.iter().map(compaction_json).collect();
    let mut value =
        json!({ "turn": turn.number, "models": models, "own_calls": own, "operations": operations });
    if !compactions.is_empty() {
        value["compactions"] = compactions.into();
    }
    value
}

fn compaction_json(compaction: &Compaction) -> Value {
    let Compaction { before_tokens, after_tokens, scope, items, summary } = compaction;
    json!({
        "before_tokens": before_tokens, "after_tokens": after_tokens, "scope": scope.name(), "items": items,
        "summary": summary.map(SummaryAuthor::name),
    })
}

fn model_json(node: &ModelNode) -> Value {
    let ModelAttempt { provider, model, number } = &node.attempt;
    let account = node.account.as_ref();
    let usage = account.and_then(|account| account.usage);
    let failure = account.and_then(|account| account.failure);
    json!({
        "provider": &**provider, "model": &**model, "attempt": number,
        "state": match (account, failure) {
            (None, _) => "running",
            (Some(_), None) => "ok",
            (Some(_), Some(_)) => "failed",
        },
        "error_kind": failure.map(ModelErrorKind::name),
        "latency_ms": account.map(|account| account.latency.as_millis()),
        "retry_after_ms": account.and_then(retry_after).map(|after| after.as_millis()),
        "tokens_in": usage.map(|usage| usage.input), "tokens_out": usage.map(|usage| usage.output),
        "cost_nano_usd": account.and_then(|account| account.cost).map(|cost| cost.nano_usd),
    })
}

fn operation_json(tree: &OpTree, operation: &OperationNode) -> Value {
    let identity = operation.tool.known().map(|known| &known.identity);
    let sessions: Vec<_> = tree.below(operation).map(|session| session_json(tree, session)).collect();
    let mut node = json!({
        "path": operation.path, "call_id": operation.call, "tool": operation.tool.name(),
        "kind": identity.map(|identity| identity.kind.name()),
        "namespace": identity.map(|identity| identity.namespace.as_str()),
        "waited_ms": operation.waited.as_millis(),
        "sessions": sessions,
    });
    let state = match &operation.state {
        OperationState::Running => json!({ "state": "running" }),
        OperationState::Finished { failure, latency, account } => json!({
            "state": if failure.is_none() { "ok" } else { "failed" },
            "error_kind": failure.map(ToolErrorKind::name),
            "latency_ms": latency.as_millis(), "bytes_in": account.bytes_in, "bytes_out": account.bytes_out,
            "executed": account.executed, "cached": account.cached,
        }),
    };
    if let (Value::Object(node), Value::Object(state)) = (&mut node, state) {
        node.extend(state);
    }
    if let OperationState::Finished { account, .. } = &operation.state
        && account.untrusted
    {
        node["untrusted"] = json!(true);
    }
    if let OperationState::Finished { account, .. } = &operation.state
        && let Some(rule) = untrusted_rule(account)
    {
        node["rule"] = json!(rule);
    }
    node
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use haft_core::digest::Digest;
    use haft_core::event::ToolReference;
    use haft_core::internal_tools::task_status::TASK_STATUS;
    use haft_core::position::{CallOperation, RunPosition, SessionId};
    use haft_core::provider::Principal;
    use haft_core::tool::CallId;

    use super::*;

    fn operation(id: u64, session: u128, turn: u32, parent: Option<u64>) -> Arc<CallOperation> {
        let place = RunPosition {
            session: SessionId(session),
            turn,
            parent: parent.map(OperationId),
            origin: SessionId(session),
        };
        Arc::new(CallOperation { id: OperationId(id), call: CallId(id.to_string()), place })
    }

    fn tree() -> OpTree {
        let account = CallAccount {
            principal: Principal::local(),
            executed: true,
            cached: false,
            untrusted: false,
            bytes_in: 2,
            bytes_out: 10,
            arguments: Digest::of_text("{}"),
            verdict: None,
            queue: None,
            handle: None,
        };
        let tool = |name: &str| ToolReference::Written(name.to_owned());
        let started = |operation: &Arc<CallOperation>, name: &str| Event::ToolStarted {
            operation: Arc::clone(operation),
            tool: tool(name),
            waited: Duration::from_millis(3),
        };
        let finished = |operation: &Arc<CallOperation>, name: &str| Event::ToolFinished {
            operation: Arc::clone(operation),
            tool: tool(name),
            failure: None,
            latency: Duration::from_millis(5),
            account: account.clone(),
            content: None,
        };
        let mut tree = OpTree::default();
        let (first, agent) = (operation(1, 1, 1, None), operation(2, 1, 2, None));
        let (inner, other) = (operation(3, 2, 1, Some(2)), operation(4, 1, 2, None));
        tree.apply(&finished(&first, "read"));
        tree.apply(&started(&agent, "helper"));
        tree.apply(&finished(&inner, "bash\u{1b}"));
        tree.apply(&finished(&agent, "helper"));
        tree.apply(&started(&other, "read"));
        tree
    }

    #[test]
    fn call_tree_nests_sessions_below_their_call() {
        let expected = "\
session 00000000-0000-0000-0000-000000000001
├─ turn 1
│  └─ 1-1 read ok [5 ms, 2 bytes in, 10 bytes out]
└─ turn 2
   ├─ 2-1 helper ok [5 ms, 2 bytes in, 10 bytes out, waited 3 ms]
   │  session 00000000-0000-0000-0000-000000000002
   │  └─ turn 1
   │     └─ 2-1.1-1 bash\\u{1b} ok [5 ms, 2 bytes in, 10 bytes out]
   └─ 2-2 read running
calls: 3, errors: 0, cached: 0, 10 ms, 6 bytes in, 30 bytes out";
        assert_eq!(drawn(&tree()), expected);
    }

    #[test]
    fn json_call_tree_nests_calls_like_the_text_tree() {
        let json = as_json(&tree());
        let operations = &json["sessions"][0]["turns"][1]["operations"];
        assert_eq!(operations[0]["sessions"][0]["turns"][0]["operations"][0]["path"], "2-1.1-1");
        assert_eq!(operations[1]["state"], "running");
        assert_eq!(operations[0]["waited_ms"], 3);
        assert_eq!(json["totals"]["calls"], 3);
    }

    #[test]
    fn model_retry_in_the_tree_shows_its_delay() {
        let attempt = ModelAttempt { provider: "p".into(), model: "m".into(), number: 1 };
        let account = ModelAccount {
            failure: Some(ModelErrorKind::Overloaded),
            latency: Duration::from_millis(7),
            first_event: None,
            usage: None,
            cost: None,
            next: AttemptFollowUp::Retry { after: Duration::from_millis(500) },
        };
        let node = ModelNode { attempt, account: Some(account) };
        assert_eq!(model_in_words(&node), "p/m overloaded [7 ms, tried again after 500 ms]");
        assert_eq!(model_json(&node)["retry_after_ms"], 500);
    }

    #[test]
    fn tree_draws_the_calls_of_a_batch_below_the_batch() {
        let place = RunPosition::first(SessionId(1));
        let mut tree = OpTree::default();
        tree.add_own_call(place, &CallId("b".into()), BATCH);
        tree.add_own_call(place, &CallId("s".into()), TASK_STATUS);
        for (id, call) in [(1, "b.0"), (2, "other")] {
            let operation = CallOperation { id: OperationId(id), call: CallId(call.into()), place };
            let (operation, tool) = (Arc::new(operation), ToolReference::Written("read".into()));
            tree.apply(&Event::ToolStarted { operation, tool, waited: Duration::ZERO });
        }
        let expected = "\
session 00000000-0000-0000-0000-000000000001
└─ turn 1
   ├─ agent__batch (by the run itself)
   │  └─ 1-1 read running
   ├─ agent__task_status (by the run itself)
   └─ 1-2 read running
";
        assert!(drawn(&tree).starts_with(expected), "{}", drawn(&tree));
        let own = &as_json(&tree)["sessions"][0]["turns"][0]["own_calls"];
        assert_eq!(own[0], json!({ "call_id": "b", "tool": BATCH }));
    }
}
