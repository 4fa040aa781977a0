//! Resolves the configuration that was read from the files: fills in defaults and checks references between keys.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use haft_core::name::{GroupName, NameError, QueueName};
use haft_core::naming::NamingScheme;
use haft_core::settings::mcp::KeyringPreference;
use haft_core::settings::mode::SandboxMode;
use haft_core::settings::outputs::{OutputReadSettings, StoreLimits};
use haft_core::settings::sandbox::GitMetadata;
use haft_core::tool::ApprovalPolicy;
use haft_core::validate::SchemaDraft;

use haft_core::glob::ToolGlob;

use super::error::ConfigError;
use super::expand::VariableSource;
use super::glob::tool_glob;
use super::layers::ConfigLayers;
use super::position::{child, item};
use super::resolved::{self, CacheTtl, ResolvedConfig};
use super::value_format::{GlobText, GroupText, MemberText, Millis, PathText, Ttl, TtlForm};
use super::written::{self, RawConfig};
use super::{default, groups};
use haft_core::settings::sessions::SessionLimits;
use haft_core::settings::tool_search::{ToolExposeForm, ToolSearchMode, ToolSearchSettings};

/// The tool whose commands policy rules can match.
const SHELL: &str = "bash";

/// The tool names with which `claude-code` requests permission to use its shell, one for each naming scheme.
const CLAUDE_CODE_SHELLS: [&str; 3] = ["claude_code__Bash", "mcp__claude_code__Bash", "claude_code_Bash"];

/// Fills in defaults and checks references between keys; returns every error.
pub(super) fn resolve(
    written: RawConfig,
    layers: &ConfigLayers,
    variables: VariableSource<'_>,
) -> Result<ResolvedConfig, Vec<ConfigError>> {
    let mut resolver = ConfigResolver { layers, variables, errors: Vec::new() };
    let meant = resolver.all(written);
    if resolver.errors.is_empty() { Ok(meant) } else { Err(resolver.errors) }
}

pub(super) struct ConfigResolver<'a> {
    layers: &'a ConfigLayers,
    pub(super) variables: VariableSource<'a>,
    errors: Vec<ConfigError>,
}

