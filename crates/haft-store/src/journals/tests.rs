use haft_core::conversation::{Conversation, Message};
use haft_core::event::{Event, EventSink};
use haft_core::home::Home;
use haft_core::model_error::ModelErrorKind;
use haft_core::model_provider::{AttemptFollowUp, ModelAccount, ModelAttempt};
use haft_core::model_request::ModelRequest;
use haft_core::position::RunPosition;
use haft_core::run::input::RunInput;
use haft_core::run::journal::{Durability, RunJournal};
use haft_core::run::{AgentRun, DriverReadings, RunPlan};
use proptest::prelude::*;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::sessions::{SessionLimits, SessionStore};

fn opened(id: u128, principal: &Principal) -> SessionStart {
    let mut conversation = Conversation::default();
    conversation.push(Message::user("what time is it?")).unwrap();
    let run = AgentRun::new(ModelRequest::new("m", Arc::new(conversation)), RunPlan::default());
    let mut opened = SessionStart::new(SessionId(id), "what time is it?", Value::Null, run.snapshot());
    opened.principal = Some((principal.tenant().to_owned(), principal.subject().to_owned()));
    opened
}

fn key(tenant: &str, run: u128) -> RunKey {
    RunKey { tenant: tenant.into(), run: SessionId(run) }
}

fn files(directory: &tempfile::TempDir) -> SessionStore {
    let limits = SessionLimits { bytes_max: 1 << 20, keep: Duration::from_hours(1) };
    SessionStore::of(&Home::at(directory.path()), limits)
}

/// Runs a test on every store.
async fn on_all(test: impl AsyncFn(&dyn JournalStore)) {
    test(&MemoryJournals::default()).await;
    test(&files(&tempfile::tempdir().unwrap())).await;
}

fn step(number: u64) -> RunInput {
    RunInput::Requested(number.to_string())
}

/// Returns the requests in a journal, and the number of its claims.
async fn content(store: &dyn JournalStore, key: &RunKey) -> (Vec<u64>, usize) {
    let lines = store.read(key, 0, usize::MAX).await.unwrap();
    let claims = lines.iter().filter(|line| matches!(line, SessionJournalLine::Resumed { .. })).count();
    let past = SessionHistory::of(lines.into_iter().map(Ok)).unwrap();
    (past.requests.iter().map(|text| text.parse().unwrap()).collect(), claims)
}

#[tokio::test]
async fn only_one_holder_at_a_time_can_append_to_a_journal() {
    on_all(async |store| {
        let (local, key) = (Principal::local(), key("local", 1));
        let journal = store.create(&key, opened(1, &local)).await.unwrap();
        assert_eq!(journal.epoch(), Epoch::FIRST);
        assert!(matches!(store.create(&key, opened(1, &local)).await, Err(SessionError::Exists { .. })));
        journal.append(&step(1)).unwrap();
        journal.sync(Durability::Synced).await.unwrap();
        assert!(matches!(store.claim(&key, Takeover::Never).await, Err(SessionError::Busy { .. })));
        assert!(matches!(store.remove(&key).await, Err(SessionError::Busy { .. })));
        drop(journal);
        let claimed = store.claim(&key, Takeover::Never).await.unwrap();
        assert_eq!((claimed.journal.epoch(), claimed.before), (Epoch(2), HolderBefore::Gone));
        assert_eq!(claimed.past.requests, ["1"]);
        claimed.journal.append(&step(2)).unwrap();
        drop(claimed);
        assert_eq!(content(store, &key).await, (vec![1, 2], 1));
        assert_eq!(store.read(&key, 2, 1).await.unwrap().len(), 1);
        assert_eq!(store.read(&key, 9, 1).await.unwrap().len(), 0);
        store.remove(&key).await.unwrap();
        assert!(matches!(store.read(&key, 0, 1).await, Err(SessionError::NotFound { .. })));
        assert!(matches!(store.claim(&key, Takeover::Never).await, Err(SessionError::NotFound { .. })));
    })
    .await;
}

