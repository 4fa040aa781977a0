//! Which of the two protocols a server speaks: decided from what it does when it is asked.

use super::message::UNSUPPORTED_VERSION;

/// The newest version of the protocol without sessions.
pub const MODERN: &str = "2026-07-28";

/// The versions with a handshake, the newest first.
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// How we talk to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Era {
    /// Every request stands for itself.
    Modern,
    /// A handshake first; the version is what the server chose.
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

    /// From what was kept; only versions we know.
    pub(super) fn of_version(version: &str) -> Option<Self> {
        if version == MODERN {
            return Some(Era::Modern);
        }
        LEGACY.contains(&version).then(|| Era::Legacy { version: version.into() })
    }
}

/// What the server did when it was asked to show itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Probed {
    /// It named the versions it speaks.
    Discovered { versions: Vec<String> },
    /// It answered with an error, perhaps with the versions it speaks.
    Refused { code: i64, versions: Vec<String> },
    /// Nothing was heard in a while. It may be slow to start: npx may be downloading it.
    Silent,
    /// The connection ended.
    Died,
    /// It wants to know who we are; no other question would be answered either.
    NeedsAuth,
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    SpeakModern,
    /// Greet it the old way, on this connection.
    Greet,
    /// Greet it the old way too, and take whichever answer comes first.
    GreetBeside,
    /// Start it again, and greet it the old way.
    Respawn,
    Incompatible,
    GiveUp,
}

/// The decision. No particular error code means the old era: servers answer an unknown method in many ways.
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