impl ConfigResolver<'_> {
    fn all(&mut self, written: RawConfig) -> ResolvedConfig {
        let providers = self.providers(written.providers.unwrap_or_default());
        let queues = self.queues(written.queues.unwrap_or_default());
        let rest = self.rest(written.rest_tools, written.openapi_specs, &queues);
        ResolvedConfig {
            sandbox: self.sandbox(written.sandbox.unwrap_or_default()),
            naming: written.naming.map_or(NamingScheme::Double, Into::into),
            tool_timeout: written
                .tool_timeout
                .map_or(Duration::from_millis(default::TOOL_TIMEOUT_MS), duration),
            tool_response_bytes_max: count(
                written.max_tool_response_bytes.unwrap_or(default::TOOL_RESPONSE_BYTES_MAX),
            ),
            tools: self.tools(written.tools.unwrap_or_default(), &queues),
            tools_allowed: match written.tools_allowed {
                Some(globs) => self.globs("toolsAllowed", &globs),
                None => self.globs("toolsAllowed", &[GlobText("*".into())]),
            },
            tools_denied: self.globs("toolsDenied", &written.tools_denied.unwrap_or_default()),
            groups: self.groups(written.groups.unwrap_or_default()),
            active_groups: written.active_groups.map(|names| self.group_names("activeGroups", &names)),
            tool_search: ToolSearchSettings {
                mode: written.tool_search.map_or(ToolSearchMode::Auto, Into::into),
                always_show: self.globs("alwaysShow", &written.always_show.unwrap_or_default()),
                expose: written.expose.map_or(ToolExposeForm::Auto, Into::into),
            },
            catalog: catalog(written.catalog.unwrap_or_default()),
            gateway: self.gateway(written.gateway.unwrap_or_default()),
            mcp_servers: self.mcp_servers(written.mcp_servers.unwrap_or_default(), &queues),
            trace_mcp: written.trace_mcp.unwrap_or(false),
            token_store: written.token_store.map_or(KeyringPreference::WhereThereIsOne, Into::into),
            route: written.route.unwrap_or(false),
            instructions: written.instructions.unwrap_or(true),
            project_instructions: written.project_instructions.unwrap_or(true),
            mcp_ready_wait: (written.mcp.unwrap_or_default().ready_wait)
                .map_or(Duration::from_millis(default::MCP_READY_WAIT_MS), duration),
            mcp_starts_max: count(written.max_mcp_starts.unwrap_or(default::MCP_STARTS_MAX)),
            queues,
            cache: cache(&written.cache.unwrap_or_default()),
            policy: self.policy(written.policy.unwrap_or_default()),
            tool_output: tool_output(written.tool_output.unwrap_or_default()),
            compaction: self.compaction(written.compaction.unwrap_or_default(), &providers),
            sessions: sessions(written.sessions.unwrap_or_default()),
            validation: validation(&written.validation.unwrap_or_default()),
            telemetry: telemetry(&written.telemetry.unwrap_or_default()),
            models: self.models(written.models.unwrap_or_default(), &providers),
            providers,
            rest,
            serve: self.serve(written.serve.unwrap_or_default()),
            // `load` reads the lock file, which is not part of the configuration files.
            tool_lock: None,
        }
    }

    fn sandbox(&mut self, written: written::RawSandbox) -> resolved::SandboxSettings {
        resolved::SandboxSettings {
            mode: written.mode.map_or(SandboxMode::Workspace, Into::into),
            workspace: written.workspace.map(|path| path.0.into()),
            writable: paths(written.writable),
            readable: paths(written.readable),
            secrets: paths(written.secrets),
            network: written.network.map(Into::into),
            unix_sockets: written.unix_sockets.map(Into::into),
            git: written.git.map_or(GitMetadata::Frozen, Into::into),
            environment: written.environment.unwrap_or_default().into_iter().map(|name| name.0).collect(),
            limits: self.limits(&written.limits.unwrap_or_default()),
        }
    }

    fn limits(&mut self, written: &written::RawSandboxLimits) -> haft_core::settings::limits::CommandLimits {
        let mut limits = haft_core::settings::limits::CommandLimits::default();
        let rows = [
            ("processes", "processes", written.processes),
            ("openFiles", "open-files", written.open_files),
            ("fileBytes", "file-bytes", written.file_bytes),
            ("cpuTime", "cpu-time", written.cpu_time.as_ref().map(|Millis(millis)| millis.div_ceil(1000))),
            ("memoryBytes", "memory-bytes", written.memory_bytes),
            ("shmBytes", "shm-bytes", written.shm_bytes),
        ];
        for (key, name, value) in rows {
            if let Some(Err(error)) = value.map(|value| limits.set(name, value)) {
                self.wrong(&child("sandbox.limits", key), error.to_string());
            }
        }
        limits
    }

    fn tools(
        &mut self,
        written: BTreeMap<String, written::RawTool>,
        queues: &BTreeMap<QueueName, resolved::QueueSettings>,
    ) -> Vec<(ToolGlob, resolved::PerToolSettings)> {
        let mut tools = Vec::new();
        for (pattern, tool) in written {
            let path = child("tools", &pattern);
            let Some(glob) = self.checked(&path, tool_glob(&pattern)) else { continue };
            let tool = self.tool(&path, tool, queues);
            tools.push((glob, tool));
        }
        // The sort is stable and the map is alphabetical, so patterns of equal specificity have a fixed order too.
        tools.sort_by_key(|(glob, _)| glob.specificity());
        tools
    }

    fn tool(
        &mut self,
        path: &str,
        written: written::RawTool,
        queues: &BTreeMap<QueueName, resolved::QueueSettings>,
    ) -> resolved::PerToolSettings {
        let queue = written.queue.and_then(|name| self.queue(&child(path, "queue"), &name.0, queues));
        resolved::PerToolSettings {
            timeout: written.timeout.map(duration),
            idle_timeout: written.idle_timeout.map(duration),
            output: written.output.map(Into::into),
            bytes_max: written.max_bytes.map(count),
            queue,
            priority: written.priority.map(Into::into),
            cache: written.cache.as_ref().map(cache_for),
            effects: written.effects.map(Into::into),
            enabled: written.enabled,
        }
    }

    /// Returns a queue name. Reports an error if `queues` does not define it.
    pub(super) fn queue(
        &mut self,
        path: &str,
        name: &str,
        queues: &BTreeMap<QueueName, resolved::QueueSettings>,
    ) -> Option<QueueName> {
        let name = self.checked_name(path, QueueName::new(name))?;
        if !queues.contains_key(&name) {
            let known: Vec<&str> = queues.keys().map(QueueName::as_str).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            self.wrong(path, format!("there is no queue `{name}`; `queues` defines {known}"));
        }
        Some(name)
    }

    fn queues(
        &mut self,
        written: BTreeMap<String, written::RawQueue>,
    ) -> BTreeMap<QueueName, resolved::QueueSettings> {
        let mut queues = BTreeMap::new();
        for (name, queue) in written {
            let Some(name) = self.checked_name(&child("queues", &name), QueueName::new(&name)) else {
                continue;
            };
            let queue = resolved::QueueSettings {
                concurrent: count(queue.max_concurrency.unwrap_or(default::QUEUE_CONCURRENT)),
                waiting_max: count(queue.max_waiting.unwrap_or(default::QUEUE_WAITING_MAX)),
                timeout: queue.timeout.map(duration),
            };
            queues.insert(name, queue);
        }
        queues
    }

    fn groups(&mut self, written: BTreeMap<String, Vec<MemberText>>) -> BTreeMap<GroupName, Vec<ToolGlob>> {
        let texts = |members: Vec<MemberText>| members.into_iter().map(|member| member.0).collect();
        let written = written.into_iter().map(|(name, members)| (name, texts(members))).collect();
        let flat = groups::flatten(&written).unwrap_or_else(|errors| {
            for (path, message) in errors {
                self.wrong(&path, message);
            }
            BTreeMap::new()
        });
        flat.into_iter()
            .filter_map(|(name, globs)| {
                Some((self.checked_name(&child("groups", &name), GroupName::new(&name))?, globs))
            })
            .collect()
    }

    /// Checks only the form of group names. Tool providers (a server, the built-in tools) define groups too, so an
    /// unknown name is not an error.
    pub(super) fn group_names(&mut self, path: &str, names: &[GroupText]) -> Vec<GroupName> {
        let names = names.iter().enumerate();
        names
            .filter_map(|(index, name)| self.checked_name(&item(path, index), GroupName::new(&name.0)))
            .collect()
    }

    fn policy(&mut self, written: written::RawPolicy) -> resolved::PolicySettings {
        let rules = written.rules.unwrap_or_default().into_iter().enumerate();
        resolved::PolicySettings {
            after_untrusted: written.after_untrusted.map_or(ApprovalPolicy::Allow, Into::into),
            default: written.default.map_or(ApprovalPolicy::Allow, Into::into),
            keep_approvals: written.keep_approvals.map(duration),
            rules: rules.filter_map(|(index, rule)| self.rule(&item("policy.rules", index), rule)).collect(),
        }
    }

    fn rule(&mut self, path: &str, written: written::RawPolicyRule) -> Option<resolved::PolicyRule> {
        let tool = self.checked(&child(path, "tool"), tool_glob(&written.tool.0))?;
        let runs_commands = [SHELL].iter().chain(&CLAUDE_CODE_SHELLS).any(|name| tool.matches(name));
        if written.command.is_some() && !runs_commands {
            let message =
                format!("the key `command` works only with the tool `{SHELL}`, but `tool` is `{tool}`");
            self.wrong(&child(path, "command"), message);
        }
        Some(resolved::PolicyRule { tool, command: written.command, decision: written.decision.into() })
    }

    pub(super) fn globs(&mut self, path: &str, written: &[GlobText]) -> Vec<ToolGlob> {
        let globs = written.iter().enumerate();
        globs.filter_map(|(index, glob)| self.checked(&item(path, index), tool_glob(&glob.0))).collect()
    }

    pub(super) fn checked_name<T>(&mut self, path: &str, checked: Result<T, NameError>) -> Option<T> {
        self.checked(path, checked.map_err(|error| error.to_string()))
    }

    pub(super) fn checked<T>(&mut self, path: &str, checked: Result<T, String>) -> Option<T> {
        checked.map_err(|message| self.wrong(path, message)).ok()
    }

    pub(super) fn wrong(&mut self, path: &str, message: String) {
        self.errors.push(self.layers.error(path, message));
    }
}

