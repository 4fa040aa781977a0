//! The journal: a line per call and per request to a model, appended as it ends.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haft_core::event::{CallAccount, Event, EventSink, ToolReference};
use haft_core::event_log::{CallAudit, EventEnvelope, EventReader, ModelAudit};
use haft_core::home::Home;
use haft_core::model_provider::{ModelAccount, ModelAttempt};
use haft_core::position::{CallOperation, RunPosition};
use haft_core::provider::Principal;
use haft_core::result::ToolErrorKind;

use super::journal_file::{JournalFile, JournalFileLimits};
use super::record::{
    AccountingLine, ModelRecord, ToolRecord, ToolRecordAudit, ToolRecordPosition, ToolRecordSource,
};

/// Writes a line for every call and every attempt at a model that ends.
#[derive(Debug)]
pub struct AccountingJournal {
    state: Mutex<AccountingState>,
}

#[derive(Debug)]
struct AccountingState {
    file: JournalFile,
    reader: EventReader,
    seq: u64,
}

impl AccountingJournal {
    /// Opens the journal in haft's data. The caller reports a journal that cannot be written; calls go on without it.
    pub fn open(home: &Home) -> io::Result<Self> {
        let file = JournalFile::open(home, JournalFileLimits::default())?;
        let state = AccountingState { file, reader: EventReader::with_audit(), seq: 0 };
        Ok(Self { state: Mutex::new(state) })
    }

    /// Writes the event at once: it goes to the page cache of the system, which takes little time.
    fn write(&self, event: &Event) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).append(event);
    }
}

impl EventSink for AccountingJournal {
    fn emit(&self, event: Event) {
        match &event {
            Event::ToolFinished { .. } | Event::ModelFinished { .. } => self.write(&event),
            Event::ToolStarted { .. }
            | Event::ToolProgress { .. }
            | Event::ModelStarted { .. }
            | Event::Run { .. } => {}
        }
    }
}

impl AccountingState {
    /// Appends the event. Removes the content of a call even if the operator captures it, because capture is for log
    /// lines and telemetry.
    fn append(&mut self, event: &Event) {
        let Some((place, kind)) = self.reader.read(event) else { return };
        let Some(kind) = kind.without_content() else { return };
        self.seq += 1;
        let envelope = EventEnvelope::new(self.seq, Some(now_ms()), place, kind);
        self.file.append(&AccountingLine::Event(Box::new(envelope)));
    }
}

/// Returns the record of a call, for the journal of a session.
pub fn record(
    operation: &CallOperation,
    tool: &ToolReference,
    failure: Option<ToolErrorKind>,
    latency: Duration,
    account: &CallAccount,
) -> ToolRecord {
    let CallAudit { principal, arguments_digest, source, origin: _, decision, queue: _, handle: _ } =
        CallAudit::new(operation.place, tool, account);
    ToolRecord {
        timestamp_ms: now_ms(),
        status: if failure.is_none() { "ok" } else { "failed" }.into(),
        error_kind: failure.map(|kind| kind.name().to_owned()),
        tool: tool.name().to_owned(),
        call_id: operation.call.0.clone(),
        principal,
        latency_ms: millis(latency),
        bytes_in: account.bytes_in as u64,
        bytes_out: account.bytes_out as u64,
        executed: account.executed,
        cached: account.cached,
        untrusted: account.untrusted,
        arguments_digest,
        source: ToolRecordSource { provider_kind: source.provider_kind, namespace: source.namespace },
        standing: standing(operation),
        audit: ToolRecordAudit {
            decision: decision.decision,
            rule: decision.rule,
            approver: decision.approver,
            answer: decision.answer,
        },
    }
}

fn standing(operation: &CallOperation) -> ToolRecordPosition {
    ToolRecordPosition {
        session: Some(operation.place.session.to_string()),
        turn: operation.place.turn,
        operation: operation.id.0,
        parent_operation: operation.place.parent.map(|parent| parent.0),
        origin: Some(operation.place.origin.to_string()),
    }
}

