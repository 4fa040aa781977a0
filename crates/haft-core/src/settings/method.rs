//! HTTP methods, and the effects that each one implies.

use crate::tool::Effects;

/// The HTTP method of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads a resource; has no side effects.
    Get,
    /// Reads only the headers; has no side effects.
    Head,
    /// Asks for the supported methods; has no side effects.
    Options,
    /// Replaces a resource. Repeating the request changes nothing more.
    Put,
    /// Removes a resource. Repeating the request changes nothing more.
    Delete,
    /// May have any effect. Repeating the request may have the effect again.
    Post,
    /// Changes a part of a resource. Repeating the request may change it again.
    Patch,
}

crate::name_table!(Method {
    Get: "GET",
    Head: "HEAD",
    Options: "OPTIONS",
    Put: "PUT",
    Delete: "DELETE",
    Post: "POST",
    Patch: "PATCH",
});

impl Method {
    /// Parses a method in upper or lower case.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name().eq_ignore_ascii_case(text))
    }

    /// Returns the effects that RFC 9110, section 9.2, defines for the method. If a server does not follow the RFC, the
    /// operator sets `effects`.
    pub fn effects(self) -> Effects {
        match self {
            Method::Get | Method::Head | Method::Options => Effects::ReadOnly,
            Method::Put | Method::Delete => Effects::Idempotent,
            Method::Post | Method::Patch => Effects::Mutating,
        }
    }

    /// Returns true if a request may be repeated when the outcome of the first one is unknown, because the method is
    /// idempotent.
    pub fn is_repeatable(self) -> bool {
        match self.effects() {
            Effects::ReadOnly | Effects::Idempotent => true,
            Effects::Mutating | Effects::Unknown => false,
        }
    }
}
