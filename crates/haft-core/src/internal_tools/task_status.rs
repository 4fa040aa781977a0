//! The task status tool: the model reports its progress, and a complete status makes the next turn the last one.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use crate::arguments::RawArguments;
use crate::model_request::ModelTool;

/// The tool name that the model calls.
pub const TASK_STATUS: &str = "agent__task_status";

/// The progress that a model reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStatus {
    /// The stage of the task. The run treats `Completed` as complete only if `ready_for_final_report` is true and
    /// `need_to_run_more_tools` is false.
    pub state: TaskState,
    /// The completed work; it may be empty.
    pub done: String,
    /// The remaining work; it may be empty.
    pub pending: String,
    /// The current step, for display to the user.
    pub now: String,
    /// True if the model is ready to write the final report.
    pub ready_for_final_report: bool,
    /// True if the model intends to make more calls.
    pub need_to_run_more_tools: bool,
}

/// The stage of a task, as the model judges it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// The model has not worked on the task yet.
    Starting,
    /// The model works on the task.
    InProgress,
    /// The model considers the task done.
    Completed,
}

/// The effect of a status on the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskCompletion {
    /// The task is not completed.
    Working,
    /// The state is completed and both flags agree, so the next turn accepts only the final report.
    Complete,
    /// The state is completed, but a flag says that the model is not ready or needs more tools. The run continues
    /// unchanged.
    Contradictory,
}

#[derive(Deserialize)]
struct TaskStatusArguments {
    status: TaskStateArgument,
    #[serde(default)]
    done: String,
    #[serde(default)]
    pending: String,
    #[serde(default)]
    now: String,
    ready_for_final_report: bool,
    need_to_run_more_tools: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TaskStateArgument {
    Starting,
    InProgress,
    Completed,
}

impl TaskStatus {
    /// Returns the tool definition for the model.
    pub fn tool() -> ModelTool {
        let text = |description: &str| json!({"type": "string", "description": description});
        let flag = |description: &str| json!({"type": "boolean", "description": description});
        let schema = json!({
            "type": "object",
            "properties": {
                "status": {"type": "string", "enum": ["starting", "in-progress", "completed"]},
                "done": text("What has been completed."),
                "pending": text("What remains to be done."),
                "now": text("The step you take right now."),
                "ready_for_final_report": flag("Whether you know enough for the final report."),
                "need_to_run_more_tools": flag("Whether you still have to call tools."),
            },
            "required": ["status", "done", "pending", "now", "ready_for_final_report", "need_to_run_more_tools"],
        });
        let description =
            "Tells the user how the task is getting on. Call it together with other tools, not alone.";
        ModelTool {
            name: TASK_STATUS.into(),
            description: description.into(),
            input_schema: Arc::new(schema),
            strict: false,
        }
    }

    /// Parses a call of the tool. The error text is for the model.
    pub fn read(arguments: &RawArguments) -> Result<Self, String> {
        let TaskStatusArguments {
            status,
            done,
            pending,
            now,
            ready_for_final_report,
            need_to_run_more_tools,
        } = super::read(arguments)?;
        let state = match status {
            TaskStateArgument::Starting => TaskState::Starting,
            TaskStateArgument::InProgress => TaskState::InProgress,
            TaskStateArgument::Completed => TaskState::Completed,
        };
        Ok(Self { state, done, pending, now, ready_for_final_report, need_to_run_more_tools })
    }

    /// Returns the effect of this status on the run.
    pub fn completion(&self) -> TaskCompletion {
        match (self.state, self.ready_for_final_report, self.need_to_run_more_tools) {
            (TaskState::Completed, true, false) => TaskCompletion::Complete,
            (TaskState::Completed, _, _) => TaskCompletion::Contradictory,
            (TaskState::Starting | TaskState::InProgress, _, _) => TaskCompletion::Working,
        }
    }
}

impl TaskState {
    /// Returns the name that the model sends and every wire format uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::InProgress => "in-progress",
            Self::Completed => "completed",
        }
    }
}

impl TaskCompletion {
    /// Returns the reply to the model.
    pub fn message(self) -> &'static str {
        match self {
            Self::Working => "noted; go on with the task",
            Self::Complete => "noted; the task is complete: give your final answer now",
            Self::Contradictory => {
                "noted; you say `completed`, but not that you are ready for the final report without more tools: go on, \
                 or send the status again when both are true"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::validate::Schema;

    fn written(status: &str, ready: bool, more: bool) -> Value {
        json!({"status": status, "done": "a", "pending": "b", "now": "c", "ready_for_final_report": ready, "need_to_run_more_tools": more})
    }

    #[test]
    fn task_is_complete_only_if_all_three_fields_agree() {
        let check = |status: &str, ready: bool, more: bool, expected: TaskCompletion| {
            let call = written(status, ready, more);
            assert_eq!(
                Schema::compile(&TaskStatus::tool().input_schema).check(&call, call.to_string().len()),
                Ok(())
            );
            let status_name = status;
            let status = TaskStatus::read(&RawArguments::from_value(&call)).unwrap();
            assert_eq!(status.state.name(), status_name);
            assert_eq!(status.completion(), expected, "{call}");
        };
        check("completed", true, false, TaskCompletion::Complete);
        check("completed", true, true, TaskCompletion::Contradictory);
        check("completed", false, false, TaskCompletion::Contradictory);
        check("completed", false, true, TaskCompletion::Contradictory);
        check("in-progress", true, false, TaskCompletion::Working);
        check("starting", true, false, TaskCompletion::Working);
    }

    #[test]
    fn invalid_task_status_is_rejected_with_the_reason() {
        let check = |call: Value, part: &str| {
            let error = TaskStatus::read(&RawArguments::from_value(&call)).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        check(written("done", true, false), "unknown variant `done`");
        check(json!({"status": "starting"}), "ready_for_final_report");
        check(
            json!({"status": "starting", "ready_for_final_report": "yes", "need_to_run_more_tools": true}),
            "boolean",
        );
    }
}