#[tokio::test]
async fn journal_holder_is_fenced_after_a_takeover() {
    on_all(async |store| {
        let key = key("local", 1);
        let old = store.create(&key, opened(1, &Principal::local())).await.unwrap();
        old.append(&step(1)).unwrap();
        let new = store.claim(&key, Takeover::Allowed).await.unwrap();
        assert_eq!((new.before, new.past.requests.len()), (HolderBefore::Fenced, 1));
        let fenced = JournalError::Fenced { epoch: Epoch(1), by: Epoch(2) };
        assert_eq!(old.append(&step(90)), Err(fenced.clone()));
        assert_eq!(old.append(&step(91)), Err(fenced.clone()), "the old holder stays fenced");
        assert_eq!(old.sync(Durability::Synced).await, Err(fenced));
        new.journal.append(&step(2)).unwrap();
        assert_eq!(content(store, &key).await, (vec![1, 2], 1));
        let third = store.claim(&key, Takeover::Allowed).await.unwrap();
        assert_eq!(third.past.requests, ["1", "2"]);
        let by_third = JournalError::Fenced { epoch: Epoch(2), by: Epoch(3) };
        assert_eq!(new.journal.append(&step(92)), Err(by_third));
        third.journal.append(&step(3)).unwrap();
        drop((old, new));
        assert!(matches!(store.claim(&key, Takeover::Never).await, Err(SessionError::Busy { .. })));
        drop(third);
        let last = store.claim(&key, Takeover::Never).await.unwrap();
        assert_eq!(last.past.requests, ["1", "2", "3"]);
    })
    .await;
}

