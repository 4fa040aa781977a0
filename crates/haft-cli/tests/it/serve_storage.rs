//! Tests of the stored data of `haft serve`: limits, backups, and the data of one principal.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use haft_model_server::{ModelServer, Script, ScriptStep};
use haft_testkit::{TestTree, TestUser, eventually};
use serde_json::{Value, json};

use super::run::haft;
use super::serve::{listening, stop};
use super::serve_workspaces::{WorkspaceServer, bash, serve_with};

/// Returns the files below a directory that contain a string.
fn files_with(directory: &Path, text: &str) -> Vec<String> {
    let found = Command::new("grep").args(["-rlF", text]).arg(directory).output().unwrap();
    String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Runs a program so that every user can read and write its new files, unless the program sets other modes.
const WITHOUT_UMASK: &[&str] = &["bash", "-c", "umask 000; exec \"$@\"", "bash"];

/// Returns the paths below a directory that other users can access, with their modes.
fn shared_paths(directory: &Path) -> Vec<String> {
    let found =
        Command::new("find").arg(directory).args(["-perm", "/077", "-printf", "%m %p\n"]).output().unwrap();
    String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn all_data_is_private_even_without_a_umask() {
    let tree = TestTree::new(TestUser::Ourselves);
    tree.directory("home/agents");
    let script = ["one", "two", "three"].iter().fold(Script::default(), |script, about| {
        let calls = bash("head -c 300000 /dev/zero | tr '\\0' x");
        script.about(about, [calls, ScriptStep::text("done")])
    });
    let model = ModelServer::start(script).unwrap();
    let without_umask = |words: &[&str]| haft(&tree, &model, words).through(WITHOUT_UMASK);
    let agent = "---\ndescription: Works.\nmodels: openai/m\ntools: [bash]\n---\nYou work.\n";
    tree.file("home/agents/worker.md", agent);
    let create = ["keys", "create", "k", "--scope", "api", "--scope", "builtin-tools"];
    let key = without_umask(&create).output().expect_code(0).stdout.trim().to_owned();
    let (child, address) = listening(without_umask(&["serve", "--address", "127.0.0.1:0"]));
    let server = WorkspaceServer { tree, child, address, model };
    server.ask(&key, "one", None);
    let called = server.call_agent(&key, "two");
    assert!(called.to_string().contains("done"), "{called}");
    let words = ["run", "-m", "openai/m", "three"];
    haft(&server.tree, &server.model, &words).through(WITHOUT_UMASK).output().expect_code(0);
    let data = server.tree.path("home/data");
    assert_eq!(shared_paths(&data), [""; 0]);
    stop(server.child);
    assert_eq!(shared_paths(&data), [""; 0]);
    for name in ["audit.jsonl", "accounting.jsonl", "sessions", "events"] {
        assert!(data.join(name).exists(), "{name}");
    }
}

/// The size of the file system for haft's data, in bytes.
const SMALL_DISK_BYTES: u64 = 8 << 20;

/// Runs a command in a mount namespace in which a directory is a small file system with the same files. Without root, a
/// user namespace allows this. If the machine allows neither, the command fails, and so does the test.
const WITH_SMALL_DISK: &str = r#"
if [ "$(id -u)" = 0 ]; then root=""; else root=--map-root-user; fi
exec unshare --mount $root sh -ec '
    cp -a "$0" "$0.before"
    mount -t tmpfs -o size='"$1"' tmpfs "$0"
    cp -a "$0.before/." "$0"
    exec "$@"
' "$0" "${@:2}"
"#;

/// Starts the server again with its data on a small file system. Also returns the path through which other processes
/// reach this file system.
fn with_small_disk(server: WorkspaceServer) -> (WorkspaceServer, PathBuf) {
    let data = server.tree.path("home/data");
    let (path, size) = (data.to_str().unwrap().to_owned(), SMALL_DISK_BYTES.to_string());
    let server = server.restarted_through(&["bash", "-c", WITH_SMALL_DISK, &path, &size]);
    let data = Path::new("/proc").join(server.child.id().to_string()).join(format!("root{path}"));
    let stat = free_bytes(&data);
    assert!(
        stat <= SMALL_DISK_BYTES,
        "{} has {stat} free bytes, so it is not the small disk",
        data.display()
    );
    (server, data)
}

fn free_bytes(directory: &Path) -> u64 {
    let stat = rustix::fs::statvfs(directory).unwrap();
    stat.f_bavail * stat.f_frsize
}

#[test]
fn server_on_a_full_disk_refuses_new_runs_and_finishes_old_ones() {
    let slow = "until [ -e go ]; do sleep 0.1; done; echo finished";
    let conversations: [(&str, &[ScriptStep]); 3] =
        [("slow", &[bash(slow)]), ("other", &[bash("echo other")]), ("gateway", &[bash("echo gateway")])];
    let server = WorkspaceServer::start(&json!({}), &conversations);
    let key = server.key("anna", "acme");
    let (server, data) = with_small_disk(server);
    let begun = server.post(&key, &json!({"model": "worker", "input": "slow", "background": true}));
    let id = begun.body["id"].as_str().unwrap_or_else(|| panic!("{}", begun.body)).to_owned();
    let conversation = server.post_to(&key, "/v1/conversations", &json!({})).body;
    let items = format!("/v1/conversations/{}/items", conversation["id"].as_str().unwrap());
    // Three percent stay free, less than the five percent that new runs need.
    let used_up = free_bytes(&data) - SMALL_DISK_BYTES * 3 / 100;
    let filler = data.join("filler");
    fs::write(&filler, vec![b'x'; usize::try_from(used_up).unwrap()]).unwrap();
    let ask = || server.post(&key, &json!({"model": "worker", "input": "other"}));
    let refused = ask();
    assert_eq!(refused.body["error"]["code"], "disk_full", "{}", refused.body);
    assert!(
        refused.head.starts_with("HTTP/1.1 503") && refused.head.contains("retry-after: 60"),
        "{}",
        refused.head
    );
    let agent = server.call_agent(&key, "gateway");
    assert!(agent["isError"] == true && agent.to_string().contains("almost full"), "{agent}");
    let item = json!({"items": [{"role": "user", "content": "x"}]});
    for path in ["/v1/conversations", &items] {
        let refused = server.post_to(&key, path, &item);
        assert_eq!(refused.body["error"]["code"], "disk_full", "{path}: {}", refused.body);
        assert!(refused.head.starts_with("HTTP/1.1 503"), "{path}: {}", refused.head);
    }
    let workspace = server.tree.path("home/workspace/acme").join(&id);
    fs::write(workspace.join("go"), "").unwrap();
    let get = || server.get(&key, &format!("/v1/responses/{id}")).body;
    eventually("the old run ends", || get()["status"] == "completed");
    assert!(get()["output"][0]["output"].as_str().unwrap().contains("finished"), "{}", get());
    fs::remove_file(filler).unwrap();
    assert_eq!(ask().body["status"], "completed", "the server accepts responses after space is free again");
    let agent = server.call_agent(&key, "gateway");
    assert!(agent["isError"] != true && agent.to_string().contains("done"), "{agent}");
    stop(server.child);
}

#[test]
fn storage_limits_remove_old_responses_and_refuse_a_large_tenant() {
    let conversations: [(&str, &[ScriptStep]); 2] =
        [("write", &[bash("head -c 3000000 /dev/zero > big; echo done")]), ("small", &[bash("echo small")])];
    let serve = json!({"retention": {"maxResponses": 1}, "maxTenantBytes": 2_000_000});
    let server = WorkspaceServer::start(&serve, &conversations);
    let (anna, bert) = (server.key("anna", "acme"), server.key("bert", "other"));
    let ids: Vec<String> =
        ["small", "small", "write"].iter().map(|input| server.ask(&anna, input, None).0).collect();
    for (id, hours) in ids.iter().zip([4, 3, 2]) {
        let file = File::options()
            .append(true)
            .open(server.tree.path("home/data/responses/acme").join(format!("{id}.json")));
        file.unwrap().set_modified(SystemTime::now() - Duration::from_hours(hours)).unwrap();
    }
    let server = server.restarted();
    let status = |id: &str| server.get(&anna, &format!("/v1/responses/{id}")).head[9..12].to_owned();
    eventually("the oldest responses are removed", || status(&ids[0]) == "404" && status(&ids[1]) == "404");
    assert_eq!(status(&ids[2]), "200");
    let ask = |key: &str| server.post(key, &json!({"model": "worker", "input": "small"}));
    eventually("the tenant is refused", || ask(&anna).body["error"]["code"] == "tenant_quota_exceeded");
    assert!(ask(&anna).head.starts_with("HTTP/1.1 429"));
    let create = |key: &str| server.post_to(key, "/v1/conversations", &json!({})).head[9..12].to_owned();
    assert_eq!((create(&anna).as_str(), create(&bert).as_str()), ("429", "200"));
    let agent = server.call_agent(&anna, "small");
    assert!(agent["isError"] == true && agent.to_string().contains("delete responses"), "{agent}");
    assert_eq!(ask(&bert).body["status"], "completed", "the limit does not apply to another tenant");
    assert!(
        server.call_agent(&bert, "small")["isError"] != true,
        "the limit does not apply to agents of another tenant"
    );
    stop(server.child);
}

#[test]
fn backup_of_a_busy_server_can_be_used_in_a_new_home() {
    let conversations: [(&str, &[ScriptStep]); 1] = [("hello", &[bash("echo hello")])];
    let server = WorkspaceServer::start(&json!({}), &conversations);
    let key = server.key("anna", "acme");
    let ask = || server.ask(&key, "hello", None).0;
    let before: Vec<String> = (0..3).map(|_| ask()).collect();
    let file = server.tree.path("outside/haft.tar");
    let file_name = file.to_str().unwrap();
    let done = AtomicBool::new(false);
    let backups = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut written = 0;
            while !done.load(Ordering::Relaxed) {
                ask();
                written += 1;
            }
            written
        });
        let backup =
            |flags: &[&str]| server.tree.haft(&[&["store", "backup", file_name], flags].concat()).output();
        let first = backup(&["--json"]).expect_code(0);
        let summary: Value = serde_json::from_str(&first.stdout).unwrap();
        assert!(summary["files"].as_u64().unwrap() >= 6, "{summary}");
        let refused = backup(&[]).expect_code(42);
        assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
        backup(&["--force"]).expect_code(0);
        done.store(true, Ordering::Relaxed);
        writing.join().unwrap()
    });
    assert!(backups > 0, "responses were written at the same time");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);

    let restored = TestTree::new(server.tree.user());
    let unpacked =
        Command::new("tar").arg("-xf").arg(&file).arg("-C").arg(restored.path("home")).output().unwrap();
    assert!(unpacked.status.success(), "{unpacked:?}");
    restored.file("home/haft.json", &server.tree.text("home/haft.json"));
    let (child, address) = serve_with(&restored, &server.model);
    let responses = restored.path("home/data/responses/acme");
    let all = fs::read_dir(responses).unwrap().map(|entry| entry.unwrap().path());
    let all: Vec<String> = all.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert!(before.iter().all(|id| all.contains(id)), "{before:?} {all:?}");
    for id in all {
        let answer = WorkspaceServer::get_from(&address, &key, &format!("/v1/responses/{id}"));
        assert!(answer.head.starts_with("HTTP/1.1 200"), "{id}: {}", answer.body);
    }
    stop(child);
    stop(server.child);
}

