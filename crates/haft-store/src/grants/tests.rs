//! Tests that run on both stores, and tests of the files.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use haft_core::digest::Digest;
use haft_core::grant::{GrantBinding, GrantDecision, GrantScope, GrantTarget};
use haft_core::grant_store::{GRANTS_MAX, MemoryGrants};
use haft_core::name::{Namespace, ToolName};
use haft_core::naming::ToolIdentity;
use haft_core::principal::Principal;
use haft_core::provider::ProviderKind;
use haft_core::settings::sandbox::SandboxBinding;

use super::*;

fn owner(tenant: &str, subject: &str) -> GrantOwner {
    GrantOwner::of(&Principal::new(tenant, subject, "key"))
}

fn anna() -> GrantOwner {
    owner("acme", "anna")
}

fn grant(owner: &GrantOwner, workspace: &str, scope: GrantScope, at_ms: u64) -> Grant {
    let tool = ToolIdentity {
        kind: ProviderKind::Mcp,
        namespace: Namespace::new("docs").unwrap(),
        tool: ToolName::new("search").unwrap(),
    };
    let target = GrantTarget { workspace: workspace.into(), tool, definition: Digest::of_text("definition") };
    let binding = GrantBinding { owner: owner.clone(), target, confinement: SandboxBinding::NARROWEST };
    Grant::new(&binding, scope, GrantDecision { by: "terminal".into(), at_ms })
}

fn rule(owner: &GrantOwner, workspace: &str, text: &str) -> Grant {
    grant(owner, workspace, GrantScope::Rule(text.into()), 1)
}

fn files() -> (tempfile::TempDir, FileGrants) {
    let directory = tempfile::tempdir().unwrap();
    let grants = FileGrants::of(&Home::at(directory.path()));
    (directory, grants)
}

/// Runs a test against both stores.
async fn with_both(test: impl AsyncFn(&dyn GrantStore)) {
    let (_directory, files) = files();
    test(&files).await;
    test(&MemoryGrants::default()).await;
}

#[tokio::test]
async fn grants_round_trip_sorted_by_age() {
    with_both(async |store| {
        let exact = GrantScope::Exact { digest: Digest::of_text("x"), description: "x \"ä\"\n".into() };
        let prefix = GrantScope::CommandPrefix(vec!["git".into(), "status".into()]);
        let decision = GrantDecision { by: "import".into(), at_ms: 4 };
        let ending =
            Grant { expires_ms: Some(99), ..grant(&anna(), "/w", GrantScope::Rule("ask *".into()), 3) };
        let all = [
            grant(&anna(), "/w", exact, 1),
            grant(&anna(), "/w", prefix, 2),
            ending,
            Grant::imported(anna(), Digest::of_text("old"), decision),
        ];
        for grant in all.iter().rev() {
            store.add(grant).await.unwrap();
        }
        assert_eq!(store.list(&anna()).await.unwrap(), all, "grants are listed oldest first");
    })
    .await;
}