#[tokio::test]
async fn new_holder_keeps_its_claim_when_the_fenced_holder_ends() {
    on_all(async |store| {
        let key = key("local", 1);
        let local = Principal::local();
        let old = store.create(&key, opened(1, &local)).await.unwrap();
        let new = store.claim(&key, Takeover::Allowed).await.unwrap();
        drop(old);
        assert!(matches!(store.claim(&key, Takeover::Never).await, Err(SessionError::Busy { .. })));
        assert!(matches!(store.remove(&key).await, Err(SessionError::Busy { .. })));
        let page = RunListPage { skip: 0, count: 1 };
        assert!(store.list(&local, page).await.unwrap()[0].is_running);
        let third = store.claim(&key, Takeover::Allowed).await.unwrap();
        drop(new);
        assert!(matches!(store.claim(&key, Takeover::Never).await, Err(SessionError::Busy { .. })));
        drop(third);
        assert!(!store.list(&local, page).await.unwrap()[0].is_running);
        drop(store.claim(&key, Takeover::Never).await.unwrap());
        store.remove(&key).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn session_can_be_claimed_after_its_new_holder_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let store = files(&directory);
    let key = key("local", 1);
    drop(store.create(&key, opened(1, &Principal::local())).await.unwrap());
    // The kernel released the lock of the killed process, but the file is still there.
    let left = directory.path().join("data/sessions").join(format!("{}.takeover", key.run));
    std::fs::write(&left, "").unwrap();
    drop(store.claim(&key, Takeover::Never).await.unwrap());
    assert!(!left.exists());
    assert_eq!(store.ids().unwrap(), [key.run]);
}

#[tokio::test]
async fn runs_are_visible_only_to_their_tenant_and_subject() {
    on_all(async |store| {
        let anna = Principal::new("a", "anna", "");
        let all = [
            Principal::local(),
            anna.clone(),
            Principal::new("a", "bert", ""),
            Principal::new("b", "anna", ""),
        ];
        for (number, principal) in all.iter().enumerate() {
            let id = number as u128 + 1;
            drop(store.create(&key(principal.tenant(), id), opened(id, principal)).await.unwrap());
        }
        let mut below = opened(9, &anna);
        below.origin = Some(SessionId(2).to_string());
        let below = store.create(&key("a", 9), below).await.unwrap();
        for (number, principal) in all.iter().enumerate() {
            let page = RunListPage { skip: 0, count: 10 };
            let listed = store.list(principal, page).await.unwrap();
            let ids: Vec<u128> = listed.iter().map(|run| run.id.0).collect();
            assert_eq!(ids, [number as u128 + 1], "{principal}");
        }
        assert!(store.list(&anna, RunListPage { skip: 1, count: 10 }).await.unwrap().is_empty());
        assert!(store.claim(&key("b", 2), Takeover::Allowed).await.is_err());
        assert!(store.claim(&key("../a", 2), Takeover::Allowed).await.is_err());
        drop(below);
    })
    .await;
}

/// One step of several processes that share a journal.
#[derive(Debug, Clone, Copy)]
enum HolderAction {
    /// Holder `n` appends. It may be a holder that hung and now continues.
    Append(usize),
    /// A new process claims the journal: from any holder, or only from a holder that has ended.
    Claim(Takeover),
    /// Holder `n` is killed.
    Kill(usize),
    /// A reader reads the whole journal.
    Read,
}

fn acts() -> impl Strategy<Value = Vec<HolderAction>> {
    let act = prop_oneof![
        4 => (0..6_usize).prop_map(HolderAction::Append),
        1 => Just(HolderAction::Claim(Takeover::Allowed)),
        1 => Just(HolderAction::Claim(Takeover::Never)),
        1 => (0..6_usize).prop_map(HolderAction::Kill),
        2 => Just(HolderAction::Read),
    ];
    proptest::collection::vec(act, 1..60)
}

/// Performs the actions. After each one, checks that the journal contains exactly the lines of the newest holder at the
/// time of each append: no line of a fenced holder, no lost line, no line twice.
async fn play(store: &dyn JournalStore, acts: &[HolderAction]) {
    let key = key("local", 1);
    let mut holders = vec![Some(store.create(&key, opened(1, &Principal::local())).await.unwrap())];
    let (mut newest, mut expected, mut claims) = (0, Vec::new(), 0);
    let mut took_over = false;
    for (number, act) in acts.iter().enumerate() {
        let number = number as u64;
        match *act {
            HolderAction::Append(holder) => {
                let Some(Some(journal)) = holders.get(holder) else { continue };
                let outcome = journal.append(&step(number));
                if holder == newest {
                    assert_eq!(outcome, Ok(()), "{act:?}");
                    expected.push(number);
                } else {
                    assert!(matches!(outcome, Err(JournalError::Fenced { .. })), "{act:?} {outcome:?}");
                }
            }
            HolderAction::Claim(takeover) => {
                let claimed = store.claim(&key, takeover).await;
                let is_held = holders[newest].is_some();
                match claimed {
                    Ok(claimed) => {
                        let past: Vec<u64> =
                            claimed.past.requests.iter().map(|text| text.parse().unwrap()).collect();
                        assert_eq!(
                            past, expected,
                            "a new claim reads every line of earlier holders before their fencing"
                        );
                        // A holder that took over gets the file lock only with its first append after the fenced holder
                        // has ended.
                        assert!(!is_held || takeover == Takeover::Allowed || took_over);
                        took_over = claimed.before == HolderBefore::Fenced;
                        holders.push(Some(claimed.journal));
                        newest = holders.len() - 1;
                        claims += 1;
                    }
                    Err(error) => {
                        assert!(matches!(error, SessionError::Busy { .. }), "{error}");
                        assert!(holders.iter().any(Option::is_some) && takeover == Takeover::Never);
                    }
                }
            }
            HolderAction::Kill(holder) => {
                if let Some(journal) = holders.get_mut(holder) {
                    *journal = None;
                }
            }
            HolderAction::Read => assert_eq!(content(store, &key).await, (expected.clone(), claims)),
        }
    }
    assert_eq!(content(store, &key).await, (expected, claims));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn journal_lines_of_two_claims_are_never_mixed(acts in acts()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(play(&MemoryJournals::default(), &acts));
        runtime.block_on(play(&files(&tempfile::tempdir().unwrap()), &acts));
    }
}

#[test]
fn only_one_of_several_concurrent_claims_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let sessions = files(&directory);
    let (id, tries) = (SessionId(1), 8);
    let first = sessions.open(id, opened(1, &Principal::local())).unwrap();
    std::thread::scope(|scope| {
        let claim = |number: u64| {
            let sessions = &sessions;
            scope.spawn(move || {
                let claimed = sessions.resume(id, Takeover::Allowed).ok()?;
                let appended = claimed.journal.append(&step(number));
                Some((claimed, appended, number))
            })
        };
        let threads: Vec<_> = (0..tries).map(claim).collect();
        let claims: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect();
        let newest = claims.iter().map(|(claimed, ..)| claimed.journal.epoch()).max().unwrap();
        let wins = claims.iter().filter(|(claimed, ..)| claimed.journal.epoch() == newest);
        assert_eq!(wins.count(), 1, "exactly one claim succeeds per epoch");
        let appended = claims.iter().filter(|(_, appended, _)| appended.is_ok()).map(|(.., number)| *number);
        let mut appended: Vec<u64> = appended.collect();
        appended.sort_unstable();
        let mut stored: Vec<u64> =
            sessions.past(id).unwrap().requests.iter().map(|text| text.parse().unwrap()).collect();
        stored.sort_unstable();
        assert!(appended.iter().all(|number| stored.contains(number)), "{appended:?} {stored:?}");
    });
    assert!(first.append(&step(99)).is_err());
}

#[test]
fn append_to_a_removed_journal_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let journal = files(&directory).open(SessionId(1), opened(1, &Principal::local())).unwrap();
    journal.append(&step(1)).unwrap();
    std::fs::remove_dir_all(directory.path()).unwrap();
    let error = journal.append(&step(2)).unwrap_err();
    assert!(error.to_string().contains("was removed"), "{error}");
}

