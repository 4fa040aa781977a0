//! The limit on open files of `haft serve`.

use haft_config::resolved::ServeSettings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of descriptors that a run in progress can hold: the connection to the model, and the journal.
const FILES_PER_RUN: u64 = 2;

/// The number of descriptors for everything else, such as MCP servers, stores and logs.
const OTHER_FILES: u64 = 256;

/// Raises the limit on open files as far as the system allows, and returns the new limit. Most systems start services
/// with a limit of 1024, because old programs fail with more; a server with this limit would refuse connections before
/// it reaches its own limits. Commands are not affected, because the sandbox sets their limit.
pub(super) fn raise_limit() -> u64 {
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: now.maximum, maximum: now.maximum };
    let limit = if setrlimit(Resource::Nofile, raised).is_ok() { now.maximum } else { now.current };
    limit.unwrap_or(u64::MAX)
}

/// Returns a warning if the limit is too low for the connections and runs that the configuration allows.
pub(super) fn shortage(limit: u64, serve: &ServeSettings) -> Option<String> {
    let connections = count(serve.connections_max);
    let runs = count(serve.run_limits.concurrent_runs_max).saturating_mul(FILES_PER_RUN);
    let needed = connections.saturating_add(runs).saturating_add(OTHER_FILES);
    (limit < needed).then(|| {
        format!(
            "the server can open {limit} files, but `serve.maxConnections` and `serve.maxRuns` need {needed}; raise the \
             hard limit (`LimitNOFILE` of systemd, `ulimit -Hn`) or lower these two keys"
        )
    })
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_below_the_configured_connections_and_runs_is_reported() {
        let mut serve = ServeSettings::default();
        (serve.connections_max, serve.run_limits.concurrent_runs_max) = (1_000, 100);
        assert_eq!(shortage(1_456, &serve), None);
        let warning = shortage(1_455, &serve).unwrap();
        assert!(warning.contains("can open 1455 files") && warning.contains("need 1456"), "{warning}");
        serve.connections_max = usize::MAX;
        assert!(shortage(u64::MAX - 1, &serve).is_some());
    }
}
