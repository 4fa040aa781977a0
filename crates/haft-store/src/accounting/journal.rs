//! The journal: a line per call and per request to a model, appended as it ends.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haft_core::event::{Account, Consent, Event, EventSink, PolicyDecision, ToolSeen};
use haft_core::home::Home;
use haft_core::model_provider::{Attempt, ModelAccount, Next};
use haft_core::place::{Operation, Place};
use haft_core::provider::Principal;
use haft_core::result::ToolErrorKind;

use super::journal_file::{JournalFile, JournalFileLimits};
use super::record::{Audit, Line, ModelRecord, Record, Source, Standing};

/// Writes a line for every call that ends.
#[derive(Debug)]
pub struct Journal {
    file: Mutex<JournalFile>,
}

impl Journal {
    /// Opens the journal in haft's data. The caller reports a journal that cannot be written; calls go on without it.
    pub fn open(home: &Home) -> io::Result<Self> {
        let file = JournalFile::open(home, JournalFileLimits::default())?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// A short wait for the disk's cache is all that it takes.
    fn write(&self, line: &Line) {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).append(line);
    }
}

impl EventSink for Journal {
    fn emit(&self, event: Event) {
        match &event {
            Event::ToolFinished { operation, tool, failure, latency, account, said: _ } => {
                self.write(&Line::Tool(record(operation, tool, *failure, *latency, account)));
            }
            Event::ModelFinished { id, place, attempt, principal, account } => {
                self.write(&Line::Model(model_record(id, *place, attempt, principal, account)));
            }
            Event::ToolStarted { .. }
            | Event::ToolProgress { .. }
            | Event::ModelStarted { .. }
            | Event::Run { .. } => {}
        }
    }
}

pub fn record(
    operation: &Operation,
    tool: &ToolSeen,
    failure: Option<ToolErrorKind>,
    latency: Duration,
    account: &Account,
) -> Record {
    Record {
        timestamp_ms: now_ms(),
        status: if failure.is_none() { "ok" } else { "failed" }.into(),
        error_kind: failure.map(|kind| kind.name().to_owned()),
        tool: tool.name().to_owned(),
        call_id: operation.call.0.clone(),
        principal: account.principal.to_string(),
        latency_ms: millis(latency),
        bytes_in: account.bytes_in as u64,
        bytes_out: account.bytes_out as u64,
        executed: account.executed,
        cached: account.cached,
        arguments_digest: account.arguments.to_string(),
        source: source(tool),
        standing: standing(operation),
        audit: account.verdict.as_ref().map(audit).unwrap_or_default(),
    }
}

fn source(tool: &ToolSeen) -> Source {
    let identity = tool.known().map(|known| &known.identity);
    Source {
        provider_kind: identity.map(|identity| identity.kind.name().to_owned()),
        namespace: identity.map(|identity| identity.namespace.to_string()),
    }
}

fn standing(operation: &Operation) -> Standing {
    Standing {
        session: Some(operation.place.session.to_string()),
        turn: operation.place.turn,
        operation: operation.id.0,
        parent_operation: operation.place.parent.map(|parent| parent.0),
        origin: Some(operation.place.origin.to_string()),
    }
}

fn audit(verdict: &PolicyDecision) -> Audit {
    let (approver, answer) = match verdict.consent {
        None => (None, None),
        Some(Consent::Remembered) => (Some("remembered"), None),
        Some(Consent::Nobody) => (None, Some("nobody")),
        Some(Consent::Answered { approver, answer }) => (Some(approver), Some(answer.name())),
    };
    Audit {
        decision: Some(verdict.decision.name().to_owned()),
        rule: verdict.rule.as_deref().map(str::to_owned),
        approver: approver.map(str::to_owned),
        answer: answer.map(str::to_owned),
    }
}

pub fn model_record(
    id: &str,
    place: Place,
    attempt: &Attempt,
    principal: &Principal,
    account: &ModelAccount,
) -> ModelRecord {
    let usage = account.usage.unwrap_or_default();
    ModelRecord {
        timestamp_ms: now_ms(),
        status: if account.failure.is_none() { "ok" } else { "failed" }.into(),
        error_kind: account.failure.map(|kind| kind.name().to_owned()),
        provider: attempt.provider.to_string(),
        model: attempt.model.to_string(),
        request_id: id.to_owned(),
        session: Some(place.session.to_string()),
        turn: Some(place.turn),
        parent_operation: place.parent.map(|operation| operation.0),
        attempt: attempt.number,
        principal: principal.to_string(),
        latency_ms: millis(account.latency),
        first_event_ms: account.first_event.map(millis),
        input_tokens: usage.input,
        output_tokens: usage.output,
        cache_read_tokens: usage.cache_read,
        cache_write_tokens: usage.cache_write,
        reasoning_tokens: usage.reasoning,
        cost_nano_usd: account.cost.map(|cost| cost.nano_usd),
        retry_after_ms: match account.next {
            Next::Nothing => None,
            Next::Retry { after } => Some(millis(after)),
        },
    }
}

pub fn now_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use haft_core::approval::Answer;
    use haft_core::rules::Decision;

    use super::*;

    #[test]
    fn who_decided_is_written_in_words() {
        let check = |consent: Option<Consent>, approver: Option<&str>, answer: Option<&str>| {
            let found =
                audit(&PolicyDecision { decision: Decision::Ask, rule: Some("ask bash".into()), consent });
            assert_eq!((found.approver.as_deref(), found.answer.as_deref()), (approver, answer));
            assert_eq!((found.decision.as_deref(), found.rule.as_deref()), (Some("ask"), Some("ask bash")));
        };
        check(None, None, None);
        check(Some(Consent::Remembered), Some("remembered"), None);
        check(Some(Consent::Nobody), None, Some("nobody"));
        let answered = Consent::Answered { approver: "terminal", answer: Answer::AllowOnce };
        check(Some(answered), Some("terminal"), Some("allow_once"));
    }

    #[test]
    fn lines_of_an_older_haft_can_still_be_read() {
        let line = r#"{"type":"tool","timestampMs":1,"status":"ok","errorKind":null,"tool":"read","callId":"1",
            "principal":"local","latencyMs":2,"bytesIn":3,"bytesOut":4,"executed":true,"cached":false,"argumentsDigest":""}"#;
        let record: Record = serde_json::from_str(line).unwrap();
        assert_eq!((record.tool.as_str(), record.audit), ("read", Audit::default()));
    }
}