fn model_finished(session: u128, failure: Option<ModelErrorKind>) -> Event {
    let session = SessionId(session);
    Event::ModelFinished {
        id: "request".into(),
        place: RunPosition { session, turn: 1, parent: None, origin: session },
        attempt: ModelAttempt { provider: "scripted".into(), model: "m".into(), number: 1 },
        principal: Principal::local(),
        account: ModelAccount {
            failure,
            latency: Duration::ZERO,
            first_event: None,
            usage: None,
            cost: None,
            next: AttemptFollowUp::Nothing,
        },
    }
}

/// A turn needs fewer writes if its records wait for the next input. Two kinds of lines must not wait: an input, and a
/// record that no input follows at once.
#[tokio::test]
async fn journal_record_is_deferred_only_if_an_input_follows_directly() {
    on_all(async |store| {
        let key = key("local", 1);
        let journal = store.create(&key, opened(1, &Principal::local())).await.unwrap();
        let lines = async || store.read(&key, 0, usize::MAX).await.unwrap().len();
        journal.append(&RunInput::Stepped(DriverReadings::default())).unwrap();
        assert_eq!(lines().await, 2, "a step is written before the model request");
        journal.emit(model_finished(1, None));
        assert_eq!(lines().await, 2, "the record of a reply waits for the reply");
        journal.append(&step(1)).unwrap();
        assert_eq!(lines().await, 4, "an input is written at once, after the record that waited");
        journal.emit(model_finished(1, Some(ModelErrorKind::Overloaded)));
        assert_eq!(lines().await, 5, "the record of a failed attempt is written at once");
        journal.emit(model_finished(2, None));
        assert_eq!(lines().await, 6, "the record of a sub-agent is written at once");
        journal.emit(model_finished(1, None));
        journal.sync(Durability::Buffered).await.unwrap();
        assert_eq!(lines().await, 7);
        journal.emit(model_finished(1, None));
        drop(journal);
        assert_eq!(lines().await, 8);
    })
    .await;
}

#[tokio::test]
async fn deferred_lines_of_a_fenced_holder_are_not_stored() {
    on_all(async |store| {
        let key = key("local", 1);
        let old = store.create(&key, opened(1, &Principal::local())).await.unwrap();
        old.emit(model_finished(1, None));
        let new = store.claim(&key, Takeover::Allowed).await.unwrap();
        let fenced = JournalError::Fenced { epoch: Epoch(1), by: Epoch(2) };
        assert_eq!(old.sync(Durability::Buffered).await, Err(fenced));
        drop(old);
        new.journal.append(&step(1)).unwrap();
        let lines = store.read(&key, 0, usize::MAX).await.unwrap();
        assert!(!lines.iter().any(|line| matches!(line, SessionJournalLine::Model(_))), "{lines:?}");
    })
    .await;
}
