use super::*;

const TEXT: &str = "one\ntwo\nthree\nfour\n";
const JSON: &str = r#"{"items":[{"id":1,"name":"a"},{"id":2}],"total":2}"#;

fn check(question: &str, content: &str, expected: &str) {
    let extract = Extract::parse(question).unwrap().unwrap_or_else(|| panic!("{question} is not understood"));
    assert_eq!(extract.answer(content.as_bytes()).unwrap(), expected, "{question}");
}

fn check_error(question: &str, content: &str, part: &str) {
    let answer = Extract::parse(question).map(|extract| extract.unwrap().answer(content.as_bytes()));
    let error = answer.and_then(|answer| answer).unwrap_err().0;
    assert!(error.contains(part), "{question}: {error}");
}

#[test]
fn parts_by_line_and_byte() {
    check("lines 2-3", TEXT, "two\nthree\n");
    check("lines 3-99", TEXT, "three\nfour\n");
    check("first 1 lines", TEXT, "one\n");
    check("last 2 lines", TEXT, "three\nfour\n");
    check("last 99 lines", TEXT, TEXT);
    check("bytes 0-3", TEXT, "one");
    check("bytes 4-9999", "héllo", "lo");
    check_error("lines 9-10", TEXT, "there are 4 lines");
    check_error("lines 0-1", TEXT, "counted from 1");
    check_error("lines 3-1", TEXT, "ends before it begins");
    check_error("lines x-1", TEXT, "whole number");
    check_error("bytes 99-100", TEXT, "beyond the end");
}

#[test]
fn lines_that_match() {
    check("grep t", TEXT, "2:two\n3:three\n");
    check("grep -i TWO", TEXT, "2:two\n");
    check("grep -B 1 -A 1 three", TEXT, "2-two\n3:three\n4-four\n");
    check("grep -C 1 one", TEXT, "1:one\n2-two\n");
    check("grep 'o.e'", TEXT, "1:one\n");
    check("grep nothing", TEXT, "no line matches `nothing`");
    check_error("grep (", TEXT, "cannot be used");
    check_error("grep -x a", TEXT, "grep knows");
    check_error("grep -A many a", TEXT, "wants a number");
    check_error("grep", TEXT, "wants a pattern");
}

#[test]
fn groups_of_matches_are_kept_apart_and_never_repeat_a_line() {
    check("grep -A 1 one|two", "one\ntwo\nx\ny\none\n", "1:one\n2:two\n3-x\n--\n5:one\n");
}

#[test]
fn json_is_filtered_and_described() {
    check("jq .total", JSON, "2\n");
    check("jq '.items[].id'", JSON, "1\n2\n");
    check("jq .missing?", "[]", "(no result)");
    check(
        "schema",
        JSON,
        "object\n  items: array\n    []: object ×2\n      id: number ×2\n      name: string\n  total: number",
    );
    check_error("jq .[", JSON, "is not a jq filter");
    check_error("jq .", "not json", "wants JSON");
    check_error("schema", "not json", "not JSON");
    check_error("jq error(\"no\")", JSON, "no");
}

#[test]
fn an_endless_stream_of_results_is_cut() {
    let extract = Extract::parse("jq repeat(1)").unwrap().unwrap();
    let answer = extract.answer(b"null").unwrap();
    assert!(answer.contains("output truncated") && answer.chars().count() < ANSWER_CHARS_MAX + 100);
}

#[test]
fn a_pattern_that_would_explode_elsewhere_is_matched_in_linear_time() {
    let text = "a".repeat(50_000);
    check("grep (a+)+$x", &text, "no line matches `(a+)+$x`");
    check_error(&format!("grep {}", "(a{1000}){1000}"), &text, "cannot be used");
}

#[test]
fn what_is_no_question_is_for_a_model() {
    for text in ["what went wrong?", "lines of code", "find the error", "first lines", ""] {
        assert_eq!(Extract::parse(text), Ok(None), "{text}");
    }
}

#[test]
fn sizes_in_every_unit() {
    check(
        "stats",
        "héllo\nx\n",
        "text: 9 bytes, 8 characters, 2 lines, longest line 5 characters, about 2 tokens",
    );
    check("stats", "[1]", "JSON: 3 bytes, 3 characters, 1 lines, longest line 3 characters, about 0 tokens");
}
