use super::*;

const TEXT: &str = "one\ntwo\nthree\nfour\n";
const JSON: &str = r#"{"items":[{"id":1,"name":"a"},{"id":2}],"total":2}"#;

fn check(question: &str, content: &str, expected: &str) {
    let asked = OutputQuery::parse(question)
        .unwrap()
        .unwrap_or_else(|| panic!("{question} is not parsed as a query"));
    assert_eq!(asked.answer(content.as_bytes()).unwrap(), expected, "{question}");
}

fn check_error(question: &str, content: &str, part: &str) {
    let answer = OutputQuery::parse(question).map(|asked| asked.unwrap().answer(content.as_bytes()));
    let error = answer.and_then(|answer| answer).unwrap_err().0;
    assert!(error.contains(part), "{question}: {error}");
}

#[test]
fn queries_extract_line_and_byte_ranges() {
    check("lines 2-3", TEXT, "two\nthree\n");
    check("lines 3-99", TEXT, "three\nfour\n");
    check("first 1 lines", TEXT, "one\n");
    check("first 99 lines", TEXT, TEXT);
    check("first 0 lines", TEXT, "");
    check("last 0 lines", TEXT, "");
    check("lines 1-18446744073709551615", TEXT, TEXT);
    check("last 2 lines", TEXT, "three\nfour\n");
    check("last 99 lines", TEXT, TEXT);
    check("bytes 0-3", TEXT, "one");
    check("bytes 4-9999", "héllo", "lo");
    check_error("lines 9-10", TEXT, "the output has 4 lines");
    check_error("lines 0-1", TEXT, "counted from 1");
    check_error("lines 3-1", TEXT, "ends before it begins");
    check_error("lines x-1", TEXT, "whole number");
    check_error("bytes 99-100", TEXT, "beyond the end");
}

#[test]
fn grep_returns_numbered_matching_lines() {
    check("grep t", TEXT, "2:two\n3:three\n");
    check("grep -i TWO", TEXT, "2:two\n");
    check("grep -B 1 -A 1 three", TEXT, "2-two\n3:three\n4-four\n");
    check("grep -C 1 one", TEXT, "1:one\n2-two\n");
    check("grep -C 18446744073709551615 one", TEXT, "1:one\n2-two\n3-three\n4-four\n");
    check("grep 'o.e'", TEXT, "1:one\n");
    check("grep nothing", TEXT, "no line matches `nothing`");
    check_error("grep (", TEXT, "pattern is not valid");
    check_error("grep -x a", TEXT, "grep accepts");
    check_error("grep -A many a", TEXT, "needs a number");
    check_error("grep", TEXT, "needs a pattern");
}

#[test]
fn grep_separates_match_groups_and_repeats_no_line() {
    check("grep -A 1 one|two", "one\ntwo\nx\ny\none\n", "1:one\n2:two\n3-x\n--\n5:one\n");
}

#[test]
fn jq_filters_json_and_schema_describes_it() {
    check("jq .total", JSON, "2\n");
    check("jq '.items[].id'", JSON, "1\n2\n");
    check("jq .missing?", "[]", "(no result)");
    check(
        "schema",
        JSON,
        "object\n  items: array\n    []: object ×2\n      id: number ×2\n      name: string\n  total: number",
    );
    check_error("jq .[", JSON, "is not a valid jq filter");
    check_error("jq .", "not json", "needs JSON");
    check_error("schema", "not json", "not JSON");
    check_error("jq error(\"no\")", JSON, "no");
    check_error("jq import \"x\" as $x; $x", JSON, "cannot import files");
    check_error("jq import \"x\" as x; x::f", JSON, "is not a valid jq filter");
}

#[test]
fn endless_jq_results_are_truncated() {
    let asked = |question: &str| OutputQuery::parse(question).unwrap().unwrap().answer(b"null").unwrap();
    let first = asked("jq repeat(1)");
    assert!(
        first.ends_with("... (page 1 of 140; next: `page 2 of jq repeat(1)`)"),
        "{}",
        &first[first.len() - 80..]
    );
    assert!(first.len() < PAGE_BYTES_MAX + 100);
    let last = asked("page 140 of jq repeat(1)");
    assert!(
        last.ends_with(
            "... (page 140 of 140, the last; the answer is longer than shown, ask for less at once)"
        )
    );
}

#[test]
fn pathological_grep_pattern_is_matched_in_linear_time() {
    let text = "a".repeat(50_000);
    check("grep (a+)+$x", &text, "no line matches `(a+)+$x`");
    check_error(&format!("grep {}", "(a{1000}){1000}"), &text, "pattern is not valid");
}

#[test]
fn free_text_is_not_parsed_as_a_query() {
    for text in ["what went wrong?", "lines of code", "find the error", "first lines", ""] {
        assert_eq!(OutputQuery::parse(text), Ok(None), "{text}");
    }
}

#[test]
fn json_lines_are_filtered_and_described_value_by_value() {
    let lines = "{\"id\": 1, \"ok\": true}\n{\"id\": 2}\n";
    check("jq .id", lines, "1\n2\n");
    check("jq 'select(.ok) | .id'", lines, "1\n");
    let shape = OutputQuery::parse("schema").unwrap().unwrap().answer(lines.as_bytes()).unwrap();
    assert!(shape.contains("id: ") && shape.contains("ok: "), "{shape}");
    check_error("jq .", "{} and words", "needs JSON");
}

#[test]
fn stats_reports_bytes_characters_lines_and_tokens() {
    check(
        "stats",
        "héllo\nx\n",
        "text: 9 bytes, 8 characters, 2 lines, longest line 5 characters, about 3 tokens",
    );
    check("stats", "[1]", "JSON: 3 bytes, 3 characters, 1 line, longest line 3 characters, about 1 tokens");
}

#[test]
fn pages_of_a_long_answer_together_are_the_whole_answer() {
    let text = (1..=20_000).map(|line| format!("{line}\n")).collect::<Vec<_>>().concat();
    let mut question = "lines 1-20000".to_owned();
    let mut seen = String::new();
    for _ in 0..10 {
        let answer = OutputQuery::parse(&question).unwrap().unwrap().answer(text.as_bytes()).unwrap();
        let (page, notice) = answer.rsplit_once("... (").unwrap();
        seen.push_str(page);
        let Some((_, next)) = notice.split_once("next: `") else { break };
        next.trim_end_matches("`)").clone_into(&mut question);
    }
    assert!(seen == text, "{} of {} bytes", seen.len(), text.len());
    check_error("page 9 of first 1 lines", &text, "there is no page 9: the answer has 1 page(s)");
    check_error("page 0 of first 1 lines", &text, "there is no page 0");
    check_error("page x of stats", &text, "whole number");
}

#[test]
fn binary_output_supports_only_stats_and_hexadecimal_bytes() {
    let gif = "GIF89a\u{5}\0\u{7}\0";
    check(
        "stats",
        gif,
        "binary: image/gif, 5x7 pixels, 10 bytes, sha256 1510b9ac5cdbc1020a232b7468d99f1bcb490f94d7af788381ac3d671f32eff4",
    );
    check("bytes 0-3", gif, "47 49 46\n(bytes 0-3 of 10, in hexadecimal)");
    check("bytes 8-99", gif, "07 00\n(bytes 8-10 of 10, in hexadecimal)");
    check_error("bytes 11-12", gif, "beyond the end");
    for question in ["lines 1-2", "grep x", "jq .", "schema", "first 1 lines", "last 1 lines"] {
        check_error(question, gif, "the output is not text; ask for `stats`");
    }
}
