//! Records which files a call left behind that other programs may execute. The notes are part of the receipt, the
//! record of latency, sizes and other facts about the call.

use haft_core::provider::CallContext;
use haft_sandbox::WorkspaceScan;
use serde_json::json;

/// The maximum number of paths that one note lists.
const NOTED_PATHS_MAX: usize = 50;

/// Records two kinds of files that the command left behind: new repositories, whose git hooks and configuration are
/// protected only from the next call on, and files that editors and build tools execute or read as settings.
pub(super) fn note_changes(cx: &CallContext, before: &WorkspaceScan, after: &WorkspaceScan) {
    let topics = [
        ("new_repositories", after.new_repositories(before)),
        ("run_files_changed", after.changed_run_files(before)),
    ];
    for (topic, mut paths) in topics.into_iter().filter(|(_, paths)| !paths.is_empty()) {
        paths.truncate(NOTED_PATHS_MAX);
        cx.note(topic, json!(paths.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>()));
    }
    // Record whether the scan was incomplete even before the call. In that case the workspace is too large, and the
    // command is not the cause.
    if after.is_incomplete() {
        let since = if before.is_incomplete() { "before the call" } else { "since the call" };
        cx.note("scan_incomplete", json!(since));
    }
}