#[test]
fn data_of_a_principal_can_be_exported_and_deleted() {
    let conversations: [(&str, &[ScriptStep]); 2] = [
        ("apple", &[bash("echo apple-file > file; echo apple-tmp > /tmp/file")]),
        ("cherry", &[bash("echo cherry-file > file")]),
    ];
    let server = WorkspaceServer::start(&json!({}), &conversations);
    let (anna, bert) = (server.key("anna", "acme"), server.key("bert", "acme"));
    let (id, _) = server.ask(&anna, "apple", None);
    server.ask(&bert, "cherry", None);
    let haft = |words: &[&str]| server.tree.haft(&[&["store"], words].concat()).output();
    let file = server.tree.path("outside/anna.tar");
    haft(&["export", "--principal", "acme/anna", file.to_str().unwrap()]).expect_code(0);
    let listed = Command::new("tar").arg("-tf").arg(&file).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    for name in [
        &format!("responses/acme/{id}.json"),
        "events/acme/",
        "tenant-sessions/acme/",
        "lines/accounting.jsonl",
        "keys.json",
    ] {
        assert!(listed.contains(name), "{name}: {listed}");
    }
    assert!(listed.contains(&format!("workspace/acme/{id}/file")), "{listed}");
    let content = fs::read(&file).unwrap();
    let holds = |text: &str| content.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(holds("apple-file") && holds("apple-tmp") && !holds("cherry"), "{listed}");

    let home = server.tree.path("home");
    assert!(!files_with(&home, "apple").is_empty() && !files_with(&home, "acme/anna").is_empty());
    haft(&["delete", "--principal", "acme/anna"]).expect_code(4);
    assert!(!files_with(&home, "apple").is_empty(), "without a terminal, the deletion needs `--yes`");
    let deleted = haft(&["delete", "--principal", "acme/anna", "--yes", "--json"]).expect_code(0);
    let deleted: Value = serde_json::from_str(&deleted.stdout).unwrap();
    assert_eq!(deleted["unreadable"], json!([]));
    let pseudonym = deleted["pseudonym"].as_str().unwrap();
    assert_eq!(files_with(&home, "apple"), Vec::<String>::new());
    assert_eq!(files_with(&home, "acme/anna"), Vec::<String>::new());
    assert!(!files_with(&home, "cherry-file").is_empty(), "haft keeps the data of other principals");
    let accounting = server.tree.text("home/data/accounting/acme.jsonl");
    assert!(accounting.contains(pseudonym) && accounting.contains("acme/bert"), "{accounting}");
    assert!(
        server.get(&anna, "/v1/models").head.starts_with("HTTP/1.1 401"),
        "haft revokes the keys of the principal"
    );
    assert!(server.get(&bert, "/v1/models").head.starts_with("HTTP/1.1 200"));
    for unknown in ["acme/anna", "acme/team/anna"] {
        let refused = haft(&["delete", "--principal", unknown, "--yes"]).expect_code(42);
        assert!(
            refused.stderr.contains(&format!("no data of the principal {unknown}")),
            "{}",
            refused.stderr
        );
        let other = server.tree.path("outside/other.tar");
        haft(&["export", "--principal", unknown, other.to_str().unwrap()]).expect_code(42);
        assert!(!other.exists());
    }
    let words = ["keys", "create", "x", "--tenant", "acme/team"];
    assert!(server.tree.haft(&words).output().expect_code(2).stderr.contains("without `/`"));
    stop(server.child);
}
