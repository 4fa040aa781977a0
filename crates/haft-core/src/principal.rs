//! The identity for which a run works.

use std::fmt;
use std::sync::Arc;

/// The tenant, subject and credential of a caller. Every key of caches, grants, queues, stored outputs and MCP
/// connections starts with the principal, so that no data of one principal is visible to another. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Arc<PrincipalIdentity>);

#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct PrincipalIdentity {
    tenant: String,
    subject: String,
    credential: String,
}

/// The tenant and subject of the person at the terminal, or of the program that embeds the library.
const LOCAL: &str = "local";

impl Principal {
    /// Creates a principal. `credential_id` identifies the API key or token with which the subject authenticated; it is
    /// never the secret itself.
    pub fn new(
        tenant: impl Into<String>,
        subject: impl Into<String>,
        credential_id: impl Into<String>,
    ) -> Self {
        let (tenant, subject, credential) = (tenant.into(), subject.into(), credential_id.into());
        Self(Arc::new(PrincipalIdentity { tenant, subject, credential }))
    }

    /// Returns the principal for the person at the terminal, or for the program that embeds the library.
    pub fn local() -> Self {
        Self::new(LOCAL, LOCAL, "")
    }

    /// Returns true if a tenant can have this name: it is not empty and has no slash. Records and commands write a
    /// principal as `TENANT/SUBJECT`, so with a slash in a tenant's name, two principals could have the same text.
    pub fn is_tenant_name(name: &str) -> bool {
        !name.is_empty() && !name.contains('/')
    }

    /// Returns the tenant, which is an organisation. Tenants share no data.
    pub fn tenant(&self) -> &str {
        &self.0.tenant
    }

    /// Returns the subject, which is a user within the tenant.
    pub fn subject(&self) -> &str {
        &self.0.subject
    }

    /// Returns true if both are the same subject of the same tenant. Ignores the credential, because a subject owns its
    /// runs with every credential.
    pub fn is_subject_of(&self, other: &Self) -> bool {
        (self.tenant(), self.subject()) == (other.tenant(), other.subject())
    }

    /// Returns the credential id; empty if no credential was used.
    pub fn credential_id(&self) -> &str {
        &self.0.credential
    }
}

impl Default for Principal {
    fn default() -> Self {
        Self::local()
    }
}

/// Prints `local`, or `TENANT/SUBJECT`, as records show it.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.tenant(), self.subject()) {
            (LOCAL, LOCAL) => f.write_str(LOCAL),
            (tenant, subject) => write!(f, "{tenant}/{subject}"),
        }
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_differ_by_tenant_subject_or_credential() {
        let anna = Principal::new("acme", "anna", "key-1");
        assert_eq!(anna, Principal::new("acme", "anna", "key-1"));
        for other in [("other", "anna", "key-1"), ("acme", "bert", "key-1"), ("acme", "anna", "key-2")] {
            assert_ne!(anna, Principal::new(other.0, other.1, other.2), "{other:?}");
        }
        assert_eq!((anna.to_string(), Principal::local().to_string()), ("acme/anna".into(), "local".into()));
    }
}
