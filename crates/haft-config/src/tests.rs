use std::fs;
use std::time::Duration;

use haft_core::naming::NamingScheme;
use haft_core::priority::Priority;
use haft_core::settings::mode::SandboxMode;
use haft_core::settings::outputs::StoreLimits;
use haft_core::settings::sandbox::ResourceAccess;
use haft_core::settings::tool_search::{ToolExposeForm, ToolSearchMode};
use haft_core::tool::{ApprovalPolicy, Effects};
use haft_core::validate::SchemaDraft;
use serde_json::json;

use super::resolved::{CacheTtl, CompactionStart, ExpandedSecret, McpEndpoint, OversizeAction, TokenTenant};
use super::*;
use haft_core::settings::server::KeyScope;
use haft_core::settings::sessions::SessionLimits;

/// A home directory, a project and a file next to them.
struct ConfigFixture {
    directory: tempfile::TempDir,
    home: Home,
}

impl ConfigFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(&directory.path().join("home"));
        crate::home::create(&home).unwrap();
        fs::create_dir(directory.path().join("project")).unwrap();
        Self { directory, home }
    }

    fn project(&self) -> PathBuf {
        self.directory.path().join("project").canonicalize().unwrap()
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().canonicalize().unwrap().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn trust(&self) {
        let path = self.project().join(FILE_NAME);
        let digest = digest_of(&path).unwrap();
        TrustRecord::change(&self.home, |record| {
            record.files.insert(path, digest);
        })
        .unwrap();
    }

    fn load(&self, named: Option<&Path>) -> Result<LoadedConfig, ConfigErrors> {
        load(ConfigSources { home: Some(&self.home), project: Some(&self.project()), named }, &|_| None)
    }
}

fn resolve_text(text: &str) -> Result<ResolvedConfig, String> {
    let fixture = ConfigFixture::new();
    let named = fixture.write("named.json", text);
    fixture.load(Some(&named)).map(|loaded| loaded.resolved).map_err(|errors| errors.to_string())
}

