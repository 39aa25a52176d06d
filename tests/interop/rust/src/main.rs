//! Lets Scylla's Rust driver and Rust CDC library work against a cluster, for test_interop.py.
//!
//! ```text
//! interop HOST PORT KEYSPACE schema            run the DDL on standard input
//! interop HOST PORT KEYSPACE write             run the workload of write.rs
//! interop HOST PORT KEYSPACE more AFTER        once it is later than AFTER, write a row to each of some partitions of
//!                                              the table many
//! interop HOST PORT KEYSPACE read SINCE LAG N  print the logs of the tables named in the first line of standard input,
//!                                              from SINCE to the time at which that input ends; always stay LAG
//!                                              behind; N is for peers that cannot tell the last generation themselves
//! interop HOST PORT KEYSPACE route             for each line on standard input, write to each of some partitions of the
//!                                              table routed, and answer with a line
//! ```
//!
//! Times and the lag are milliseconds. INTEROP_USER and INTEROP_PASSWORD log in. INTEROP_PROGRESS begins the names of the
//! tables in which the library keeps how far it has read, to go on from there. Answers are compressed where the server can.
//!
//! A log row is one line of JSON on standard output: its columns by name, null ones left out.

mod read;
mod value;
mod write;

use std::env;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use scylla::client::Compression;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

/// The server under test is a process on this machine; what takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    tokio::time::timeout(PATIENCE, run(&args)).await.context("it took too long")?
}

async fn run(args: &[&str]) -> anyhow::Result<()> {
    let (host, port, keyspace, command) = match args {
        [host, port, keyspace, command @ ..] => (host, port, keyspace, command),
        _ => bail!("expected HOST PORT KEYSPACE schema|write|more|read|route, got {} arguments", args.len()),
    };
    let mut builder = SessionBuilder::new()
        .known_node(format!("{host}:{port}"))
        .use_keyspace(*keyspace, false)
        .compression(Some(Compression::Lz4));
    if let (Ok(user), Ok(password)) = (env::var("INTEROP_USER"), env::var("INTEROP_PASSWORD")) {
        builder = builder.user(user, password);
    }
    let session = builder.build().await.context("cannot connect")?;
    match command {
        ["schema"] => create_schema(&session).await,
        ["write"] => write::write(&session).await,
        ["route"] => write::route(&session).await,
        ["more", after] => {
            let after = instant(after)?;
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            tokio::time::sleep((after + Duration::from_millis(1)).saturating_sub(now)).await;
            write::write_more(&session).await
        }
        ["read", since, lag, _generations] => {
            let (since, lag) = (instant(since)?, instant(lag)?);
            let mut tables = String::new();
            std::io::stdin().read_line(&mut tables)?;
            let tables: Vec<&str> = tables.split_whitespace().collect();
            read::read(Arc::new(session), keyspace, &tables, since, lag).await
        }
        _ => bail!("no such command: {command:?}"),
    }
}

/// Returns a number of milliseconds, of a time those since the epoch.
fn instant(text: &str) -> anyhow::Result<Duration> {
    Ok(Duration::from_millis(text.parse().context("the time is no number")?))
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
