use std::fs;

use super::*;
use crate::api_keys::{KeyLimits, KeyScope, NewApiKey};
use crate::mcp_tokens::{open_token_directory, token_directory};
use crate::responses;
use crate::server_caches::ServerCaches;
use crate::tree::tests::{nest_deeply, set_mode, without_capabilities};
use crate::workspaces::{WorkspaceLease, WorkspaceName, private_tmp};

const RUN: &str = "0193a5b0-0000-7000-8000-000000000001";

struct Fixture {
    directory: tempfile::TempDir,
    home: Home,
    anna: Principal,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(&directory.path().join("home"));
        Self { directory, home, anna: Principal::new("acme", "anna", "k") }
    }

    fn data(&self) -> PrincipalData {
        PrincipalData::of(&self.home, self.anna.clone())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.data().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Stores a response with an event log and an output of its run.
    fn response(&self, id: &str) -> [PathBuf; 4] {
        responses::tests::put(&ResponseStore::of(&self.home), &self.anna, (id, RUN), 1);
        let output = format!("outputs/tenant-acme/session-{RUN}/output");
        [
            self.home.data().join(format!("responses/acme/{id}.json")),
            self.file(&format!("events/acme/{RUN}.jsonl"), "x"),
            self.file(&format!("events/acme/{RUN}.unstored"), "x"),
            self.file(&output, "x"),
        ]
    }

    fn workspace(&self) -> WorkspaceLease {
        let name = WorkspaceName::Conversation("conv_1".into());
        WorkspaceStore::of(&self.home).open(&self.anna, name).unwrap()
    }

    fn key(&self) -> String {
        let new = NewApiKey {
            name: "laptop".into(),
            tenant: "acme".into(),
            subject: "anna".into(),
            scopes: vec![KeyScope::Api],
            expires_ms: None,
            limits: KeyLimits::default(),
        };
        ApiKeyStore::of(&self.home).create(new, 1).unwrap().0.id
    }
}

#[test]
fn second_deletion_removes_files_that_the_first_could_not_remove() {
    let fixture = Fixture::new();
    let [response, events, mark, output] = fixture.response("resp_1");
    let workspace = fixture.workspace().directory().to_owned();
    let tmp = private_tmp(&fixture.home, &fixture.anna, &workspace);
    fs::create_dir_all(&tmp).unwrap();
    fs::write(tmp.join("file"), "x").unwrap();
    let log = fixture.file("access.jsonl", "{\"principal\":\"acme/anna\"}\n");
    let grants = fixture.file("grants/acme/anna.json", "{}");
    let unreadable = grants.parent().unwrap();
    let locked = [tmp.parent().unwrap().parent().unwrap(), output.parent().unwrap().parent().unwrap()];
    for path in locked {
        set_mode(path, 0o555);
    }
    set_mode(unreadable, 0o000);
    let failed = without_capabilities(|| fixture.data().delete()).unwrap_err();
    let DeleteError::Incomplete(failures) = &failed else { panic!("{failed}") };
    assert_eq!(failures.len(), 3, "{failures:?}");
    assert!(workspace.exists() && response.exists(), "files in unwritable directories are left");
    assert!(!events.exists() && !mark.exists(), "the deletion continued after the first failure");
    assert!(fs::read_to_string(&log).unwrap().contains("acme/anna"));
    for path in [unreadable].into_iter().chain(locked) {
        set_mode(path, 0o700);
    }
    without_capabilities(|| fixture.data().delete()).unwrap();
    for path in [&response, &output, &workspace, &tmp, &grants] {
        assert!(!path.exists(), "{}", path.display());
    }
    assert!(!fs::read_to_string(&log).unwrap().contains("anna"));
    assert!(matches!(fixture.data().delete(), Err(DeleteError::NotFound)));
    let archive = fixture.directory.path().join("anna.tar");
    let exported = fixture.data().export(&archive, ExistingFile::Refused);
    assert!(matches!(exported, Err(ExportError::NotFound)) && !archive.exists());
}

#[test]
fn deletion_includes_unreadable_and_deeply_nested_directories() {
    let fixture = Fixture::new();
    let workspace = fixture.workspace().directory().to_owned();
    let tmp = private_tmp(&fixture.home, &fixture.anna, &workspace);
    for directory in [&workspace, &tmp] {
        fs::create_dir_all(directory.join("a/b")).unwrap();
        nest_deeply(directory);
        set_mode(&directory.join("a/b"), 0o000);
        set_mode(&directory.join("a"), 0o555);
    }
    without_capabilities(|| fixture.data().delete()).unwrap();
    assert!(!workspace.exists() && !tmp.exists());
}

#[test]
fn deletion_of_a_busy_principal_revokes_its_keys_and_removes_nothing() {
    let fixture = Fixture::new();
    let key = fixture.key();
    let (lease, [response, ..]) = (fixture.workspace(), fixture.response("resp_1"));
    assert!(matches!(fixture.data().delete(), Err(DeleteError::Busy)));
    assert!(response.exists() && lease.directory().exists());
    let keys = ApiKeyStore::of(&fixture.home).load().unwrap();
    assert!(keys.all().iter().all(|left| left.id != key));
    drop(lease);
    let gone = [GroupLock::Session(SessionId(7)), GroupLock::Workspace(fixture.home.data().join("gone"))];
    assert!(
        gone.iter().all(|lock| matches!(fixture.data().hold(lock), Ok(None))),
        "a missing session or workspace needs no lock"
    );
    fixture.data().delete().unwrap();
    assert!(!response.exists());
}

