//! Tests of DNS rebinding: haft connects to the IP address that it checked, even if the name resolves to another
//! address later.

use std::path::PathBuf;

use haft_testkit::{HaftOutput, TestTree, TestUser};

use super::canned::answer;
use super::shop::python;

const PUBLIC: &str = "93.184.216.34";
const PRIVATE: &str = "127.0.0.1";

/// Makes `calls` calls in a separate network, in which `answers` are the addresses that the successive lookups of the
/// name return.
fn call(answers: &[&str], says: &str, calls: usize) -> HaftOutput {
    let tree = TestTree::new(TestUser::Ourselves);
    tree.file(
        "home/haft.json",
        r#"{ "restTools": { "it": { "description": "It", "method": "GET", "url": "http://rebind.example.org/" } } }"#,
    );
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/rest/rebinding.py");
    let (python, script, answers) = (python(), script, answers.join(","));
    let wrapper = ["unshare", "--map-root-user", "--net", "--mount"];
    let network = [python.to_str().unwrap(), "-B", script.to_str().unwrap(), &answers, says];
    let line = "{\"id\":1,\"tool\":\"rest__it\",\"args\":{}}\n";
    let run = tree.haft(&["call", "--stdin", "--jobs", "1"]).through(&[&wrapper[..], &network].concat());
    run.stdin(line.repeat(calls)).output()
}

#[test]
fn dns_rebinding_to_a_private_address_is_refused() {
    let check = |answers: &[&str], says: &str, calls: usize, seen: &str, said: &[&str]| {
        let ran = call(answers, says, calls);
        assert!(ran.stderr.contains(seen), "{answers:?}: no `{seen}` in {ran:?}");
        for text in said {
            assert!(ran.stdout.contains(text), "{answers:?}: no `{text}` in {ran:?}");
        }
        assert!(!ran.stdout.contains("the private one"), "{ran:?}");
    };
    let fine = answer("200 OK", "", "the public one");
    let refused = "which is not a public address";
    // haft connects to the address that it has checked, even if a later lookup of the name gives a private address.
    check(&[PUBLIC, PRIVATE], &fine, 1, "public 1, private 0", &["the public one"]);
    check(&[PUBLIC, PRIVATE], &fine, 2, "public 1, private 0", &["the public one", refused]);
    check(&[PRIVATE], &fine, 1, "public 0, private 0", &[refused]);
    check(&["93.184.216.34+127.0.0.1"], &fine, 1, "public 0, private 0", &[refused]);
    let around = answer("307 Temporary", "Location: /again\r\n", "");
    check(&[PUBLIC, PRIVATE], &around, 1, "public 1, private 0", &[refused]);
}
