//! Records `haft demo` in a terminal and writes the recording as an animated SVG for the README: `cargo run -p haft-cli
//! --example recording > docs/demo.svg`, once `haft` is built.
//!
//! `script` provides the terminal and the timing, `vt100` the screen at each time. A viewer without animation shows the
//! last screen.
#![allow(clippy::print_stdout, reason = "the picture goes to standard output")]

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const COLUMNS: u16 = 112;
const ROWS: u16 = 20;

/// Changes within this time are shown in one frame.
const FRAME_SECONDS: f64 = 0.08;

/// The time for which the typed command line is shown before the demo starts.
const PROMPT_SECONDS: f64 = 1.0;

const CELL_WIDTH: f64 = 8.4;
const LINE_HEIGHT: f64 = 19.0;
const MARGIN: f64 = 14.0;

fn main() -> Result<(), Box<dyn Error>> {
    let exe = std::env::current_exe()?;
    let haft = exe.ancestors().nth(2).ok_or("no directory of binaries")?.join("haft");
    let frames = frames(&record(&haft)?);
    print!("{}", picture(&frames));
    Ok(())
}

/// A chunk of terminal output.
struct TerminalChunk {
    /// Time since the previous chunk.
    seconds: f64,
    bytes: Vec<u8>,
}

fn record(haft: &Path) -> Result<Vec<TerminalChunk>, Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let (output, times) = (place.path().join("output"), place.path().join("times"));
    let status = Command::new("script")
        .args(["-q", "-e", "--logging-format", "classic"])
        .args([Path::new("--log-out"), &output, Path::new("--log-timing"), &times])
        .args(["-c", &format!("stty cols {COLUMNS} rows {ROWS}; '{}' demo", haft.display())])
        .env("TERM", "xterm-256color")
        .env("HAFT_HOME", place.path().join("home"))
        .stdout(std::process::Stdio::null())
        .status()?;
    if !status.success() {
        return Err(format!("the demo ended with {status}").into());
    }
    let written = std::fs::read(output)?;
    // `script` writes the first line itself and logs no timing for it.
    let mut at = written.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut pieces = Vec::new();
    for line in std::fs::read_to_string(times)?.lines() {
        let (seconds, bytes) = line.split_once(' ').ok_or("a time without a size")?;
        let end = (at + bytes.trim().parse::<usize>()?).min(written.len());
        pieces.push(TerminalChunk { seconds: seconds.parse()?, bytes: written[at..end].to_vec() });
        at = end;
    }
    Ok(pieces)
}

/// Returns the screen contents, each with the time in seconds at which it appears.
fn frames(pieces: &[TerminalChunk]) -> Vec<(f64, String)> {
    let mut terminal = vt100::Parser::new(ROWS, COLUMNS, 0);
    terminal.process(b"\x1b[1m$\x1b[0m haft demo\r\n");
    let (mut now, mut last) = (PROMPT_SECONDS, 0.0);
    let mut frames = vec![(0.0, lines(terminal.screen()))];
    for TerminalChunk { seconds, bytes } in pieces {
        // Shorten pauses in which the screen does not change.
        now += seconds.min(1.5);
        terminal.process(bytes);
        let seen = lines(terminal.screen());
        match frames.last_mut() {
            Some((_, shown)) if now - last < FRAME_SECONDS => *shown = seen,
            _ => {
                frames.push((now, seen));
                last = now;
            }
        }
    }
    frames
}

fn lines(screen: &vt100::Screen) -> String {
    (0..ROWS).fold(String::new(), |mut text, row| {
        let y = MARGIN + LINE_HEIGHT * f64::from(row + 1);
        let spans: String = runs(screen, row).iter().map(StyledSpan::text).collect();
        if !spans.is_empty() {
            let _ = write!(text, r#"<text x="{MARGIN}" y="{y}">{spans}</text>"#);
        }
        text
    })
}

/// Consecutive characters of one style.
struct StyledSpan {
    class: &'static str,
    column: u16,
    words: String,
}

impl StyledSpan {
    fn text(&self) -> String {
        let x = MARGIN + CELL_WIDTH * f64::from(self.column);
        let words = self.words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        format!(r#"<tspan x="{x:.1}" class="{}">{words}</tspan>"#, self.class)
    }
}

fn runs(screen: &vt100::Screen, row: u16) -> Vec<StyledSpan> {
    let mut runs: Vec<StyledSpan> = Vec::new();
    for (column, cell) in (0..COLUMNS).filter_map(|column| Some((column, screen.cell(row, column)?))) {
        let class = class(cell);
        let letter = if cell.has_contents() { cell.contents() } else { " " };
        match runs.last_mut() {
            Some(run) if run.class == class => run.words.push_str(letter),
            _ => runs.push(StyledSpan { class, column, words: letter.to_owned() }),
        }
    }
    for run in &mut runs {
        run.words.truncate(run.words.trim_end().len());
    }
    runs.retain(|run| !run.words.is_empty());
    runs
}

fn class(cell: &vt100::Cell) -> &'static str {
    match cell.fgcolor() {
        vt100::Color::Idx(1) => "red",
        vt100::Color::Idx(2) => "green",
        vt100::Color::Idx(3) => "yellow",
        vt100::Color::Idx(6) => "cyan",
        _ if cell.bold() => "bold",
        _ if cell.dim() => "dim",
        _ => "text",
    }
}

fn picture(frames: &[(f64, String)]) -> String {
    let width = 2.0 * MARGIN + CELL_WIDTH * f64::from(COLUMNS);
    let height = 2.0 * MARGIN + LINE_HEIGHT * f64::from(ROWS);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"ui-monospace, monospace\" \
         font-size=\"14\" xml:space=\"preserve\">\n<style>.text{{fill:#d8dee9}}.bold{{fill:#fff;font-weight:bold}}.dim{{fill:#7b8494}}\
         .red{{fill:#ef6b73}}.green{{fill:#8fce72}}.yellow{{fill:#e6c370}}.cyan{{fill:#76c7d2}}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1d2128\"/>\n"
    );
    for (index, (begin, lines)) in frames.iter().enumerate() {
        let shown = match frames.get(index + 1) {
            Some((end, _)) => format!(
                r#"<g visibility="hidden"><set attributeName="visibility" to="visible" begin="{begin:.2}s" dur="{:.2}s"/>"#,
                end - begin
            ),
            None => {
                format!(r#"<g><set attributeName="visibility" to="hidden" begin="0s" dur="{begin:.2}s"/>"#)
            }
        };
        let _ = writeln!(svg, "{shown}{lines}</g>");
    }
    svg.push_str("</svg>\n");
    svg
}