#[test]
fn deletion_removes_the_spending_of_old_keys_and_the_cache_of_the_tenant() {
    let fixture = Fixture::new();
    let key = fixture.key();
    let line = |key: &str| format!("{{\"principal\":\"acme/anna\",\"key\":\"{key}\"}}\n");
    fixture.file("access.jsonl", &line("key_old"));
    let mut files = vec![fixture.file("cache/acme/entry.json", "x")];
    for id in [key.as_str(), "key_old"] {
        let tokens = token_directory(&fixture.home, &Principal::new("acme", "anna", id));
        fs::create_dir_all(&tokens).unwrap();
        fs::write(tokens.join("docs.json"), "secret-token").unwrap();
        files.extend([tokens, fixture.file(&format!("spending/{id}.json"), "{}")]);
    }
    let others = [
        fixture.file("cache/other/entry.json", "x"),
        fixture.file("tokens/other/docs.json", "x"),
        fixture.file("spending/key_other.json", "{}"),
    ];
    let archive = fixture.directory.path().join("anna.tar");
    fixture.data().export(&archive, ExistingFile::Refused).unwrap();
    let content = String::from_utf8_lossy(&fs::read(&archive).unwrap()).into_owned();
    assert!(content.contains("data/spending/key_old.json") && !content.contains("secret-token"));
    fixture.data().delete().unwrap();
    assert_eq!(files.iter().find(|path| path.exists()), None);
    assert!(others.iter().all(|path| path.exists()), "{others:?}");
}

#[test]
fn deletion_includes_the_tmp_of_a_configured_directory() {
    let fixture = Fixture::new();
    let bert = Principal::new("acme", "bert", "k");
    let tmps = [&fixture.anna, &bert].map(|owner| {
        let tmp = private_tmp(&fixture.home, owner, Path::new("/srv/project"));
        fs::create_dir_all(&tmp).unwrap();
        fs::write(tmp.join("file"), format!("of {owner}")).unwrap();
        tmp
    });
    let archive = fixture.directory.path().join("anna.tar");
    fixture.data().export(&archive, ExistingFile::Refused).unwrap();
    let content = String::from_utf8_lossy(&fs::read(&archive).unwrap()).into_owned();
    assert!(content.contains("of acme/anna") && !content.contains("of acme/bert"));
    fixture.data().delete().unwrap();
    assert!(!tmps[0].exists() && tmps[1].join("file").exists());
}

#[test]
fn export_contains_the_directory_of_runs_without_files_once() {
    let fixture = Fixture::new();
    let lease = WorkspaceStore::of(&fixture.home).open(&fixture.anna, WorkspaceName::Subject).unwrap();
    fs::write(lease.directory().join("file"), "written-by-a-server").unwrap();
    drop(lease);
    let archive = fixture.directory.path().join("anna.tar");
    fixture.data().export(&archive, ExistingFile::Refused).unwrap();
    let content = String::from_utf8_lossy(&fs::read(&archive).unwrap()).into_owned();
    assert_eq!(content.matches("written-by-a-server").count(), 1);
    fixture.data().delete().unwrap();
    assert!(matches!(fixture.data().delete(), Err(DeleteError::NotFound)));
}

#[test]
fn deletion_finds_tokens_and_server_caches_without_any_log_line() {
    let fixture = Fixture::new();
    let bert = Principal::new("acme", "bert", "k");
    let files = [&fixture.anna, &bert].map(|owner| {
        let cache = ServerCaches::of(&fixture.home).open(owner).unwrap().directory;
        [open_token_directory(&fixture.home, owner).unwrap(), cache].map(|directory| {
            fs::create_dir_all(directory.join("docs")).unwrap();
            fs::write(directory.join("docs/file"), "secret").unwrap();
            directory
        })
    });
    let (locked, record) = (files[0][0].join("docs"), files[0][0].join(".owner.json"));
    set_mode(&files[0][0], 0o500);
    let failed = without_capabilities(|| fixture.data().delete()).unwrap_err();
    assert!(matches!(failed, DeleteError::Incomplete(_)), "{failed}");
    set_mode(&files[0][0], 0o700);
    assert!(locked.exists() && record.exists(), "the record stays until the tokens are removed");
    fixture.data().delete().unwrap();
    assert!(files[0].iter().all(|path| !path.exists()), "{files:?}");
    assert!(files[1].iter().all(|path| path.join("docs/file").exists()), "{files:?}");
    assert!(matches!(fixture.data().delete(), Err(DeleteError::NotFound)));
}

#[test]
fn damaged_files_are_reported_but_unreadable_directories_are_errors() {
    let fixture = Fixture::new();
    let [response, ..] = fixture.response("resp_1");
    let damaged = [
        fixture.file("responses/acme/resp_2.json", "{"),
        fixture.file("conversations/acme/conv_2.json", "{"),
        fixture.file("tenant-sessions/acme/0193a5b0-0000-7000-8000-000000000002.jsonl", "damaged\n"),
        fixture.file("workspaces/acme/conv_2.json", "{"),
    ];
    let archive = fixture.directory.path().join("anna.tar");
    let exported = fixture.data().export(&archive, ExistingFile::Refused).unwrap();
    for path in &damaged {
        assert!(exported.skipped.contains(path), "{exported:?}");
        let directory = path.parent().unwrap();
        set_mode(directory, 0o000);
        let failed = without_capabilities(|| fixture.data().delete()).unwrap_err();
        assert!(matches!(failed, DeleteError::Io(_)), "{failed}");
        set_mode(directory, 0o700);
    }
    assert!(response.exists());
    let deleted = fixture.data().delete().unwrap();
    assert_eq!(deleted.unreadable.len(), damaged.len(), "{deleted:?}");
    assert!(!response.exists() && damaged.iter().all(|path| path.exists()));
}
