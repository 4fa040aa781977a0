//! Determines the protocol era of a server from its reaction to a probe.

use super::message::UNSUPPORTED_VERSION;

/// The newest protocol version without sessions.
pub const MODERN: &str = "2026-07-28";

/// The protocol versions with a handshake, the newest first.
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The protocol era of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Era {
    /// Every request is self-contained.
    Modern,
    /// A handshake comes first; the server chooses the version.
    Legacy { version: String },
}

impl Era {
    pub fn version(&self) -> &str {
        match self {
            Era::Modern => MODERN,
            Era::Legacy { version } => version,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Era::Modern => "stateless",
            Era::Legacy { .. } => "handshake",
        }
    }

    /// Returns the era of a cached version; `None` for an unknown version.
    pub(super) fn of_version(version: &str) -> Option<Self> {
        if version == MODERN {
            return Some(Era::Modern);
        }
        LEGACY.contains(&version).then(|| Era::Legacy { version: version.into() })
    }
}

/// The reaction of a server to the `server/discover` probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Probed {
    /// It listed the versions it supports.
    Discovered { versions: Vec<String> },
    /// It returned an error, perhaps with the versions it supports.
    Refused { code: i64, versions: Vec<String> },
    /// No reply came in time. The server may be slow to start: npx may be downloading it.
    Silent,
    /// The connection ended.
    Died,
    /// It requires authorization; it would refuse every other request too.
    NeedsAuth,
}

/// The next step after the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    SpeakModern,
    /// Send the old handshake on this connection.
    Greet,
    /// Send the old handshake too, and use the reply that comes first.
    GreetBeside,
    /// Start the server again, and begin with the old handshake.
    Respawn,
    Incompatible,
    GiveUp,
}

/// Decides on the next step. No single error code identifies the old era: servers reject an unknown method in many
/// ways.
pub(super) fn after_probe(probed: &Probed) -> Next {
    match probed {
        Probed::Discovered { versions } | Probed::Refused { code: UNSUPPORTED_VERSION, versions } => {
            of_versions(versions)
        }
        Probed::Refused { .. } => Next::Greet,
        Probed::Silent => Next::GreetBeside,
        Probed::Died => Next::Respawn,
        Probed::NeedsAuth => Next::GiveUp,
    }
}

fn of_versions(versions: &[String]) -> Next {
    let speaks = |known: &[&str]| versions.iter().any(|version| known.contains(&version.as_str()));
    if speaks(&[MODERN]) {
        Next::SpeakModern
    } else if versions.is_empty() || speaks(&LEGACY) {
        Next::Greet
    } else {
        Next::Incompatible
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_leads_somewhere() {
        let versions = |list: &[&str]| list.iter().map(|&version| version.to_owned()).collect::<Vec<_>>();
        let found = |list: &[&str]| Probed::Discovered { versions: versions(list) };
        let refused = |code, list: &[&str]| Probed::Refused { code, versions: versions(list) };
        let table = [
            (found(&[MODERN]), Next::SpeakModern),
            (found(&["2027-01-01", MODERN, "2025-11-25"]), Next::SpeakModern),
            (found(&["2025-11-25"]), Next::Greet),
            (found(&["2027-01-01"]), Next::Incompatible),
            (refused(UNSUPPORTED_VERSION, &["2027-01-01"]), Next::Incompatible),
            (refused(UNSUPPORTED_VERSION, &["2025-06-18"]), Next::Greet),
            (refused(UNSUPPORTED_VERSION, &[]), Next::Greet),
            (refused(-32_601, &[]), Next::Greet),
            (refused(-32_602, &[]), Next::Greet),
            (refused(-32_000, &[]), Next::Greet),
            (Probed::Silent, Next::GreetBeside),
            (Probed::Died, Next::Respawn),
            (Probed::NeedsAuth, Next::GiveUp),
        ];
        for (probed, expected) in table {
            assert_eq!(after_probe(&probed), expected, "{probed:?}");
        }
    }
}
