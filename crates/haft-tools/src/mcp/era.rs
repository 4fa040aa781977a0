//! Determines a server's protocol era (revisions with or without a handshake) from its reaction to a probe.

use super::message::UNSUPPORTED_VERSION;

/// The newest protocol version without a handshake.
pub const MODERN: &str = "2026-07-28";

/// The protocol versions with a handshake, the newest first.
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The era of the protocol revision that a server uses: with or without a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProtocolEra {
    /// A protocol revision without a handshake: every request is self-contained.
    Modern,
    /// A protocol revision with a handshake, in which the server chooses the version.
    Legacy { version: String },
}

impl ProtocolEra {
    pub fn version(&self) -> &str {
        match self {
            ProtocolEra::Modern => MODERN,
            ProtocolEra::Legacy { version } => version,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            ProtocolEra::Modern => "stateless",
            ProtocolEra::Legacy { .. } => "handshake",
        }
    }

    /// Returns the era of a cached protocol version; `None` for an unknown version.
    pub(super) fn of_version(version: &str) -> Option<Self> {
        if version == MODERN {
            return Some(ProtocolEra::Modern);
        }
        LEGACY.contains(&version).then(|| ProtocolEra::Legacy { version: version.into() })
    }
}

/// The reaction of a server to the `server/discover` probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProbeReaction {
    /// The server listed the versions that it supports.
    Discovered { versions: Vec<String> },
    /// The server returned an error, perhaps with the versions that it supports.
    Refused { code: i64, versions: Vec<String> },
    /// The server sent no reply in time. It may be slow to start, for example because npx is downloading it.
    Silent,
    /// The connection ended after haft had sent the probe.
    Died,
    /// The server requires authorization; it would refuse every other request too.
    NeedsAuth,
}

/// The next step after the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandshakeStep {
    SpeakModern,
    /// Send the old handshake on this connection.
    Greet,
    /// Send the old handshake in addition to the probe, and use the reply that comes first.
    GreetBeside,
    /// Start the server again, and begin with the old handshake.
    Respawn,
    Incompatible,
    GiveUp,
}

/// Decides on the next step. No single error code identifies a server that needs the old handshake: servers reject an
/// unknown method in many ways.
pub(super) fn after_probe(probed: &ProbeReaction) -> HandshakeStep {
    match probed {
        ProbeReaction::Discovered { versions }
        | ProbeReaction::Refused { code: UNSUPPORTED_VERSION, versions } => of_versions(versions),
        ProbeReaction::Refused { .. } => HandshakeStep::Greet,
        ProbeReaction::Silent => HandshakeStep::GreetBeside,
        ProbeReaction::Died => HandshakeStep::Respawn,
        ProbeReaction::NeedsAuth => HandshakeStep::GiveUp,
    }
}

fn of_versions(versions: &[String]) -> HandshakeStep {
    let speaks = |known: &[&str]| versions.iter().any(|version| known.contains(&version.as_str()));
    if speaks(&[MODERN]) {
        HandshakeStep::SpeakModern
    } else if versions.is_empty() || speaks(&LEGACY) {
        HandshakeStep::Greet
    } else {
        HandshakeStep::Incompatible
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reaction_to_the_version_probe_selects_a_handshake_step() {
        let versions = |list: &[&str]| list.iter().map(|&version| version.to_owned()).collect::<Vec<_>>();
        let found = |list: &[&str]| ProbeReaction::Discovered { versions: versions(list) };
        let refused = |code, list: &[&str]| ProbeReaction::Refused { code, versions: versions(list) };
        let table = [
            (found(&[MODERN]), HandshakeStep::SpeakModern),
            (found(&["2027-01-01", MODERN, "2025-11-25"]), HandshakeStep::SpeakModern),
            (found(&["2025-11-25"]), HandshakeStep::Greet),
            (found(&["2027-01-01"]), HandshakeStep::Incompatible),
            (refused(UNSUPPORTED_VERSION, &["2027-01-01"]), HandshakeStep::Incompatible),
            (refused(UNSUPPORTED_VERSION, &["2025-06-18"]), HandshakeStep::Greet),
            (refused(UNSUPPORTED_VERSION, &[]), HandshakeStep::Greet),
            (refused(-32_601, &[]), HandshakeStep::Greet),
            (refused(-32_602, &[]), HandshakeStep::Greet),
            (refused(-32_000, &[]), HandshakeStep::Greet),
            (ProbeReaction::Silent, HandshakeStep::GreetBeside),
            (ProbeReaction::Died, HandshakeStep::Respawn),
            (ProbeReaction::NeedsAuth, HandshakeStep::GiveUp),
        ];
        for (probed, expected) in table {
            assert_eq!(after_probe(&probed), expected, "{probed:?}");
        }
    }
}
