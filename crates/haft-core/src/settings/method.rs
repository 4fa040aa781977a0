//! HTTP methods, and the effects that each one implies.

use crate::tool::Effects;

/// A method an operation may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads; has no effects.
    Get,
    /// Reads the headers alone; has no effects.
    Head,
    /// Asks for the supported methods; has no effects.
    Options,
    /// Replaces a resource; a repetition changes nothing.
    Put,
    /// Removes a resource; a repetition changes nothing.
    Delete,
    /// Has any effect; a repetition may have it again.
    Post,
    /// Changes a part of a resource; a repetition may change it again.
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

    /// Returns the effects that RFC 9110, section 9.2, defines for the method. For a server that does not keep to it,
    /// the operator sets `effects`.
    pub fn effects(self) -> Effects {
        match self {
            Method::Get | Method::Head | Method::Options => Effects::ReadOnly,
            Method::Put | Method::Delete => Effects::Idempotent,
            Method::Post | Method::Patch => Effects::Mutating,
        }
    }

    /// Returns whether a request may be sent again if the outcome of the first one is unknown: an idempotent method.
    pub fn is_repeatable(self) -> bool {
        match self.effects() {
            Effects::ReadOnly | Effects::Idempotent => true,
            Effects::Mutating | Effects::Unknown => false,
        }
    }
}
