//! HTTP methods, and what each says about the effects of a call.

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

impl Method {
    /// Every method, in the order of the variants.
    pub const ALL: [Method; 7] = [
        Method::Get,
        Method::Head,
        Method::Options,
        Method::Put,
        Method::Delete,
        Method::Post,
        Method::Patch,
    ];

    /// In capitals, as it stands on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Options => "OPTIONS",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Post => "POST",
            Method::Patch => "PATCH",
        }
    }

    /// In any case.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name().eq_ignore_ascii_case(text))
    }

    /// What the standard promises of it. A server that breaks the promise needs a word of the operator.
    pub fn effects(self) -> Effects {
        match self {
            Method::Get | Method::Head | Method::Options => Effects::ReadOnly,
            Method::Put | Method::Delete => Effects::Idempotent,
            Method::Post | Method::Patch => Effects::Mutating,
        }
    }

    /// Whether a request may be sent again when nobody knows what became of the first.
    pub fn is_repeatable(self) -> bool {
        match self.effects() {
            Effects::ReadOnly | Effects::Idempotent => true,
            Effects::Mutating | Effects::Unknown => false,
        }
    }
}
