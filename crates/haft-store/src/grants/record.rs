//! The JSON form of a grants file.

use std::io;

use haft_core::digest::Digest;
use haft_core::grant::{Grant, GrantDecision, GrantId, GrantOwner, GrantScope, GrantTarget};
use haft_core::grant_store::OwnedGrants;
use haft_core::name::{Namespace, ToolName};
use haft_core::naming::ToolIdentity;
use haft_core::provider::ProviderKind;
use haft_core::settings::mode::SandboxMode;
use haft_core::settings::sandbox::{ResourceAccess, SandboxBinding};
use serde::{Deserialize, Serialize};

/// The version of the format. haft does not read a file of a later version, because a field that this version does not
/// know could restrict a grant.
const VERSION: u32 = 1;

/// The content of a grants file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct GrantsFile {
    version: u32,
    tenant: String,
    subject: String,
    grants: Vec<GrantRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GrantRecord {
    id: String,
    target: Option<TargetRecord>,
    scope: ScopeRecord,
    mode: SandboxMode,
    network: AccessRecord,
    expires_ms: Option<u64>,
    decided_by: String,
    decided_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TargetRecord {
    workspace: String,
    kind: String,
    namespace: String,
    tool: String,
    definition: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum ScopeRecord {
    Exact { digest: String, description: String },
    CommandPrefix(Vec<String>),
    Rule(String),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AccessRecord {
    Allow,
    Deny,
}

impl GrantsFile {
    pub(super) fn of(owner: &GrantOwner, grants: &OwnedGrants) -> Self {
        let GrantOwner { tenant, subject } = owner.clone();
        Self { version: VERSION, tenant, subject, grants: grants.all().iter().map(GrantRecord::of).collect() }
    }

    pub(super) fn bytes(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec_pretty(self)?)
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let file: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match file.version {
            VERSION => Ok(file),
            other => Err(format!(
                "the grants file has version {other}; this version of haft reads version {VERSION}"
            )),
        }
    }

    /// Returns the grants if the file belongs to this owner.
    pub(super) fn grants_of(self, owner: &GrantOwner) -> Result<OwnedGrants, String> {
        if (&self.tenant, &self.subject) != (&owner.tenant, &owner.subject) {
            return Err("the grants file belongs to another principal".into());
        }
        let grants: Option<Vec<Grant>> =
            self.grants.into_iter().map(|record| record.into_grant(owner)).collect();
        grants
            .map(OwnedGrants::new)
            .ok_or_else(|| "a grant in the grants file has an invalid id, tool or digest".into())
    }
}

impl GrantRecord {
    fn of(grant: &Grant) -> Self {
        let Grant { id, owner: _, target, scope, confinement, expires_ms, decision } = grant;
        Self {
            id: id.to_string(),
            target: target.as_ref().map(TargetRecord::of),
            scope: ScopeRecord::of(scope),
            mode: confinement.mode,
            network: match confinement.network {
                ResourceAccess::Allow => AccessRecord::Allow,
                ResourceAccess::Deny => AccessRecord::Deny,
            },
            expires_ms: *expires_ms,
            decided_by: decision.by.clone(),
            decided_ms: decision.at_ms,
        }
    }

    fn into_grant(self, owner: &GrantOwner) -> Option<Grant> {
        let network = match self.network {
            AccessRecord::Allow => ResourceAccess::Allow,
            AccessRecord::Deny => ResourceAccess::Deny,
        };
        let target = match self.target {
            Some(target) => Some(target.into_target()?),
            None => None,
        };
        Some(Grant {
            id: GrantId::parse(&self.id)?,
            owner: owner.clone(),
            target,
            scope: self.scope.into_scope()?,
            confinement: SandboxBinding { mode: self.mode, network },
            expires_ms: self.expires_ms,
            decision: GrantDecision { by: self.decided_by, at_ms: self.decided_ms },
        })
    }
}

impl TargetRecord {
    fn of(target: &GrantTarget) -> Self {
        let GrantTarget { workspace, tool, definition } = target;
        Self {
            workspace: workspace.clone(),
            kind: tool.kind.name().to_owned(),
            namespace: tool.namespace.to_string(),
            tool: tool.tool.to_string(),
            definition: definition.to_string(),
        }
    }

    fn into_target(self) -> Option<GrantTarget> {
        let tool = ToolIdentity {
            kind: ProviderKind::from_name(&self.kind)?,
            namespace: Namespace::new(&self.namespace).ok()?,
            tool: ToolName::new(&self.tool).ok()?,
        };
        let definition = Digest::from_hex(&self.definition)?;
        Some(GrantTarget { workspace: self.workspace, tool, definition })
    }
}

impl ScopeRecord {
    fn of(scope: &GrantScope) -> Self {
        match scope {
            GrantScope::Exact { digest, description } => {
                Self::Exact { digest: digest.to_string(), description: description.clone() }
            }
            GrantScope::CommandPrefix(words) => Self::CommandPrefix(words.clone()),
            GrantScope::Rule(text) => Self::Rule(text.clone()),
        }
    }

    fn into_scope(self) -> Option<GrantScope> {
        match self {
            Self::Exact { digest, description } => {
                Some(GrantScope::Exact { digest: Digest::from_hex(&digest)?, description })
            }
            Self::CommandPrefix(words) => Some(GrantScope::CommandPrefix(words)),
            Self::Rule(text) => Some(GrantScope::Rule(text)),
        }
    }
}