fn paths(written: Option<Vec<PathText>>) -> Vec<PathBuf> {
    written.unwrap_or_default().into_iter().map(|path| path.0.into()).collect()
}

pub(super) fn duration(Millis(millis): Millis) -> Duration {
    Duration::from_millis(millis)
}

/// Converts a count. A number that is too large for `usize` becomes its maximum.
pub(super) fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

pub(super) fn cache_for(ttl: &Ttl) -> CacheTtl {
    match &ttl.0 {
        TtlForm::Millis(millis) => CacheTtl::Time(Duration::from_millis(*millis)),
        TtlForm::Off(_) => CacheTtl::Off,
    }
}

fn catalog(written: written::RawCatalog) -> resolved::CatalogSettings {
    resolved::CatalogSettings {
        tools_per_provider_max: count(
            written.max_tools_per_provider.unwrap_or(default::TOOLS_PER_PROVIDER_MAX),
        ),
        warmup_timeout: written
            .warmup_timeout
            .map_or(Duration::from_millis(default::WARMUP_TIMEOUT_MS), duration),
    }
}

fn cache(written: &written::RawCache) -> resolved::CacheSettings {
    resolved::CacheSettings {
        entries_max: written.max_entries.unwrap_or(default::CACHE_ENTRIES_MAX),
        bytes_max: written.max_bytes.unwrap_or(default::CACHE_BYTES_MAX),
    }
}

