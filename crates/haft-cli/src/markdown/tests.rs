use proptest::prelude::*;

use super::*;

fn whole(text: &str) -> String {
    let mut markdown = MarkdownRenderer::default();
    let shown = markdown.push(text);
    shown + &markdown.finish()
}

/// Pushes one character at a time, because a model may split its text at any position.
fn in_pieces(text: &str) -> String {
    let mut markdown = MarkdownRenderer::default();
    let shown: String = text.chars().map(|c| markdown.push(&c.to_string())).collect();
    shown + &markdown.finish()
}

/// Compares the output, in which escape codes are replaced by readable tags.
fn check(text: &str, expected: &str) {
    let named = |shown: String| {
        let shown = shown.replace("\x1b[0m", "</>").replace("\x1b[1m", "<b>").replace("\x1b[2m", "<dim>");
        shown.replace("\x1b[3m", "<i>").replace("\x1b[36m", "<code>").replace("\x1b[1;3m", "<bi>")
    };
    assert_eq!(named(whole(text)), expected, "whole: {text:?}");
    assert_eq!(named(in_pieces(text)), expected, "in chunks: {text:?}");
}

#[test]
fn markdown_marks_become_terminal_styles() {
    check("a **b** c", "a <b>b</> c");
    check("*a* and _b_.", "<i>a</> and <i>b</>.");
    check("***a***", "<bi>a</>");
    check("run `ls *.rs` now", "run <code>ls *.rs</> now");
    check("``a`b``", "<code>a`b</>");
    check("**a `b` c**", "<b>a <code>b</><b> c</>");
    check("# Title\ntext\n", "<b>Title</>\ntext\n");
    check("## A `b` c", "<b>A <code>b</><b> c</>");
    check("- a\n  * b\n", "• a\n  • b\n");
    check("> a\n>b\n", "<dim>│</> a\n<dim>│</> b\n");
    check("> - a", "<dim>│</> • a");
    check("a\n\n---\nb", &format!("a\n\n<dim>{}</>\nb", "─".repeat(40)));
}

#[test]
fn text_without_markdown_marks_is_unchanged() {
    for text in [
        "2 * 3 = 6, 2*3*4",
        "snake_case_name",
        "*.rs is no list",
        "**never closed",
        "a ` b",
        "#hashtag",
        "1. one\n2. two\n",
        "a \\ b",
        "-5 degrees",
        "| a | b |\n| c | d |\n",
        "** a **",
        "trailing *",
        "",
        "\n\n",
    ] {
        check(text, text);
    }
    check("a \\*b\\*", "a *b*");
}

#[test]
fn fenced_code_is_not_styled() {
    check(
        "```rust\nlet a = *b * c;\n# no title\n```\n**x**",
        "<dim>```rust</>\nlet a = *b * c;\n# no title\n<dim>```</>\n<b>x</>",
    );
    check("````\n```\n````\n", "<dim>````</>\n```\n<dim>````</>\n");
    check("~~~\na", "<dim>~~~</>\na");
    check("```a```", "<code>a</>");
    check("```\n\n``", "<dim>```</>\n\n``");
}

#[test]
fn unclosed_mark_is_flushed_at_the_byte_limit() {
    let mut markdown = MarkdownRenderer::default();
    assert_eq!(markdown.push("a **b"), "a ");
    assert_eq!(markdown.push(" c** d"), "\x1b[1mb c\x1b[0m d");
    let long = "x".repeat(2 * HELD_BYTES_MAX);
    assert_eq!(markdown.push(&format!("**{long}")), format!("**{long}"));
}

/// The search for the end of a marker has the same limit for a complete text as for a text that arrives in chunks.
#[test]
fn streamed_span_over_the_limit_renders_like_a_complete_one() {
    for letter in ["x", "ü", "字"] {
        let long = letter.repeat(HELD_BYTES_MAX);
        for text in [format!("**{long}** b"), format!("`{long}` b"), format!("```{long}\n*a*\n```\n*b*")] {
            assert_eq!(whole(&text), in_pieces(&text), "{text}");
        }
    }
}

proptest! {
    /// Checks that every split of a text gives the same output, and that no letter or digit is lost.
    #[test]
    fn markdown_rendering_keeps_every_letter_for_any_split_of_the_text(text in "[ab1 \n*_`#>~\\\\-]{0,80}") {
        let shown = whole(&text);
        prop_assert_eq!(&shown, &in_pieces(&text));
        let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
        let plain = anstream::adapter::strip_str(&shown).to_string();
        prop_assert_eq!(letters(&plain), letters(&text));
    }

    /// Checks that a table that arrives in chunks looks like one that arrives at once.
    #[test]
    fn streamed_table_renders_like_a_complete_one(text in "(\\|[ab|\n -]{0,12}\n|\\|-\\|-\\|\n|[ab\n]{0,6}){0,8}") {
        prop_assert_eq!(whole(&text), in_pieces(&text));
    }
}
