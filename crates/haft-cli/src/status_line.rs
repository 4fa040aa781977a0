//! A status line for a user who waits for a slow operation.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use haft_core::text::controls_terminal;

use super::terminal;

/// The time before the line is shown.
const QUIET: Duration = Duration::from_secs(1);

/// The time between two updates of the status line.
const REFRESH: Duration = Duration::from_millis(200);

/// The maximum number of characters of the line that are shown.
const LINE_CHARS_MAX: usize = 70;

/// Waits for `work`. After a second, shows a status line with the elapsed time, if standard error is a terminal.
pub(super) async fn waiting<T>(what: &str, detail: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if !terminal::can_redraw() {
        return work.await;
    }
    let began = Instant::now();
    let mut shown = false;
    loop {
        let pause = if shown { REFRESH } else { QUIET };
        if let Ok(done) = tokio::time::timeout(pause, &mut work).await {
            if shown {
                terminal::clear_status_line();
            }
            return done;
        }
        shown = true;
        terminal::moving(&line(what, began.elapsed(), &detail()), "");
    }
}

/// Formats the line. Untrusted text must not reach the terminal as control sequences.
fn line(what: &str, elapsed: Duration, detail: &str) -> String {
    let text = format!("{}s {what} {detail}", elapsed.as_secs());
    text.chars().filter(|c| !controls_terminal(*c)).take(LINE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_line_is_truncated_and_has_no_escapes() {
        let said = format!("\x1b[31m{}", "x".repeat(100));
        let line = line("starting `a`", Duration::from_secs(3), &said);
        assert!(
            line.starts_with("3s starting `a` [31mxxx") && line.chars().count() == LINE_CHARS_MAX,
            "{line}"
        );
    }
}
