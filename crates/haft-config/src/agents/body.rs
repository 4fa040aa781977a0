//! Expands the variables and includes in the text of an agent.

use super::error::AgentError;
use super::{AGENT_BYTES_MAX, AgentReadContext};

/// The maximum nesting depth of includes.
const INCLUDE_DEPTH_MAX: usize = 8;

/// The maximum number of includes in one agent.
const INCLUDES_MAX: usize = 100;

/// Expands `${NAME}`, `${NAME:-default}` and `{{ include "file" }}`. `$${` yields a literal `${`. The value of a
/// variable is not expanded again; the text of an included file is.
pub(super) fn expand(
    file: &str,
    text: &str,
    line: usize,
    around: AgentReadContext<'_>,
) -> Result<String, AgentError> {
    let mut writer = BodyExpander { around, open: vec![file.to_owned()], includes: 0, done: String::new() };
    writer.text(text, line)?;
    Ok(writer.done)
}

struct BodyExpander<'a> {
    around: AgentReadContext<'a>,
    /// The files that are being read, in the order of inclusion: each file is included by the file before it.
    open: Vec<String>,
    includes: usize,
    done: String,
}

/// A marker in a text, in contrast to plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyMarker<'t> {
    Literal,
    Variable(&'t str),
    Include(&'t str),
    /// Braces that are not an include; other template languages use them too.
    Braces,
    Unclosed,
}

impl BodyExpander<'_> {
    fn text(&mut self, text: &str, first_line: usize) -> Result<(), AgentError> {
        let (mut rest, mut line) = (text, first_line);
        while let Some(at) = next_mark(rest) {
            self.push(&rest[..at], line)?;
            line += newlines(&rest[..at]);
            let (mark, length) = read_mark(&rest[at..]);
            self.mark(mark, &rest[at..at + length], line)?;
            line += newlines(&rest[at..at + length]);
            rest = &rest[at + length..];
        }
        self.push(rest, line)
    }

    fn mark(&mut self, mark: BodyMarker<'_>, written: &str, line: usize) -> Result<(), AgentError> {
        match mark {
            BodyMarker::Literal => self.push("${", line),
            BodyMarker::Braces => self.push(written, line),
            BodyMarker::Variable(inside) => {
                let value = self.variable(inside, line)?;
                self.push(&value, line)
            }
            BodyMarker::Include(name) => self.include(name, line),
            BodyMarker::Unclosed => {
                let error = self.error(line, "the `${` of a variable is not closed by `}`");
                Err(error.with_hint(Some("write `$${` for a literal `${`".into())))
            }
        }
    }

    fn variable(&self, inside: &str, line: usize) -> Result<String, AgentError> {
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let value = (self.around.variable)(name).filter(|value| !value.is_empty() || default.is_none());
        value.or_else(|| default.map(str::to_owned)).ok_or_else(|| {
            let hint = format!("write a default as in ${{{name}:-value}}, or write $${{ for a literal ${{");
            self.error(line, format!("variable `{name}` is not set")).with_hint(Some(hint))
        })
    }

    fn include(&mut self, name: &str, line: usize) -> Result<(), AgentError> {
        self.includes += 1;
        if self.open.iter().any(|open| open == name) {
            let path = format!("{} > {name}", self.open.join(" > "));
            return Err(self.error(line, format!("the agent file and its includes form a cycle: {path}")));
        }
        if self.open.len() > INCLUDE_DEPTH_MAX || self.includes > INCLUDES_MAX {
            let message = format!(
                "the agent file has too many includes; the limit is {INCLUDES_MAX} in total and {INCLUDE_DEPTH_MAX} levels deep"
            );
            return Err(self.error(line, message));
        }
        let text = (self.around.read)(name).map_err(|problem| {
            self.error(line, format!("haft cannot include the file `{name}`: {problem}"))
        })?;
        self.open.push(name.to_owned());
        self.text(text.trim_end_matches('\n'), 1)?;
        self.open.pop();
        Ok(())
    }

    fn push(&mut self, text: &str, line: usize) -> Result<(), AgentError> {
        if self.done.len().saturating_add(text.len()) > AGENT_BYTES_MAX {
            return Err(self.error(
                line,
                format!("the agent file with all its includes is larger than {AGENT_BYTES_MAX} bytes"),
            ));
        }
        self.done.push_str(text);
        Ok(())
    }

    fn error(&self, line: usize, message: impl Into<String>) -> AgentError {
        AgentError::new(self.open.last().map_or("", String::as_str), line, message)
    }
}