fn tool_output(written: written::RawToolOutput) -> resolved::ToolOutputSettings {
    let reading = OutputReadSettings {
        chunks_max: count(written.max_chunks.unwrap_or(default::OUTPUT_CHUNKS_MAX)),
        overlap_percent: count(written.overlap_percent.unwrap_or(default::OUTPUT_OVERLAP_PERCENT)),
        avg_line_bytes_threshold: count(
            written.avg_line_bytes_threshold.unwrap_or(default::OUTPUT_AVG_LINE_BYTES),
        ),
    };
    let limits = StoreLimits {
        output_bytes_max: written.max_output_bytes.unwrap_or(default::STORE_OUTPUT_BYTES_MAX),
        total_bytes_max: written.max_total_bytes.unwrap_or(default::STORE_TOTAL_BYTES_MAX),
        keep: written.keep.map_or(Duration::from_millis(default::STORE_KEEP_MS), duration),
    };
    resolved::ToolOutputSettings { enabled: written.enabled.unwrap_or(true), reading, limits }
}

fn sessions(written: written::RawSessions) -> resolved::SessionSettings {
    let limits = SessionLimits {
        bytes_max: written.max_bytes.unwrap_or(default::SESSION_BYTES_MAX),
        keep: written.keep.map_or(Duration::from_millis(default::SESSION_KEEP_MS), duration),
    };
    resolved::SessionSettings { enabled: written.enabled.unwrap_or(true), limits }
}

fn validation(written: &written::RawValidation) -> resolved::ValidationSettings {
    resolved::ValidationSettings {
        strict: written.strict.unwrap_or(false),
        draft: written.draft.map_or(SchemaDraft::Draft202012, Into::into),
    }
}

fn telemetry(written: &written::RawTelemetry) -> resolved::TelemetrySettings {
    resolved::TelemetrySettings { capture_content: written.capture_content.unwrap_or(false) }
}