#[tokio::test]
async fn grants_are_separated_by_owner_and_workspace() {
    with_both(async |store| {
        let others = [
            owner("acme", "bert"),
            owner("other", "anna"),
            owner("../acme", "anna"),
            owner("acme", "../anna"),
        ];
        for owner in others.iter().chain([&anna()]) {
            assert_eq!(store.list(owner).await.unwrap(), []);
            store.add(&rule(owner, "/w", &owner.subject)).await.unwrap();
        }
        store.add(&rule(&anna(), "/v", "ask v")).await.unwrap();
        for owner in &others {
            assert_eq!(store.list(owner).await.unwrap(), [rule(owner, "/w", &owner.subject)]);
        }
        assert_eq!(store.load(&anna(), "/v").await.unwrap(), [rule(&anna(), "/v", "ask v")]);
        assert_eq!(store.load(&anna(), "/w/below").await.unwrap(), []);
        assert_eq!(store.list(&anna()).await.unwrap().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn only_the_owner_can_revoke_a_grant() {
    with_both(async |store| {
        let (first, second) = (rule(&anna(), "/w", "a"), rule(&anna(), "/w", "b"));
        store.add(&first).await.unwrap();
        store.add(&second).await.unwrap();
        assert!(!store.revoke(&owner("acme", "bert"), first.id).await.unwrap());
        assert!(store.revoke(&anna(), first.id).await.unwrap());
        assert!(!store.revoke(&anna(), first.id).await.unwrap(), "a revoked grant cannot be revoked again");
        assert_eq!(store.load(&anna(), "/w").await.unwrap(), [second]);
    })
    .await;
}

#[tokio::test]
async fn repeated_grant_replaces_the_earlier_decision() {
    with_both(async |store| {
        store.add(&rule(&anna(), "/w", "a")).await.unwrap();
        let again = grant(&anna(), "/w", GrantScope::Rule("a".into()), 7);
        store.add(&again).await.unwrap();
        assert_eq!(store.list(&anna()).await.unwrap(), [again]);
    })
    .await;
}

#[tokio::test]
async fn full_store_rejects_new_grants_until_one_expires() {
    let store = MemoryGrants::default();
    let numbered = |number: usize| rule(&anna(), "/w", &number.to_string());
    for number in 0..GRANTS_MAX {
        store.add(&numbered(number)).await.unwrap();
    }
    assert_eq!(store.add(&numbered(GRANTS_MAX)).await, Err(GrantStoreError::Full));
    store.add(&numbered(7)).await.unwrap();
    store.add(&Grant { expires_ms: Some(2), ..numbered(7) }).await.unwrap();
    let later = grant(&anna(), "/w", GrantScope::Rule("later".into()), 2);
    store.add(&later).await.unwrap();
    assert_eq!(store.list(&anna()).await.unwrap().len(), GRANTS_MAX);
}

#[tokio::test]
async fn grant_files_have_private_permissions() {
    let (directory, store) = files();
    store.add(&rule(&anna(), "/w", "a")).await.unwrap();
    let mode = |path: &str| directory.path().join(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("data/grants/acme"), 0o700);
    assert_eq!(mode("data/grants/acme/anna.json"), 0o600);
    assert_eq!(mode("data/grants/acme/anna.lock"), 0o600);
}

#[tokio::test]
async fn invalid_grant_file_is_an_error_and_is_not_overwritten() {
    let (directory, store) = files();
    store.add(&rule(&anna(), "/w", "a")).await.unwrap();
    let path = directory.path().join("data/grants/acme/anna.json");
    let good = std::fs::read_to_string(&path).unwrap();
    let wrong = [
        "nonsense".to_owned(),
        good.replace("\"version\": 1", "\"version\": 2"),
        good.replace("\"anna\"", "\"bert\""),
        good.replace("\"mcp\"", "\"other\""),
        good.replace("\"mode\"", "\"onlyOnMondays\": true, \"mode\""),
    ];
    for content in wrong {
        assert_ne!(content, good);
        std::fs::write(&path, &content).unwrap();
        assert!(store.load(&anna(), "/w").await.is_err(), "{content}");
        assert!(store.add(&rule(&anna(), "/w", "b")).await.is_err(), "{content}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
}

/// The environment variable that turns the next test into a process that only adds grants.
const CHILD_HOME: &str = "HAFT_TEST_ADDS_GRANTS_AT";

const GRANTS_PER_CHILD: usize = 25;

#[tokio::test]
async fn concurrent_processes_lose_no_grant() {
    if let Ok(home) = std::env::var(CHILD_HOME) {
        let store = FileGrants::of(&Home::at(Path::new(&home)));
        for number in 0..GRANTS_PER_CHILD {
            let text = format!("{} {number}", std::process::id());
            store.add(&rule(&anna(), "/w", &text)).await.unwrap();
        }
        return;
    }
    let (directory, store) = files();
    let name = "grants::tests::concurrent_processes_lose_no_grant";
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name]).env(CHILD_HOME, directory.path());
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..4).map(|_| start()).collect();
    let count = children.len();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(store.list(&anna()).await.unwrap().len(), count * GRANTS_PER_CHILD);
}