fn next_mark(text: &str) -> Option<usize> {
    ["$${", "${", "{{"].iter().filter_map(|mark| text.find(mark)).min()
}

/// Reads the marker at the beginning of a text, and returns it with its length.
fn read_mark(text: &str) -> (BodyMarker<'_>, usize) {
    if text.starts_with("$${") {
        return (BodyMarker::Literal, 3);
    }
    if let Some(after) = text.strip_prefix("${") {
        return match after.find(['}', '\n']) {
            Some(end) if after[end..].starts_with('}') => (BodyMarker::Variable(&after[..end]), end + 3),
            Some(_) | None => (BodyMarker::Unclosed, 2),
        };
    }
    let include = text[2..].find("}}").and_then(|end| Some((include_name(&text[2..2 + end])?, end + 4)));
    include.map_or((BodyMarker::Braces, 2), |(name, length)| (BodyMarker::Include(name), length))
}

fn include_name(inside: &str) -> Option<&str> {
    let name = inside.trim().strip_prefix("include")?.trim();
    let name = name.strip_prefix('"')?.strip_suffix('"')?;
    (!name.is_empty() && !name.contains(['"', '\n'])).then_some(name)
}

fn newlines(text: &str) -> usize {
    text.matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(run: impl Fn(AgentReadContext<'_>)) {
        let read = |name: &str| match name {
            "rules.md" => Ok("be ${MOOD}\n".into()),
            "a.md" => Ok("one\n{{ include \"b.md\" }}".into()),
            "b.md" => Ok("two {{ include \"a.md\" }}".into()),
            "big.md" => Ok("x".repeat(AGENT_BYTES_MAX)),
            deep if deep.starts_with("deep") => Ok(format!("{{{{ include \"{deep}x\" }}}}")),
            _ => Err("there is no such file".into()),
        };
        let variable = |name: &str| match name {
            "MOOD" => Some("kind ${NOT_EXPANDED}".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        run(AgentReadContext { read: &read, variable: &variable });
    }

    fn check(text: &str, expected: Result<&str, &str>) {
        around(|around| match (expand("main.md", text, 5, around), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
            (found, expected) => panic!("{text}: expected {expected:?}, found {found:?}"),
        });
    }

    #[test]
    fn variables_in_an_agent_file_are_expanded_once() {
        check("a ${MOOD} b", Ok("a kind ${NOT_EXPANDED} b"));
        check("${NO:-rest} ${EMPTY:-full} [${EMPTY}]", Ok("rest full []"));
        check("$${MOOD} $5 {a} {{ x }} {{", Ok("${MOOD} $5 {a} {{ x }} {{"));
        check("a\n\nb ${NO}", Err("main.md:7: variable `NO` is not set"));
        check("a ${MOOD\n}", Err("main.md:5: the `${` of a variable is not closed"));
    }

    #[test]
    fn included_files_have_their_variables_expanded() {
        check("Rules: {{ include \"rules.md\" }}.", Ok("Rules: be kind ${NOT_EXPANDED}."));
        check("{{include \"rules.md\"}}", Ok("be kind ${NOT_EXPANDED}"));
        check(
            "x\n{{ include \"none.md\" }}",
            Err("main.md:6: haft cannot include the file `none.md`: there is no such file"),
        );
    }

    #[test]
    fn include_is_refused_if_it_forms_a_cycle_or_exceeds_a_limit() {
        check(
            "{{ include \"a.md\" }}",
            Err("b.md:1: the agent file and its includes form a cycle: main.md > a.md > b.md > a.md"),
        );
        check("{{ include \"main.md\" }}", Err("its includes form a cycle"));
        check("{{ include \"deep\" }}", Err("8 levels deep"));
        check(&"{{ include \"rules.md\" }}".repeat(INCLUDES_MAX + 1), Err("the limit is 100 in total"));
        check("x{{ include \"big.md\" }}", Err("larger than 1048576 bytes"));
    }
}
