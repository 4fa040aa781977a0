use std::error::Error;

use haft_core::result::ToolErrorKind;
use haft_engine::CallOptions;

use crate::fake::{call, orchestrator, said};

#[tokio::test]
async fn panicking_tool_fails_only_its_own_call() {
    for tool in ["panic", "panic_early"] {
        let (orchestrator, log) = orchestrator();
        let calls = vec![call(tool, "{}"), call("echo", r#"{"text": "hi"}"#)];
        let results = orchestrator.execute_all(calls, CallOptions::default()).await;
        assert_eq!(results[0].error_kind(), Some(ToolErrorKind::Internal));
        assert_eq!(
            results[0].text(),
            format!("tool `{tool}` failed inside haft; other tools still work"),
            "the model gets no detail of the panic"
        );
        assert!(results[0].receipt.executed);
        let source = results[0].outcome.as_ref().unwrap_err().source().unwrap().to_string();
        assert!(source.contains("secret detail"), "{source}");
        assert_eq!(said(&results[1]), "echo: hi");
        assert!(log.lines().contains(&format!("c1 {tool} finished internal")));
    }
}
