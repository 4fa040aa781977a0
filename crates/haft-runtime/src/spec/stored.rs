//! The stored form of a spec, which is at the start of a session journal.
//!
//! Agents and skills are stored once, as blobs under their digest, because many runs share them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use haft_config::agents::graph::{AgentGraphSource, AgentNodeSource};
use haft_config::agents::loader::AgentSource;
use haft_config::agents::{AgentOverride, AgentOverrides};
use haft_config::project_instructions::InstructionFile;
use haft_core::conversation::{Media, Message, MessagePart, PartBody, Role};
use haft_core::digest::Digest;
use haft_core::glob::ToolGlob;
use haft_core::model_request::{MustCall, ToolChoice};
use haft_core::principal::Principal;
use haft_core::run::caller_approvals::{CallerApproval, ToolSelector};
use haft_core::settings::limits::CommandLimits;
use haft_core::settings::mode::SandboxMode;
use haft_core::settings::sandbox::{GitMetadata, ResourceAccess};
use haft_core::stored::StoredMessage;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    AgentChanges, ConfigFiles, FunctionTool, ModelChoice, RunSpec, SkillSource, UserHomeView, WorkspaceSpec,
};

/// The version that haft writes. haft reads no other version.
pub const SPEC_VERSION: u32 = 1;

/// A spec as the first line of a journal contains it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredSpec {
    /// The format of the other fields; always [`SPEC_VERSION`] after [`read`](Self::read).
    pub version: u32,
    request: String,
    /// Digest of the blob with the agents and skills.
    pub sources: String,
    changes: StoredChanges,
    workspace: StoredWorkspace,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_choice: Option<SpecToolChoice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allowed_tools: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    functions: Vec<StoredFunction>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    approvals: Vec<StoredCallerApproval>,
    #[serde(default)]
    routed: bool,
    principal: StoredPrincipal,
    /// The caller's idempotency key: starting again with the same key returns this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    secrets: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    config_file: Option<StoredPath>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    project: Option<StoredPath>,
    generation: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

