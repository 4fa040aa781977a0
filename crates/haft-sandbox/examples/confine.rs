//! Runs the command in its arguments inside the sandbox: `cargo run -p haft-sandbox --example confine -- ls`.
use haft_sandbox::{Home, SandboxMode, SandboxPolicy, init, sandboxed_command, user_home};
use std::io::Write;
use tokio::io::AsyncReadExt;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    init(&[]);
    let mut words = std::env::args_os().skip(1);
    let program = words.next().ok_or("usage: confine PROGRAM ARGS…")?;
    let home = Home::at(&user_home().ok_or("no home")?.join(".haft"));
    let mode: SandboxMode = std::env::var("MODE").unwrap_or("workspace".into()).parse()?;
    let policy = SandboxPolicy::new(mode, &std::env::current_dir()?, &home, user_home().as_deref())?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut child = sandboxed_command(program, &policy).args(words).spawn().await?;
        let mut output = Vec::new();
        child.stdout.take().ok_or("no pipe")?.read_to_end(&mut output).await?;
        std::io::stdout().write_all(&output)?;
        let exit = child.wait().await?;
        writeln!(std::io::stderr(), "{exit:?} {:?}", child.confinement())?;
        Ok(())
    })
}
