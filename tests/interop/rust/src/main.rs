//! Lets Scylla's Rust driver and Rust CDC library work against a cluster, for test_interop.py.
//!
//! ```text
//! interop HOST PORT KEYSPACE write            run the DDL on standard input, then the workload of write.rs
//! interop HOST PORT KEYSPACE more AFTER       once it is later than AFTER (milliseconds), write a row to each of some
//!                                             partitions of the table many
//! interop HOST PORT KEYSPACE read SINCE N     print the logs of the tables named on standard input from SINCE
//!                                             (milliseconds) until now; N is for peers that cannot tell the last
//!                                             generation themselves
//! ```
//!
//! A log row is one line of JSON on standard output: its columns by name, null ones left out.

mod read;
mod value;
mod write;

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

/// The server under test is a process on this machine; what takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    tokio::time::timeout(PATIENCE, run(&args)).await.context("it took too long")?
}

async fn run(args: &[&str]) -> anyhow::Result<()> {
    let (host, port, keyspace, command) = match args {
        [host, port, keyspace, command @ ..] => (host, port, keyspace, command),
        _ => bail!("expected HOST PORT KEYSPACE write|more|read, got {} arguments", args.len()),
    };
    let session = SessionBuilder::new()
        .known_node(format!("{host}:{port}"))
        .use_keyspace(*keyspace, false)
        .build()
        .await
        .context("cannot connect")?;
    match command {
        ["write"] => {
            create_schema(&session).await?;
            write::write(&session).await
        }
        ["more", after] => {
            let after = Duration::from_millis(after.parse().context("AFTER is no number")?);
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            tokio::time::sleep((after + Duration::from_millis(1)).saturating_sub(now)).await;
            write::write_more(&session).await
        }
        ["read", since, _generations] => {
            let since = Duration::from_millis(since.parse().context("SINCE is no number")?);
            let tables = standard_input()?;
            let tables: Vec<&str> = tables.split_whitespace().collect();
            read::read(Arc::new(session), keyspace, &tables, since).await
        }
        _ => bail!("no such command: {command:?}"),
    }
}

/// Runs the statements on standard input, which end with semicolons, one after the other.
async fn create_schema(session: &Session) -> anyhow::Result<()> {
    for statement in standard_input()?.split(';').filter(|s| !s.trim().is_empty()) {
        session.query_unpaged(statement, ()).await.context("DDL was refused")?;
    }
    Ok(())
}

fn standard_input() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}
