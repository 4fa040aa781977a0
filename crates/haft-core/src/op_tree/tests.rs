//! Trees built from lists of events.

use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::digest::Digest;
use crate::internal_tools::batch::BATCH;
use crate::model_error::ModelErrorKind;
use crate::model_provider::AttemptFollowUp;
use crate::model_reply::TokenUsage;
use crate::position::RunPosition;
use crate::provider::Principal;
use crate::tool::CallId;

fn operation(id: u64, session: u128, turn: u32, parent: Option<u64>) -> Arc<CallOperation> {
    let place = RunPosition {
        session: SessionId(session),
        turn,
        parent: parent.map(OperationId),
        origin: SessionId(session),
    };
    Arc::new(CallOperation { id: OperationId(id), call: CallId(format!("c{id}")), place })
}

fn started(operation: &Arc<CallOperation>) -> Event {
    let tool = ToolReference::Written(format!("tool{}", operation.id.0));
    Event::ToolStarted { operation: Arc::clone(operation), tool, waited: Duration::ZERO }
}

fn finished(operation: &Arc<CallOperation>, failure: Option<ToolErrorKind>) -> Event {
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
    Event::ToolFinished {
        operation: Arc::clone(operation),
        tool: ToolReference::Written(format!("tool{}", operation.id.0)),
        failure,
        latency: Duration::from_millis(5),
        account,
        content: None,
    }
}

/// Prints every operation with its path, in the order of the tree.
fn drawn(tree: &OpTree) -> String {
    let mut text = String::new();
    for session in tree.roots() {
        draw(tree, session, &mut text);
    }
    text
}

fn draw(tree: &OpTree, session: &SessionNode, text: &mut String) {
    for node in tree.turns(session).iter().flat_map(|turn| tree.operations(turn)) {
        let state = match &node.state {
            OperationState::Running => "runs",
            OperationState::Finished { failure, .. } => failure.map_or("ok", ToolErrorKind::name),
        };
        let _ = write!(text, "{} {} {state}; ", node.path, node.call);
        for below in tree.below(node) {
            draw(tree, below, text);
        }
    }
}

fn tree_of(events: &[Event]) -> OpTree {
    let mut tree = OpTree::default();
    for event in events {
        tree.apply(event);
    }
    tree
}

#[test]
fn calls_of_a_sub_agent_are_nested_under_the_parent_call() {
    let first = operation(1, 1, 1, None);
    let agent = operation(2, 1, 1, None);
    let inner = operation(3, 2, 3, Some(2));
    let innermost = operation(4, 3, 1, Some(3));
    let later = operation(5, 1, 2, None);
    let tree = tree_of(&[
        started(&first),
        finished(&first, None),
        started(&agent),
        started(&inner),
        finished(&innermost, Some(ToolErrorKind::Denied)),
        finished(&inner, None),
        finished(&agent, None),
        started(&later),
    ]);
    assert_eq!(drawn(&tree), "1-1 c1 ok; 1-2 c2 ok; 1-2.3-1 c3 ok; 1-2.3-1.1-1 c4 denied; 2-1 c5 runs; ");
    assert_eq!(tree.path(OperationId(4)), Some("1-2.3-1.1-1"));
    let totals = tree.totals();
    assert_eq!((totals.calls, totals.errors, totals.bytes_in, totals.bytes_out), (4, 1, 8, 40));
    assert_eq!(totals.latency, Duration::from_millis(10), "the latency of nested calls is not added again");
}

#[test]
fn calls_with_equal_ids_are_separate_tree_nodes() {
    let [one, two] = [1, 2].map(|id| {
        let named =
            CallOperation { call: CallId("same".into()), ..CallOperation::clone(&operation(id, 1, 1, None)) };
        Arc::new(named)
    });
    let tree = tree_of(&[started(&one), started(&two), finished(&two, None)]);
    assert_eq!(drawn(&tree), "1-1 same runs; 1-2 same ok; ");
}

#[test]
fn tree_counts_calls_beyond_its_limit_without_storing_them() {
    let mut tree = OpTree::new(2);
    for id in 0..100 {
        let operation = operation(id, u128::from(id), 1, None);
        tree.apply(&started(&operation));
        tree.apply(&finished(&operation, None));
    }
    assert_eq!((tree.operations.len(), tree.sessions.len(), tree.kept.len()), (2, 2, 2));
    assert_eq!((tree.totals().calls, tree.left_out()), (100, 98));
}