/// The agents, skills, instructions and images of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredBlob {
    first: String,
    agents: BTreeMap<String, StoredAgent>,
    skills: Vec<StoredText>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    instructions: Vec<StoredText>,
    /// A message with the images of the request as its parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    images: Option<StoredMessage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredAgent {
    file: String,
    text: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    includes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    agents: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    destinations: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handoff: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredText {
    file: StoredPath,
    text: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct StoredChanges {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    models: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_turns: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_tools: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_continuations: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overrides: Vec<(String, Value)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredWorkspace {
    directory: StoredPath,
    mode: SandboxMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unix_sockets: Option<bool>,
    git_writable: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    writable: Vec<StoredPath>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    readable: Vec<StoredPath>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    secrets: Vec<StoredPath>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    environment: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    protected: Vec<StoredPath>,
    limits: CommandLimits,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    home_covered: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    home_workspace: bool,
}

/// A path. File names need not be UTF-8, so a path with other bytes is stored as bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum StoredPath {
    Text(String),
    Bytes(Vec<u8>),
}

impl StoredPath {
    fn of(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }

    fn into_path(self) -> PathBuf {
        match self {
            Self::Text(text) => text.into(),
            Self::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

fn stored_paths(paths: &[PathBuf]) -> Vec<StoredPath> {
    paths.iter().map(|path| StoredPath::of(path)).collect()
}

fn paths(stored: Vec<StoredPath>) -> Vec<PathBuf> {
    stored.into_iter().map(StoredPath::into_path).collect()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SpecToolChoice {
    None,
    Required,
    Named(String),
    Allowed { names: Vec<String>, must_call: bool },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredFunction {
    name: String,
    description: String,
    parameters: Value,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredCallerApproval {
    tools: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    always: Option<StoredToolSelector>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    never: Option<StoredToolSelector>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredToolSelector {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    names: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    read_only: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredPrincipal {
    tenant: String,
    subject: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    credential_id: String,
}

/// The reason why a stored spec cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The spec has a version that this haft version does not read.
    #[error(
        "the stored specification of the run has version {found}, but this version of haft reads only \
         version {SPEC_VERSION}"
    )]
    Version {
        /// The version of the spec; 0 if it names none.
        found: u32,
    },
    /// The blob with the agents and skills is missing or damaged.
    #[error("haft cannot read the stored agents of the run: {problem}")]
    Sources {
        /// The problem, as a message for the operator.
        problem: String,
    },
    /// A field is missing or has the wrong type.
    #[error("the stored specification of the run is not valid: {problem}")]
    Value {
        /// The field, and the reason why it cannot be read.
        problem: String,
    },
}

impl StoredSpec {
    /// Converts a spec to its stored form and the blob that it refers to.
    pub fn of(spec: &RunSpec) -> (Self, Vec<u8>) {
        let blob = StoredBlob::of(spec);
        // Serialization cannot fail, because the blob has only strings and maps of strings.
        let bytes = serde_json::to_vec(&blob).unwrap_or_default();
        let stored = Self {
            version: SPEC_VERSION,
            request: spec.request.clone(),
            sources: Digest::of_bytes(&bytes).to_string(),
            changes: StoredChanges::of(&spec.changes),
            workspace: StoredWorkspace::of(&spec.workspace),
            tool_choice: SpecToolChoice::of(&spec.tool_choice),
            allowed_tools: spec.allowed_tools.clone(),
            functions: spec.functions.iter().map(StoredFunction::of).collect(),
            approvals: spec.approvals.iter().map(StoredCallerApproval::of).collect(),
            routed: spec.model_choice == ModelChoice::Routed,
            principal: StoredPrincipal {
                tenant: spec.principal.tenant().to_owned(),
                subject: spec.principal.subject().to_owned(),
                credential_id: spec.principal.credential_id().to_owned(),
            },
            idempotency_key: spec.idempotency_key.clone(),
            secrets: spec.secrets.clone(),
            config_file: spec.config.named.as_ref().map(|path| StoredPath::of(path)),
            project: spec.config.project.as_ref().map(|path| StoredPath::of(path)),
            generation: spec.generation,
            metadata: spec.metadata.clone(),
        };
        (stored, bytes)
    }

    /// Returns the digest of the blob with the agents and skills.
    pub fn digest(&self) -> Result<Digest, SpecError> {
        let problem =
            || SpecError::Sources { problem: format!("`{}` is not a SHA-256 digest", self.sources) };
        Digest::from_hex(&self.sources).ok_or_else(problem)
    }

    /// Reads a spec. Checks the version first, because a field may have a different meaning in another version.
    pub fn read(value: &Value) -> Result<Self, SpecError> {
        let version = value["version"].as_u64().and_then(|version| u32::try_from(version).ok()).unwrap_or(0);
        if version != SPEC_VERSION {
            return Err(SpecError::Version { found: version });
        }
        Self::deserialize(value).map_err(|error| SpecError::Value { problem: error.to_string() })
    }

    /// Returns the owner of the run.
    pub fn principal(&self) -> Principal {
        let StoredPrincipal { tenant, subject, credential_id } = &self.principal;
        Principal::new(tenant, subject, credential_id)
    }

    /// Restores the spec, with the agents and skills of its blob.
    pub fn into_spec(self, blob: &[u8]) -> Result<RunSpec, SpecError> {
        let broken = |problem: String| SpecError::Sources { problem };
        if Digest::of_bytes(blob).to_string() != self.sources {
            return Err(broken(
                "the stored agents do not match their digest, because their file was changed".into(),
            ));
        }
        let principal = self.principal();
        let blob: StoredBlob = serde_json::from_slice(blob).map_err(|error| broken(error.to_string()))?;
        let (instructions, images) = blob.instructions_and_images()?;
        let (agents, skills) = blob.into_sources();
        let approvals = self.approvals.into_iter().map(StoredCallerApproval::into_approval);
        Ok(RunSpec {
            request: self.request,
            opening: Vec::new(),
            agents,
            skills,
            instructions,
            images,
            changes: self.changes.into_changes()?,
            workspace: self.workspace.into_workspace(),
            tool_choice: self.tool_choice.map_or(ToolChoice::Auto, SpecToolChoice::into_choice),
            allowed_tools: self.allowed_tools,
            functions: self.functions.into_iter().map(StoredFunction::into_function).collect(),
            approvals: approvals.collect::<Result<_, _>>()?,
            model_choice: if self.routed { ModelChoice::Routed } else { ModelChoice::Named },
            principal,
            idempotency_key: self.idempotency_key,
            secrets: self.secrets,
            config: ConfigFiles {
                named: self.config_file.map(StoredPath::into_path),
                project: self.project.map(StoredPath::into_path),
            },
            generation: self.generation,
            metadata: self.metadata,
        })
    }
}

impl StoredBlob {
    fn of(spec: &RunSpec) -> Self {
        let agent = |node: &AgentNodeSource| StoredAgent {
            file: node.source.file.clone(),
            text: node.source.text.clone(),
            includes: node.source.includes.clone(),
            agents: node.agents.clone(),
            destinations: node.destinations.clone(),
            handoff: node.handoff.clone(),
        };
        let skill =
            |skill: &SkillSource| StoredText { file: StoredPath::of(&skill.file), text: skill.text.clone() };
        let instruction =
            |file: &InstructionFile| StoredText { file: StoredPath::of(&file.path), text: file.text.clone() };
        let images = spec.images.iter().map(|image| MessagePart::new(PartBody::Image(image.clone())));
        let message = Message { role: Role::User, parts: images.collect() };
        Self {
            first: spec.agents.first.clone(),
            agents: spec.agents.nodes.iter().map(|(key, node)| (key.clone(), agent(node))).collect(),
            skills: spec.skills.iter().map(skill).collect(),
            instructions: spec.instructions.iter().map(instruction).collect(),
            images: (!spec.images.is_empty()).then(|| StoredMessage::of(&message)),
        }
    }

    fn instructions_and_images(&self) -> Result<(Vec<InstructionFile>, Vec<Media>), SpecError> {
        let file = |file: &StoredText| InstructionFile {
            path: file.file.clone().into_path(),
            text: file.text.clone(),
        };
        let message = self.images.clone().map(StoredMessage::into_message).transpose();
        let message = message.map_err(|error| SpecError::Sources { problem: error.to_string() })?;
        let parts = message.into_iter().flat_map(|message| message.parts);
        let images = parts.filter_map(|part| {
            let PartBody::Image(image) = part.body else { return None };
            Some(image)
        });
        Ok((self.instructions.iter().map(file).collect(), images.collect()))
    }

    fn into_sources(self) -> (AgentGraphSource, Vec<SkillSource>) {
        let node = |agent: StoredAgent| AgentNodeSource {
            source: AgentSource { file: agent.file, text: agent.text, includes: agent.includes },
            agents: agent.agents,
            destinations: agent.destinations,
            handoff: agent.handoff,
        };
        let nodes = self.agents.into_iter().map(|(key, agent)| (key, node(agent))).collect();
        let skills = self
            .skills
            .into_iter()
            .map(|skill| SkillSource { file: skill.file.into_path(), text: skill.text });
        (AgentGraphSource { first: self.first, nodes }, skills.collect())
    }
}

impl StoredChanges {
    fn of(changes: &AgentChanges) -> Self {
        Self {
            models: changes.models.clone(),
            system: changes.system.clone(),
            max_turns: changes.turns_max,
            timeout_ms: changes.timeout.map(millis),
            tools: changes.tools.as_ref().map(|tools| tools.iter().map(ToString::to_string).collect()),
            allowed_tools: changes.allowed_tools.clone(),
            max_continuations: changes.continuations_max,
            output_schema: changes.output_schema.as_deref().cloned(),
            overrides: changes.overrides.0.iter().map(|one| (one.key(), one.value().clone())).collect(),
        }
    }

    fn into_changes(self) -> Result<AgentChanges, SpecError> {
        let tools = self.tools.map(|tools| tools.iter().map(|text| glob(text)).collect()).transpose()?;
        let overrides = self.overrides.into_iter().map(|(key, value)| AgentOverride::new(&key, value));
        Ok(AgentChanges {
            models: self.models,
            system: self.system,
            turns_max: self.max_turns,
            timeout: self.timeout_ms.map(Duration::from_millis),
            tools,
            allowed_tools: self.allowed_tools,
            continuations_max: self.max_continuations,
            output_schema: self.output_schema.map(Arc::new),
            overrides: AgentOverrides(overrides.collect()),
        })
    }
}

impl StoredWorkspace {
    fn of(workspace: &WorkspaceSpec) -> Self {
        Self {
            directory: StoredPath::of(&workspace.directory),
            mode: workspace.mode,
            network: workspace.network.map(granted),
            unix_sockets: workspace.unix_sockets.map(granted),
            git_writable: workspace.git == GitMetadata::Writable,
            writable: stored_paths(&workspace.writable),
            readable: stored_paths(&workspace.readable),
            secrets: stored_paths(&workspace.secrets),
            environment: workspace.environment.clone(),
            protected: stored_paths(&workspace.protected),
            limits: workspace.limits.clone(),
            home_covered: workspace.home == UserHomeView::Covered,
            home_workspace: workspace.home == UserHomeView::AsWorkspace,
        }
    }

    fn into_workspace(self) -> WorkspaceSpec {
        WorkspaceSpec {
            directory: self.directory.into_path(),
            mode: self.mode,
            network: self.network.map(access),
            unix_sockets: self.unix_sockets.map(access),
            git: if self.git_writable { GitMetadata::Writable } else { GitMetadata::Frozen },
            writable: paths(self.writable),
            readable: paths(self.readable),
            secrets: paths(self.secrets),
            environment: self.environment,
            protected: paths(self.protected),
            limits: self.limits,
            home: match (self.home_covered, self.home_workspace) {
                (true, _) => UserHomeView::Covered,
                (false, true) => UserHomeView::AsWorkspace,
                (false, false) => UserHomeView::WithoutSecrets,
            },
        }
    }
}

impl SpecToolChoice {
    fn of(choice: &ToolChoice) -> Option<Self> {
        match choice {
            ToolChoice::Auto => None,
            ToolChoice::None => Some(Self::None),
            ToolChoice::Required => Some(Self::Required),
            ToolChoice::Named(name) => Some(Self::Named(name.clone())),
            ToolChoice::Allowed { names, must_call } => {
                Some(Self::Allowed { names: names.clone(), must_call: *must_call == MustCall::Yes })
            }
        }
    }

    fn into_choice(self) -> ToolChoice {
        match self {
            Self::None => ToolChoice::None,
            Self::Required => ToolChoice::Required,
            Self::Named(name) => ToolChoice::Named(name),
            Self::Allowed { names, must_call } => {
                ToolChoice::Allowed { names, must_call: if must_call { MustCall::Yes } else { MustCall::No } }
            }
        }
    }
}

impl StoredFunction {
    fn of(function: &FunctionTool) -> Self {
        let FunctionTool { name, description, parameters, strict } = function.clone();
        Self { name, description, parameters: Value::clone(&parameters), strict }
    }

    fn into_function(self) -> FunctionTool {
        let Self { name, description, parameters, strict } = self;
        FunctionTool { name, description, parameters: Arc::new(parameters), strict }
    }
}

impl StoredCallerApproval {
    fn of(approval: &CallerApproval) -> Self {
        let CallerApproval { tools, always, never } = approval;
        let selector = |one: &Option<ToolSelector>| one.as_ref().map(StoredToolSelector::of);
        Self { tools: tools.to_string(), always: selector(always), never: selector(never) }
    }

    fn into_approval(self) -> Result<CallerApproval, SpecError> {
        let selector =
            |one: Option<StoredToolSelector>| one.map(StoredToolSelector::into_selector).transpose();
        Ok(CallerApproval {
            tools: glob(&self.tools)?,
            always: selector(self.always)?,
            never: selector(self.never)?,
        })
    }
}

impl StoredToolSelector {
    fn of(selector: &ToolSelector) -> Self {
        let ToolSelector { names, read_only } = selector;
        let names = names.as_ref().map(|names| names.iter().map(ToString::to_string).collect());
        Self { names, read_only: *read_only }
    }

    fn into_selector(self) -> Result<ToolSelector, SpecError> {
        let names = self.names.map(|names| names.iter().map(|name| glob(name)).collect()).transpose()?;
        Ok(ToolSelector { names, read_only: self.read_only })
    }
}

fn glob(text: &str) -> Result<ToolGlob, SpecError> {
    ToolGlob::new(text).map_err(|error| SpecError::Value { problem: error.to_string() })
}

fn granted(access: ResourceAccess) -> bool {
    access == ResourceAccess::Allow
}

fn access(granted: bool) -> ResourceAccess {
    if granted { ResourceAccess::Allow } else { ResourceAccess::Deny }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