#[test]
fn schema_defaults_match_resolved_defaults() {
    let mut text = Value::Object(serde_json::Map::new());
    for key in document::keys().iter().filter(|key| !key.path.contains(['<', '['])) {
        if let Some(default) = &key.default {
            let value = key.path.split('.').fold(&mut text, |inside, part| {
                let inside = inside.as_object_mut().unwrap();
                inside.entry(part).or_insert_with(|| json!({}))
            });
            *value = default.clone();
        }
    }
    assert_eq!(resolve_text(&text.to_string()), resolve_text("{}"));
    let inside = json!({"queues": {"q": {"maxConcurrency": default::QUEUE_CONCURRENT, "maxWaiting": default::QUEUE_WAITING_MAX}}});
    assert_eq!(resolve_text(&inside.to_string()), resolve_text(r#"{"queues": {"q": {}}}"#));
}

#[test]
fn config_without_files_has_all_defaults() {
    let resolved = resolve_text("{}").unwrap();
    assert_eq!(resolved.sandbox.mode, SandboxMode::Workspace);
    assert_eq!(resolved.sandbox.limits, haft_core::settings::limits::CommandLimits::default());
    assert_eq!(resolved.naming, NamingScheme::Double);
    assert_eq!(resolved.tool_timeout, Duration::from_mins(5));
    assert_eq!(resolved.tool_response_bytes_max, 12_288);
    assert!(resolved.tools_allowed[0].matches("anything"));
    assert_eq!(resolved.policy.default, ApprovalPolicy::Allow);
    assert_eq!(resolved.active_groups, None);
}

/// A configuration that sets every key.
const EVERY_KEY: &str = r#"{
    "$schema": "https://example.com/haft.schema.json",
    "sandbox": {"mode": "network", "workspace": "/w", "writable": ["/a"], "readable": ["/b"], "secrets": ["/s"], "network": "deny",
        "unixSockets": "allow", "git": "writable", "environment": ["CI"],
        "limits": {"processes": 400, "openFiles": 1, "fileBytes": 2, "cpuTime": "3s", "memoryBytes": 4, "shmBytes": 5}},
    "naming": "bare", "toolTimeout": "2m", "maxToolResponseBytes": 100,
    "tools": {"*": {"timeout": "9s", "idleTimeout": "8s", "cache": "5m", "queue": "slow", "priority": "low"}, "git*": {"output": "pass", "maxBytes": 7, "cache": "off"},
        "github": {"effects": "read-only", "enabled": false, "timeout": 1}},
    "toolsAllowed": ["git*"], "toolsDenied": ["bash"],
    "groups": {"web": ["fetch"], "all": ["@web", "x"]}, "activeGroups": ["all", "builtin"],
    "toolSearch": "always", "alwaysShow": ["git__*"], "expose": "append",
    "catalog": {"maxToolsPerProvider": 3, "warmupTimeout": "4s"},
    "gateway": {"profiles": {"docs": {"tools": ["docs__*"], "groups": ["web"], "readOnly": true, "expose": "search", "clients": ["claude-*"]}}},
    "mcpServers": {
        "near": {"type": "stdio", "command": "npx", "args": ["-y", "x"], "env": {"KEY": "${NO_KEY:-k}"}, "cwd": "/srv",
            "enabled": false, "toolsAllowed": ["a*"], "toolsDenied": ["ab"], "toolSchemas": {"a": {"type": "object", "n": [1.5, null]}},
            "requestTimeout": "5s", "startupTimeout": 7, "healthProbe": "listTools", "sandbox": false,
            "writable": ["/srv/w"], "unixSockets": "allow", "sockets": ["/run/x.sock"], "effects": {"*": "mutating", "get*": "read-only"},
            "cache": "1m", "toolsCache": {"get*": "off"}, "queue": "slow", "shared": false},
        "far": {"url": "https://example.com/sse", "headers": {"Authorization": "Bearer ${NO_TOKEN}"}}},
    "maxMcpStarts": 3, "traceMCP": true,
    "queues": {"slow": {"maxConcurrency": 2, "maxWaiting": 5, "timeout": "30s"}},
    "cache": {"maxEntries": 1, "maxBytes": 2},
    "policy": {"default": "ask", "rules": [{"tool": "bash", "command": "rm *", "decision": "deny"}]},
    "toolOutput": {"enabled": false, "maxOutputBytes": 5, "maxTotalBytes": 6, "keep": "2h"},
    "compaction": {"at": "70%", "keep": 3, "model": "ollama/small"},
    "sessions": {"enabled": false, "maxBytes": 7, "keep": "3h"},
    "validation": {"strict": true, "draft": "2019-09"},
    "telemetry": {"captureContent": true},
    "serve": {"serverUrls": "off", "workspace": "perTenant", "maxWorkspaceBytes": 17, "workspaceKeep": "2d", "retention": {"keep": "4d", "maxResponses": 18, "maxBytes": 19}, "maxTenantBytes": 20, "minFreeDiskPercent": 21, "maxRuns": 3, "maxWaitingRuns": 4, "maxConnections": 22, "sendTimeout": "23s", "approvalTimeout": "1h", "approvalWebhook": {"url": "https://example.com/hook", "secret": "${NO_TOKEN}"}, "publicUrl": "https://haft.example.com/", "trustedProxies": ["127.0.0.1", "10.0.0.0/8"], "tls": {"certificate": "/c", "key": "/k"}, "issuers": [{"issuer": "https://login.example.com", "audience": ["haft"],
        "jwksUrl": "https://login.example.com/keys", "tenantClaim": "org", "subjectClaim": "email", "scopes": {"haft": ["api"]},
        "roles": {"operator": ["api", "admin"]}, "rolesClaim": "realm.roles", "limits": {"requestsPerMinute": 3}}]},
    "providers": {"mine": {"kind": "vllm", "baseUrl": "http://${HOST:-h}", "apiKey": "${KEY}", "headers": {"X": "y"},
        "format": "openai_responses", "extraBody": {"a": [1.5]}, "delivery": "whole", "connectTimeout": 1,
        "firstByteTimeout": 2, "chunkTimeout": 3, "requestTimeout": 4, "maxAttempts": 5, "maxRetryAfter": 6}},
    "models": {"default": "mine/a/b", "fast": "mine/f", "complex": "mine/c", "fallback": ["ollama/l"], "settings": {
        "mine/f": {"price": {"input": 0.5, "output": 2, "cacheRead": 0.05, "cacheWrite": 0.6}, "toolCalling": "prompted",
            "maxOutputTokens": 7, "contextTokens": 8}}},
}"#;

#[test]
fn every_limit_of_the_server_reaches_the_resolved_config() {
    let resolved = resolve_text(EVERY_KEY).unwrap();
    let storage = resolved::StorageSettings {
        keep: Duration::from_hours(96),
        responses_max: 18,
        bytes_max: 19,
        tenant_bytes_max: 20,
        free_disk_percent_min: 21,
    };
    assert_eq!(resolved.serve.storage, storage);
    assert_eq!(resolved.serve.connections_max, 22);
    assert_eq!(resolved.serve.send_timeout, Duration::from_secs(23));
    let proxies: Vec<String> = resolved.serve.trusted_proxies.iter().map(ToString::to_string).collect();
    assert_eq!(proxies, ["127.0.0.1/32", "10.0.0.0/8"]);
    let wrong =
        resolve_text(r#"{"serve": {"trustedProxies": ["10.0.0.0/8", "proxy.example.com"]}}"#).unwrap_err();
    assert!(wrong.contains("serve.trustedProxies[1]: expected an IP address or a network"), "{wrong}");
    let workspaces = &resolved.serve.workspaces;
    assert_eq!(
        (&workspaces.scope, workspaces.bytes_max, workspaces.keep.as_secs()),
        (&resolved::WorkspaceScope::Tenant, 17, 172_800)
    );
}

/// Returns the process of the server `near` in [`EVERY_KEY`].
fn near_process() -> McpEndpoint {
    McpEndpoint::Process {
        command: "npx".into(),
        args: vec![ExpandedSecret("-y".into()), ExpandedSecret("x".into())],
        env: [("KEY".to_owned(), ExpandedSecret("k".into()))].into(),
        directory: Some("/srv".into()),
        writable: vec!["/srv/w".into()],
        unix_sockets: Some(ResourceAccess::Allow),
        sockets: vec!["/run/x.sock".into()],
        confined: haft_core::settings::mcp::ServerConfinement::No,
    }
}

#[test]
fn every_config_key_reaches_the_resolved_config() {
    let resolved = resolve_text(EVERY_KEY).unwrap();
    let sandbox = &resolved.sandbox;
    assert_eq!((sandbox.mode, sandbox.workspace.as_deref()), (SandboxMode::Network, Some(Path::new("/w"))));
    assert_eq!(
        (sandbox.network, sandbox.unix_sockets),
        (Some(ResourceAccess::Deny), Some(ResourceAccess::Allow))
    );
    assert_eq!(
        (&sandbox.writable, &sandbox.readable),
        (&vec![PathBuf::from("/a")], &vec![PathBuf::from("/b")])
    );
    assert_eq!(sandbox.secrets, [PathBuf::from("/s")]);
    assert_eq!((sandbox.limits.processes_max, sandbox.limits.shm_bytes_max), (400, 5));
    let near = &resolved.mcp_servers["near"];
    assert!(!near.enabled && near.tools_allowed[0].matches("abc") && near.tools_denied[0].matches("ab"));
    assert_eq!(near.tool_schemas["a"]["n"], json!([1.5, null]));
    assert_eq!((near.request_timeout.as_millis(), near.startup_timeout.as_millis()), (5000, 7));
    assert_eq!(near.health_probe, haft_core::settings::mcp::HealthProbe::ListTools);
    assert_eq!(near.effects[0].1, haft_core::tool::Effects::ReadOnly);
    assert_eq!(near.cache_of("get_x"), Some(CacheTtl::Off));
    assert_eq!(near.cache_of("put_x"), Some(CacheTtl::Time(Duration::from_mins(1))));
    assert_eq!(
        (near.queue.as_ref().map(haft_core::name::QueueName::as_str), near.shared),
        (Some("slow"), false)
    );
    assert!(resolved.trace_mcp);
    assert_eq!(resolved.serve.server_urls, haft_core::settings::mcp::RequestedServers::Off);
    let search = &resolved.tool_search;
    assert_eq!((search.mode, search.expose), (ToolSearchMode::Always, ToolExposeForm::Append));
    assert!(search.always_show[0].matches("git__log"));
    assert_eq!(near.reach, Ok(near_process()));
    let unset = resolved.mcp_servers["far"].reach.as_ref().unwrap_err();
    assert!(unset.starts_with("mcpServers.far.headers.Authorization: variable `NO_TOKEN`"), "{unset}");
    assert_eq!(resolved.mcp_starts_max, 3);
    let tool = resolved.tool("GitHub");
    assert_eq!(tool.timeout, Some(Duration::from_millis(1)));
    assert_eq!(tool.idle_timeout, Some(Duration::from_secs(8)));
    assert_eq!(
        (tool.output, tool.bytes_max, tool.cache),
        (Some(OversizeAction::Pass), Some(7), Some(CacheTtl::Off))
    );
    assert_eq!((tool.effects, tool.enabled), (Some(Effects::ReadOnly), Some(false)));
    assert_eq!(tool.queue.as_ref().map(haft_core::name::QueueName::as_str), Some("slow"));
    assert_eq!(resolved.tool("other").cache, Some(CacheTtl::Time(Duration::from_mins(5))));
    let queue = resolved.queues.values().next().unwrap();
    assert_eq!((queue.concurrent, queue.waiting_max, queue.timeout), (2, 5, Some(Duration::from_secs(30))));
    assert_eq!(resolved.groups.values().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(resolved.policy.rules[0].decision, ApprovalPolicy::Deny);
    assert_eq!((resolved.tool_output.enabled, resolved.validation.strict), (false, true));
    let limits = StoreLimits { output_bytes_max: 5, total_bytes_max: 6, keep: Duration::from_hours(2) };
    assert_eq!(resolved.tool_output.limits, limits);
    let compaction = &resolved.compaction;
    assert_eq!((compaction.at, compaction.keep_turns), (CompactionStart::Percent(70), 3));
    assert_eq!(compaction.model.as_ref().unwrap().to_string(), "ollama/small");
    let limits = SessionLimits { bytes_max: 7, keep: Duration::from_hours(3) };
    assert_eq!((resolved.sessions.enabled, resolved.sessions.limits), (false, limits));
    let mine = &resolved.providers["mine"];
    assert_eq!(
        (mine.kind, mine.delivery, mine.format.map(haft_core::conversation::ModelApiFormat::name)),
        ("vllm", haft_core::settings::models::ReplyDelivery::Whole, Some("openai_responses"))
    );
    assert_eq!(
        (mine.base_url.as_ref().unwrap().0.as_str(), mine.api_key.as_ref().unwrap().0.as_str()),
        ("http://${HOST:-h}", "${KEY}")
    );
    assert_eq!((mine.headers["X"].0.as_str(), &mine.extra_body["a"]), ("y", &json!([1.5])));
    let times =
        [mine.timeouts.connect, mine.timeouts.first_byte, mine.timeouts.between_chunks, mine.timeouts.total];
    assert_eq!(times.map(|time| time.as_millis()), [1, 2, 3, 4]);
    assert_eq!((mine.retry.attempts_max, mine.retry.retry_after_max.as_millis()), (5, 6));
    let models = &resolved.models;
    let names =
        [&models.default, &models.fast, &models.complex].map(|name| name.as_ref().unwrap().to_string());
    assert_eq!(names, ["mine/a/b", "mine/f", "mine/c"]);
    assert_eq!(models.fallback[0].to_string(), "ollama/l");
    let (_, model) = models.settings.iter().next().unwrap();
    let price = haft_core::price::Price { input: 0.5, output: 2.0, cache_read: 0.05, cache_write: 0.6 };
    assert_eq!((model.price, model.output_tokens_max, model.context_tokens), (Some(price), Some(7), Some(8)));
    assert_eq!(model.tool_calling, Some(haft_core::settings::models::ToolCalling::Prompted));
    assert!(resolved.telemetry.capture_content);
    assert_eq!((resolved.validation.draft, tool.priority), (SchemaDraft::Draft201909, Some(Priority::Low)));
    assert_eq!(resolved.serve.tls.as_ref().unwrap().key, Path::new("/k"));
    let issuer = &resolved.serve.issuers[0];
    assert_eq!(issuer.audience, ["haft", "https://haft.example.com"]);
    assert_eq!(issuer.tenant, TokenTenant::Claim("org".into()));
    assert_eq!((&*issuer.subject_claim, &*issuer.roles_claim), ("email", "realm.roles"));
    assert_eq!((issuer.scopes["haft"].len(), issuer.roles["operator"][1]), (1, KeyScope::Admin));
    assert_eq!(issuer.limits.requests_per_minute, Some(3));
    assert_eq!(issuer.jwks_url.as_ref().unwrap().path(), "/keys");
    let catalog = &resolved.catalog;
    assert_eq!((catalog.tools_per_provider_max, catalog.warmup_timeout), (3, Duration::from_secs(4)));
}

#[test]
fn invalid_reference_between_keys_is_reported_with_its_position() {
    let check = |text: &str, expected: &str| {
        let told = resolve_text(text).unwrap_err();
        assert!(told.contains(expected), "{text}: {told}");
    };
    check(
        "{\"tools\": {\n\"bash\": {\"queue\": \"fast\"}}, \"queues\": {\"slow\": {}}}",
        "named.json:2:10: tools.bash.queue: there is no queue `fast`; `queues` defines slow",
    );
    check(
        "{\"groups\": {\n\"a\": [\"@b\"], \"b\": [\n\"x\", \"@a\"]}}",
        "named.json:3:6: groups.b[1]: the tool groups include each other in a cycle: a ► b ► a",
    );
    check("{\"groups\": {\"a\": [\"@b\"]}}", "named.json:1:19: groups.a[0]: there is no tool group `b`");
    check(
        "{\"policy\": {\"rules\": [{\"tool\": \"read\", \"command\": \"x\", \"decision\": \"ask\"}]}}",
        "policy.rules[0].command: the key `command` works only with the tool `bash`, but `tool` is `read`",
    );
    check("{\"models\": {\"default\": \"gpt-4o\"}}", "models.default: expected a model as PROVIDER/MODEL");
    check(
        "{\"models\": {\"fallback\": [\"nobody/m\"]}}",
        "models.fallback[0]: there is no model provider `nobody`; add the provider to `providers`, or use one of openai, ",
    );
    check(
        "{\"models\": {\"default\": \"ollama/a\", \"fast\": \"openai/b\"}}",
        "models.fast: expected a model from the same provider as `models.default`",
    );
}

#[test]
fn token_issuers_without_audience_or_with_shared_tenants_are_refused() {
    let check = |issuers: &str, expected: &str| {
        let text = format!(r#"{{"serve": {{"issuers": [{issuers}]}}}}"#);
        let told = resolve_text(&text).unwrap_err();
        assert!(told.contains(expected), "{text}: {told}");
    };
    let issuer =
        |more: &str| format!(r#"{{"issuer": "https://a.example", "scopes": {{"haft": ["api"]}}{more}}}"#);
    let other = r#"{"issuer": "https://b.example", "audience": ["h"], "scopes": {"haft": ["api"]}}"#;
    let aud = r#", "audience": ["h"]"#;
    check(&issuer(""), "serve.issuers[0]: set `audience` or `serve.publicUrl`");
    check(r#"{"issuer": "https://a.example", "audience": ["h"]}"#, "set `scopes` or `roles`");
    check(
        r#"{"issuer": "http://a.example", "scopes": {}}"#,
        "serve.issuers[0].issuer: expected an https URL",
    );
    check(&issuer(&format!(r#"{aud}, "tenant": "local""#)), "is reserved for the user of this machine");
    check(&issuer(&format!(r#"{aud}, "tenant": "a/b""#)), "contains a `/`");
    check(&issuer(&format!(r#"{aud}, "tenant": "a", "tenantClaim": "b""#)), "not both");
    check(&format!("{}, {other}", issuer(aud)), "two token issuers have the tenant `default`");
    check(&format!("{other}, {other}"), "listed twice");
    check(
        &format!("{}, {other}", issuer(&format!(r#"{aud}, "tenantClaim": "org""#))),
        "must be the only issuer",
    );
}

#[test]
fn trusted_project_and_named_files_override_home() {
    let fixture = ConfigFixture::new();
    fixture.write(
        "home/haft.json",
        r#"{"toolTimeout": "1s", "naming": "bare", "tools": {"a": {"maxBytes": 1}}}"#,
    );
    fixture.write("project/haft.json", r#"{"toolTimeout": "2s", "tools": {"a": {"timeout": 9}}}"#);
    let named = fixture.write("named.json", r#"{"maxToolResponseBytes": 3}"#);
    let timeout = |named| fixture.load(named).unwrap().resolved.tool_timeout;
    assert_eq!(timeout(None), Duration::from_secs(1));
    fixture.trust();
    assert_eq!(timeout(None), Duration::from_secs(2));
    let loaded = fixture.load(Some(&named)).unwrap();
    let from = |key: &str| {
        let rows = loaded.rows();
        let row = rows.iter().find(|row| row.key == key).unwrap();
        row.origin.as_ref().map(|origin| {
            origin.file.file_name().unwrap().to_str().unwrap().to_owned() + &origin.line.to_string()
        })
    };
    assert_eq!(from("maxToolResponseBytes").as_deref(), Some("named.json1"));
    assert_eq!(from("tools.a.maxBytes").as_deref(), Some("haft.json1"));
    assert_eq!(from("cache.maxBytes"), None);
    assert_eq!(loaded.files.iter().filter(|file| file.standing == ConfigFileStatus::Counts).count(), 3);
}

#[test]
fn untrusted_project_config_is_ignored() {
    let fixture = ConfigFixture::new();
    let standing = || fixture.load(None).unwrap().files.last().map(|file| file.standing.clone());
    assert_eq!(standing(), None);
    fixture.write("project/haft.json", "{ broken");
    assert_eq!(standing(), Some(ConfigFileStatus::Ignored(UntrustedReason::Never)));
    fixture.write("project/haft.json", r#"{"sandbox": {"mode": "full"}}"#);
    fixture.trust();
    assert_eq!(standing(), Some(ConfigFileStatus::Counts));
    fixture.write("project/haft.json", r#"{"sandbox": {"mode": "full" }}"#);
    assert_eq!(standing(), Some(ConfigFileStatus::Ignored(UntrustedReason::Changed)));
    assert_eq!(fixture.load(None).unwrap().resolved.sandbox.mode, SandboxMode::Workspace);
    fs::write(trust::path_in(&fixture.home), "nonsense").unwrap();
    assert!(matches!(standing(), Some(ConfigFileStatus::Ignored(UntrustedReason::Undecided(_)))));
}

#[test]
fn symlink_to_a_file_trusted_elsewhere_is_not_trusted() {
    let fixture = ConfigFixture::new();
    fixture.write("project/haft.json", r#"{"sandbox": {"mode": "full"}}"#);
    fixture.trust();
    let other = fixture.directory.path().join("other");
    fs::create_dir(&other).unwrap();
    std::os::unix::fs::symlink(fixture.project().join(FILE_NAME), other.join(FILE_NAME)).unwrap();
    let loaded =
        load(ConfigSources { home: Some(&fixture.home), project: Some(&other), named: None }, &|_| None)
            .unwrap();
    assert_eq!(loaded.resolved.sandbox.mode, SandboxMode::Workspace);
    assert_eq!(loaded.files[0].standing, ConfigFileStatus::Ignored(UntrustedReason::Never));
}

#[test]
fn errors_of_all_config_files_are_reported_together() {
    let fixture = ConfigFixture::new();
    fixture.write("home/haft.json", r#"{"nameing": 1}"#);
    let named = fixture.write("named.json", "[]");
    let ConfigErrors(errors) = fixture.load(Some(&named)).unwrap_err();
    assert_eq!(errors.len(), 2);
    let missing = fixture.directory.path().join("none.json");
    let told = fixture.load(Some(&missing)).unwrap_err().to_string();
    assert!(told.contains("2 errors") && told.contains("none.json: the file does not exist"), "{told}");
}

#[test]
fn inspect_lists_only_the_keys_that_the_file_sets() {
    let fixture = ConfigFixture::new();
    let path =
        fixture.write("project/haft.json", r#"{"naming": "bare", "tools": {"x": {"queue": "of-home"}}}"#);
    let inspected = inspect(&path, &|_| None).unwrap().unwrap();
    assert_eq!(
        inspected.rows.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(),
        ["naming", "tools.x.queue"]
    );
    assert_eq!(inspected.digest, digest_of(&path).unwrap());
    assert!(inspect(&fixture.project().join("none"), &|_| None).unwrap().is_none());
}

/// Checks a file of the repository that is generated from the table of keys. `UPDATE_DOCS=1` rewrites the file.
fn check_document(name: &str, made: impl FnOnce(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    let found = fs::read_to_string(&path).unwrap_or_default();
    let expected = made(&found);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(
        found == expected,
        "{name} does not match the schema of the keys; run the tests with UPDATE_DOCS=1"
    );
}

#[test]
fn gateway_profiles_are_read_and_their_mistakes_reported() {
    let read = |text: &str| resolve_text(&format!(r#"{{"gateway": {{"profiles": {text}}}}}"#));
    let resolved =
        read(r#"{"a": {}, "b": {"tools": []}, "c": {"groups": ["web"], "readOnly": true}}"#).unwrap();
    let profiles = resolved.gateway.profiles;
    assert_eq!(profiles["a"].selected, None, "a profile without a selection has all tools");
    assert_eq!(profiles["b"].selected, Some(super::resolved::SelectedTools::default()));
    assert_eq!((profiles["a"].read_only, profiles["c"].read_only), (false, true));
    let check = |text: &str, expected: &str| {
        let errors = read(text).unwrap_err();
        assert!(errors.contains(expected), "{errors}");
    };
    check(r#"{"login": {}}"#, "reserved for the login pages");
    check(r#"{"a/b": {}}"#, "a/b");
    check(r#"{"a": {"tool": []}}"#, "tools");
    check(r#"{"a": {"clients": [""]}}"#, "a pattern must not be empty");
    check(r#"{"a": {"expose": "none"}}"#, "search");
}

#[test]
fn run_queue_limits_of_the_server_are_read() {
    let limits = |text: &str| resolve_text(text).unwrap().serve.run_limits;
    let written = limits(r#"{"serve": {"maxRuns": 3, "maxWaitingRuns": 4}}"#);
    assert_eq!((written.concurrent_runs_max, written.waiting_runs_max), (3, 4));
    assert_eq!(limits("{}"), super::resolved::ServeRunLimits::default());
}

#[test]
fn published_schema_is_up_to_date() {
    check_document("docs/haft.schema.json", |_| format!("{:#}\n", schema()));
}

#[test]
fn configuration_docs_list_every_key_with_default_and_unit() {
    check_document("docs/configuration.md", |found| {
        let (before, rest) = found.split_once("<!-- keys -->").unwrap();
        let (_, after) = rest.split_once("<!-- end of keys -->").unwrap();
        format!("{before}<!-- keys -->\n{}<!-- end of keys -->{after}", document::key_list())
    });
}

#[test]
fn published_schema_agrees_with_the_config_reader() {
    let validator = jsonschema::draft202012::new(schema()).unwrap();
    let every_key: Value = serde_json::from_str(&EVERY_KEY.replace("},\n}", "}\n}")).unwrap();
    let complaints: Vec<String> = validator.iter_errors(&every_key).map(|error| error.to_string()).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    let bad = [
        json!({"x": 1}),
        json!({"toolTimeout": null}),
        json!({"toolTimeout": "off"}),
        json!({"toolTimeout": 0}),
        json!({"naming": "triple"}),
        json!({"policy": {"rules": [{"tool": "*"}]}}),
        json!({"queues": {"q": {"maxConcurrency": 0}}}),
    ];
    for text in bad {
        assert!(!validator.is_valid(&text) && resolve_text(&text.to_string()).is_err(), "{text}");
    }
}

#[test]
fn documented_example_is_a_valid_config() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let document = fs::read_to_string(path).unwrap();
    let example = document.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let home: VariableSource<'_> = &|name| (name == "HOME").then(|| "/home/u".to_owned());
    assert!(read::read(Path::new("/p/haft.json"), example, home).is_ok(), "{example}");
}

#[test]
fn documented_issuers_are_a_valid_config() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/serving.md");
    let document = fs::read_to_string(path).unwrap();
    let mut examples = document.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let example = examples.find(|example| example.contains("\"issuers\"")).unwrap();
    assert_eq!(resolve_text(example).unwrap().serve.issuers.len(), 1);
}

#[test]
fn every_config_key_has_a_description() {
    for key in document::keys() {
        assert!(!key.description.is_empty(), "{}", key.path);
    }
    let text = schema().to_string();
    assert!(!text.contains("null") && !text.contains("$ref") && !text.contains("anyOf"), "{text}");
}
