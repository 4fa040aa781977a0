use haft_model_server::{ScriptStep, ScriptUsage};
use serde_json::Value;

use super::{bash, haft, here, journals, resume, run, server};

#[test]
fn sessions_are_listed_shown_and_removed() {
    let tree = here();
    let empty = tree.haft(&["sessions", "list"]).output().expect_code(0).stdout;
    assert_eq!(empty, "there are no sessions; `haft run` starts one\n");
    tree.haft(&["resume"]).output().expect_code(42);
    let usage = ScriptUsage { input: 1200, output: 30, ..ScriptUsage::default() };
    let server = server([ScriptStep::say([bash("echo hi")]).using(usage), ScriptStep::text("done")]);
    run(&tree, &server, &["say hi\nplease"]).expect_code(0);
    let list = tree.haft(&["sessions", "list"]).output().expect_code(0).stdout;
    assert!(list.contains("completed") && list.contains("say hi") && !list.contains("please"), "{list}");
    let list = tree.haft(&["sessions", "list", "--json"]).output().expect_code(0).stdout;
    let list: Value = serde_json::from_str(&list).unwrap();
    let id = list[0]["session"].as_str().unwrap();
    assert_eq!((&list[0]["calls"], &list[0]["model_requests"]), (&1.into(), &2.into()));
    let shown = tree.haft(&["sessions", "show", &id[..6]]).output().expect_code(0).stdout;
    for part in
        ["say hi", "1-1 bash ok", "openai/m ok [", "1200 tokens in, 30 out", "models: 2, ", "s in total", id]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = tree.haft(&["sessions", "show", "--json"]).output().expect_code(0).stdout;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert!(shown["input_tokens"].as_u64().unwrap() >= 1200, "{shown}");
    assert_eq!(shown["tree"]["sessions"][0]["turns"][0]["operations"][0]["tool"], "bash");
    for (word, said) in [("ffff", "no session `ffff`"), ("zz", "first 4 digits"), ("", "first 4 digits")] {
        let ran = tree.haft(&["sessions", "show", word]).output().expect_code(42);
        assert!(ran.stderr.contains(said) && ran.stderr.contains("hint:"), "{word}: {}", ran.stderr);
    }
    let events = format!("home/data/events/local/{id}.jsonl");
    assert!(tree.exists(&events));
    tree.haft(&["sessions", "rm", id]).output().expect_code(0);
    assert!(journals(&tree).is_empty());
    assert!(!tree.exists(&events), "`sessions rm` also removes the events");
    tree.haft(&["sessions", "rm", id]).output().expect_code(42);
}

#[test]
fn damaged_first_line_is_reported_with_the_session_id() {
    let tree = here();
    let server = server([ScriptStep::text("done")]);
    run(&tree, &server, &["go"]).expect_code(0);
    let [path] = journals(&tree).try_into().unwrap();
    let id = path.file_stem().unwrap().to_str().unwrap().to_owned();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen('{', "x", 1)).unwrap();
    for words in [&["sessions", "show", &id[..8]][..], &["sessions", "show"], &["resume", &id[..8], "more"]] {
        let ran = tree.haft(words).output().expect_code(42);
        assert!(
            ran.stderr.contains(&id) && !ran.stderr.contains("there is no session"),
            "{words:?}: {}",
            ran.stderr
        );
    }
}

#[test]
fn unreadable_session_is_reported_and_others_work() {
    let tree = here();
    let server = server([ScriptStep::text("done")]);
    run(&tree, &server, &["go"]).expect_code(0);
    let [path] = journals(&tree).try_into().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("\"stepped\"", "\"slept\"", 1)).unwrap();
    run(&tree, &server, &["another"]).expect_code(0);
    let list = tree.haft(&["sessions", "list"]).output().expect_code(0).stdout;
    assert!(list.contains(": line 2 of the journal") && list.contains("another"), "{list}");
    let id = path.file_stem().unwrap().to_str().unwrap();
    let ran = resume(&tree, &server, &[id]).expect_code(42);
    assert!(ran.stderr.contains("line 2") && ran.stderr.contains("hint:"), "{}", ran.stderr);
}

#[test]
fn session_name_last_never_skips_an_unreadable_newest_session() {
    let tree = here();
    let server = server([ScriptStep::text("done")]);
    run(&tree, &server, &["the first"]).expect_code(0);
    let [first] = journals(&tree).try_into().unwrap();
    run(&tree, &server, &["the second"]).expect_code(0);
    let second = journals(&tree).into_iter().find(|path| *path != first).unwrap();
    let text = std::fs::read_to_string(&second).unwrap();
    std::fs::write(&second, text.replacen("\"version\":2", "\"version\":9", 1)).unwrap();
    for words in [&["resume", "last", "more"][..], &["sessions", "show", "last"]] {
        let ran = haft(&tree, &server, words).output().expect_code(42);
        assert!(ran.stderr.contains("the session has version 9"), "{words:?}: {}", ran.stderr);
    }
    tree.haft(&["sessions", "rm", "last"]).output().expect_code(0);
    assert_eq!(journals(&tree), [first]);
    // This session was killed before it wrote its first line, so it has not begun, and `last` skips it.
    std::fs::write(&second, "").unwrap();
    let shown = tree.haft(&["sessions", "show", "last"]).output().expect_code(0).stdout;
    assert!(shown.contains("the first"), "{shown}");
}

/// Paths and arguments may contain any bytes, not only UTF-8.
#[test]
fn non_utf8_arguments_are_stored_and_reused_on_resume() {
    use std::os::unix::ffi::OsStrExt;
    let tree = here();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let directory = tree.path("ws").join(name);
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join(name), "{}").unwrap();
    tree.give(&directory);
    let server = server([ScriptStep::text("one"), ScriptStep::text("two")]);
    let words = ["-c", r#""$0" run -m openai/m --config $'caf\xe9' --record $'\xff.jsonl' go"#];
    let ran =
        super::haft(&tree, &server, &[]).through(&["bash", words[0], words[1]]).in_directory(&directory);
    assert_eq!(ran.output().expect_code(0).stdout, "one\n");
    assert_eq!(resume(&tree, &server, &["last", "more"]).expect_code(0).stdout, "two\n");
}

#[test]
fn resume_works_from_any_directory_if_the_workspace_exists() {
    let tree = here();
    tree.directory("ws/deep");
    let server =
        server([ScriptStep::say([bash("pwd > where")]), ScriptStep::text("one"), ScriptStep::text("two")]);
    super::haft(&tree, &server, &["run", "-m", "openai/m", "go"])
        .in_directory(&tree.path("ws/deep"))
        .output()
        .expect_code(0);
    assert_eq!(resume(&tree, &server, &["last", "more"]).expect_code(0).stdout, "two\n");
    std::fs::remove_dir_all(tree.path("ws/deep")).unwrap();
    let ran = resume(&tree, &server, &["last", "more"]).expect_code(42);
    assert!(ran.stderr.contains("the directory `") && ran.stderr.contains("hint:"), "{}", ran.stderr);
}