proptest! {
    /// For any events in any order, the tree loses no call and counts no call twice, and the paths within a session
    /// differ.
    #[test]
    fn tree_counts_each_call_once_whatever_the_order_of_its_events(asked in prop::collection::vec((1_u32..4, prop::option::of(0_u64..20), any::<bool>()), 0..20)) {
        let operations: Vec<_> = asked.iter().zip(0_u64..).map(|((turn, parent, _), id)| {
            operation(id, parent.map_or(1_000, u128::from), *turn, *parent)
        }).collect();
        let mut tree = OpTree::default();
        for (operation, (_, _, first)) in operations.iter().zip(&asked) {
            if *first {
                tree.apply(&started(operation));
            }
        }
        for operation in operations.iter().rev() {
            tree.apply(&finished(operation, None));
        }
        prop_assert_eq!(tree.totals().calls, asked.len() as u64);
        prop_assert_eq!(tree.operations.len(), asked.len());
        for session in &tree.sessions {
            let paths: Vec<_> = session.turns.iter().flat_map(|turn| tree.operations(turn)).map(|node| &node.path).collect();
            let mut unique = paths.clone();
            unique.sort();
            unique.dedup();
            prop_assert_eq!(unique.len(), paths.len());
        }
    }
}

fn place(session: u128, turn: u32, parent: Option<u64>) -> RunPosition {
    let parent = parent.map(OperationId);
    RunPosition { session: SessionId(session), turn, parent, origin: SessionId(session) }
}

fn attempt(number: u32) -> ModelAttempt {
    ModelAttempt { provider: "p".into(), model: "m".into(), number }
}

fn asked(place: RunPosition, number: u32) -> Event {
    Event::ModelStarted { id: "1".into(), place, attempt: attempt(number) }
}

fn told(place: RunPosition, number: u32, failure: Option<ModelErrorKind>) -> Event {
    let account = ModelAccount {
        failure,
        latency: Duration::from_millis(1),
        first_event: None,
        usage: Some(TokenUsage { input: 10, output: 2, ..TokenUsage::default() }),
        cost: Some(Cost { nano_usd: 5 }),
        next: AttemptFollowUp::Nothing,
    };
    Event::ModelFinished {
        id: "1".into(),
        place,
        attempt: attempt(number),
        principal: Principal::local(),
        account,
    }
}

#[test]
fn model_attempts_count_in_their_turn_and_in_the_totals() {
    let mut tree = OpTree::new(3);
    let (first, second) = (place(1, 1, None), place(1, 2, None));
    for event in [
        asked(first, 1),
        told(first, 1, Some(ModelErrorKind::Overloaded)),
        asked(first, 2),
        told(first, 2, None),
        asked(second, 1),
    ] {
        tree.apply(&event);
    }
    let session = tree.roots().next().unwrap();
    let ends: Vec<Vec<_>> = tree
        .turns(session)
        .iter()
        .map(|turn| turn.models.iter().map(|node| node.account.as_ref().map(|one| one.failure)).collect())
        .collect();
    assert_eq!(ends, [vec![Some(Some(ModelErrorKind::Overloaded)), Some(None)], vec![None]]);
    // The tree is full, so it counts a fourth attempt but does not store it.
    tree.apply(&asked(second, 2));
    tree.apply(&told(second, 2, None));
    assert_eq!(tree.turns(tree.roots().next().unwrap())[1].models.len(), 1);
    let totals = tree.totals();
    assert_eq!((totals.requests, totals.tokens_in, totals.tokens_out, totals.cost.nano_usd), (3, 30, 6, 15));
}

#[test]
fn calls_of_the_runs_own_tools_are_nodes_of_their_turn() {
    let place = RunPosition::first(SessionId(1));
    let said = |index: usize, id: &str, name: &str| {
        let part = PartStart::Call { id: CallId(id.into()), name: name.into() };
        let event = RunEvent::Model(ModelEvent::PartStarted { index, part, mark: None });
        Event::Run { place, event: Arc::new(event) }
    };
    let mut tree = OpTree::default();
    for event in [said(0, "b1", BATCH), said(1, "c1", BATCH), said(2, "r1", "read"), said(0, "b1", BATCH)] {
        tree.apply(&event);
    }
    // The second call belongs to a provider's tool that has the same name as a tool of the run itself.
    tree.apply(&started(&operation(1, 1, 1, None)));
    let root = tree.roots().next().unwrap();
    let own: Vec<&str> = tree.turns(root)[0].own_calls.iter().map(|own| own.call.as_str()).collect();
    assert_eq!((own, tree.totals().calls), (vec!["b1"], 0));
}
