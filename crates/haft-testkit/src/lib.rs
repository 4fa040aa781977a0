//! The fixtures that haft's own tests share: a directory tree, the users that tests run as, and a way to run the real
//! binary in the tree.
//!
//! Start reading at [`TestTree`]. This crate is only for tests: no product crate may depend on it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a fixture that fails is a failed test"
)]

mod account_server;
mod certificate;
mod client_proofs;
mod collector;
mod cut_proxy;
mod guarded_server;
mod process;
mod run;
mod secret_search;
mod secure_server;
mod snapshot;
mod terminal_run;
mod test_tree;
mod token_issuer;
mod user;

pub use account_server::{AccountServer, LoginFault};
pub use certificate::write_certificate;
pub use collector::{CollectedPoint, CollectedSpan, SpanCollector};
pub use cut_proxy::CutProxy;
pub use guarded_server::{CANARY, GuardedServer};
pub use libc;
pub use process::{processes_with, raise_file_limit, send_signal, unique_marker};
pub use run::{HaftCommand, HaftOutput, SANDBOX_LEVEL, WITHOUT_NAMESPACES, is_forced_to_landlock};
pub use run::{binary, copy_program, eventually, stream_events};
pub use secret_search::reveals;
pub use secure_server::{OfferedProtocols, ReceivedHttpRequest, SecureServer};
pub use snapshot::{TreeSnapshot, set_attribute};
pub use terminal_run::TerminalRun;
pub use test_tree::TestTree;
pub use token_issuer::TokenIssuer;
pub use user::{TestUser, users};

/// Defines several tests that call the same function with different data. Each row is one test: its name and the
/// arguments of the function.
#[macro_export]
macro_rules! checks {
    ($check:ident { $($(#[$about:meta])* $name:ident: $($argument:expr),+;)+ }) => {
        $(
            $(#[$about])*
            #[test]
            fn $name() {
                $check($($argument),+);
            }
        )+
    };
}