/// Returns the record of an attempt at a model, for the journal of a session.
pub fn model_record(
    id: &str,
    place: RunPosition,
    attempt: &ModelAttempt,
    principal: &Principal,
    account: &ModelAccount,
) -> ModelRecord {
    let usage = account.usage.unwrap_or_default();
    let audit = ModelAudit::new(id, principal, account);
    ModelRecord {
        timestamp_ms: now_ms(),
        status: if account.failure.is_none() { "ok" } else { "failed" }.into(),
        error_kind: account.failure.map(|kind| kind.name().to_owned()),
        provider: attempt.provider.to_string(),
        model: attempt.model.to_string(),
        request_id: audit.request_id,
        session: Some(place.session.to_string()),
        turn: Some(place.turn),
        parent_operation: place.parent.map(|operation| operation.0),
        attempt: attempt.number,
        principal: audit.principal,
        latency_ms: millis(account.latency),
        first_event_ms: audit.first_event_ms,
        input_tokens: usage.input,
        output_tokens: usage.output,
        cache_read_tokens: usage.cache_read,
        cache_write_tokens: usage.cache_write,
        reasoning_tokens: usage.reasoning,
        cost_nano_usd: account.cost.map(|cost| cost.nano_usd),
        retry_after_ms: audit.retry_after_ms,
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
    use std::sync::Arc;

    use haft_core::digest::Digest;
    use haft_core::event::CapturedContent;
    use haft_core::event_log::LogEvent;
    use haft_core::model_provider::AttemptFollowUp;
    use haft_core::position::OperationId;
    use haft_core::tool::CallId;
    use serde_json::{Value, json};

    use super::*;

    /// A call whose content is captured, and an attempt at a model.
    fn events() -> [Event; 2] {
        let place = RunPosition::default();
        let account = CallAccount {
            principal: Principal::local(),
            executed: true,
            cached: false,
            untrusted: false,
            bytes_in: 3,
            bytes_out: 4,
            arguments: Digest::of_text("canary"),
            verdict: None,
            queue: None,
            handle: None,
        };
        let content = CapturedContent { arguments: "canary".into(), result: "canary".into() };
        let (latency, id) = (Duration::from_millis(2), OperationId(7));
        let model = ModelAccount {
            failure: None,
            latency,
            first_event: None,
            usage: None,
            cost: None,
            next: AttemptFollowUp::Nothing,
        };
        [
            Event::ToolFinished {
                operation: Arc::new(CallOperation { id, call: CallId("c".into()), place }),
                tool: ToolReference::Written("nosuch".into()),
                failure: Some(ToolErrorKind::UnknownTool),
                latency,
                account,
                content: Some(Arc::new(content)),
            },
            Event::ModelFinished {
                id: "r".into(),
                place,
                attempt: ModelAttempt { provider: "p".into(), model: "m/n".into(), number: 2 },
                principal: Principal::local(),
                account: model,
            },
        ]
    }

    #[test]
    fn accounting_lines_have_audit_fields_and_no_content() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        std::fs::create_dir_all(home.data()).unwrap();
        let journal = AccountingJournal::open(&home).unwrap();
        for event in events() {
            journal.emit(event);
        }
        let text = std::fs::read_to_string(home.data().join("accounting.jsonl")).unwrap();
        assert!(!text.contains("canary"), "{text}");
        let lines: Vec<EventEnvelope> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.iter().map(|line| line.seq).collect::<Vec<_>>(), [1, 2]);
        assert!(lines.iter().all(|line| line.at.is_some_and(|at| at > 0)), "{text}");
        let fields = |kind: &LogEvent, names: &[&str]| -> Vec<Value> {
            let value = serde_json::to_value(kind).unwrap();
            names.iter().map(|name| value[name].clone()).collect()
        };
        let tool = fields(&lines[0].event.kind, &["type", "tool", "error_kind", "principal", "operation"]);
        assert_eq!(
            tool,
            [json!("tool_finished"), json!("nosuch"), json!("unknown_tool"), json!("local"), json!(7)]
        );
        let model = fields(&lines[1].event.kind, &["type", "model", "attempt", "request_id"]);
        assert_eq!(model, [json!("model_finished"), json!("p/m/n"), json!(2), json!("r")]);
        let summary = super::super::summarize(&home, 0).unwrap();
        assert_eq!((summary.tools.len(), summary.models[0].model.as_str()), (1, "p/m/n"));
        assert_eq!(summary.unreadable_lines, 0);
    }

    #[test]
    fn old_format_tool_record_is_still_readable() {
        let line = r#"{"type":"tool","timestampMs":1,"status":"ok","errorKind":null,"tool":"read","callId":"1",
            "principal":"local","latencyMs":2,"bytesIn":3,"bytesOut":4,"executed":true,"cached":false,"argumentsDigest":""}"#;
        let record: ToolRecord = serde_json::from_str(line).unwrap();
        assert_eq!((record.tool.as_str(), record.audit), ("read", ToolRecordAudit::default()));
    }
}
