//! Reads CDC logs through Scylla's Rust library and tells what that cost, for benchmarks/compare.py and
//! benchmarks/follow.py.
//!
//! ```text
//! reader HOST PORT KEYSPACE
//! ```
//!
//! Each line on standard input is a pass, "TABLE KIND ROWS SINCE": read the log of the table from that time, milliseconds
//! since the epoch, until there were ROWS rows. KIND says what the consumer does with each row: "count" nothing, "key" read
//! the primary key, "cells" read every column of the table. The answer is a line of JSON.
//!
//! KIND "follow:LAG:PAUSE" follows the log for ROWS seconds, LAG milliseconds behind, with PAUSE milliseconds between queries
//! or, if that is 0, with the library's defaults. The answer has how long each row was on its way: the column n says when it
//! was written, in microseconds since the epoch.

use std::env;
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use async_trait::async_trait;
use cpu_time::ProcessTime;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla_cdc::consumer::{CDCRow, Consumer, ConsumerFactory};
use scylla_cdc::log_reader::CDCLogReaderBuilder;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::sync::Notify;

const PATIENCE: Duration = Duration::from_secs(600);
const WINDOW: Duration = Duration::from_secs(24 * 3600);
const PAUSE: Duration = Duration::from_millis(10);
const LAG: Duration = Duration::from_millis(1);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [host, port, keyspace] = &args[..] else { bail!("expected HOST PORT KEYSPACE, got {} arguments", args.len()) };
    let session = SessionBuilder::new().known_node(format!("{host}:{port}")).build().await.context("cannot connect")?;
    let session = Arc::new(session);
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split(' ').collect();
        let [table, kind, rows, since] = words[..] else { bail!("not a pass: {line:?}") };
        let since = Duration::from_millis(since.parse()?);
        if let Some(settings) = kind.strip_prefix("follow:") {
            let during = Duration::from_secs(rows.parse()?);
            println!(
                "{}",
                follow(&session, keyspace, table, settings, during, since)
                    .await
                    .with_context(|| format!("table {table}"))?
            );
            continue;
        }
        let (kind, rows) = (Kind::named(kind)?, rows.parse()?);
        println!(
            "{}",
            pass(&session, keyspace, table, kind, rows, since).await.with_context(|| format!("table {table}"))?
        );
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Kind {
    Count,
    Key,
    Cells,
}

impl Kind {
    fn named(name: &str) -> anyhow::Result<Kind> {
        match name {
            "count" => Ok(Kind::Count),
            "key" => Ok(Kind::Key),
            "cells" => Ok(Kind::Cells),
            _ => bail!("no such kind of work: {name:?}"),
        }
    }
}

/// Returns what a pass found: the rows, the sum of ck for "key", the columns that are not null for "cells".
async fn pass(
    session: &Arc<Session>,
    keyspace: &str,
    table: &str,
    kind: Kind,
    rows: i64,
    since: Duration,
) -> anyhow::Result<serde_json::Value> {
    let (began, cpu) = (Instant::now(), ProcessTime::now());
    let tally = Arc::new(Tally { wanted: rows, rows: 0.into(), check: 0.into(), done: Notify::new() });
    let (mut reader, handle) = CDCLogReaderBuilder::new()
        .session(session.clone())
        .keyspace(keyspace)
        .table_name(table)
        .start_timestamp(since)
        .window_size(WINDOW)
        .safety_interval(LAG)
        .sleep_interval(PAUSE)
        .consumer_factory(Arc::new(Counters { kind, tally: tally.clone() }))
        .build()
        .await?;
    let mut handle = std::pin::pin!(handle);
    tokio::select! {
        _ = tally.done.notified() => {}
        ended = &mut handle => bail!("the reader ended early: {ended:?}"),
        _ = tokio::time::sleep(PATIENCE) => bail!("it took too long"),
    }
    let (cpu_s, wall_s) = (cpu.elapsed().as_secs_f64(), began.elapsed().as_secs_f64());
    reader.stop();
    handle.await?;
    let (rows, check) = (tally.rows.load(Ordering::Relaxed), tally.check.load(Ordering::Relaxed));
    Ok(json!({"rows": rows, "check": check, "cpu_s": cpu_s, "wall_s": wall_s}))
}

/// Returns how many milliseconds after it was written each row was delivered.
async fn follow(
    session: &Arc<Session>,
    keyspace: &str,
    table: &str,
    settings: &str,
    during: Duration,
    since: Duration,
) -> anyhow::Result<serde_json::Value> {
    let (lag, pause) = settings.split_once(':').context("not settings")?;
    let (lag, pause) = (Duration::from_millis(lag.parse()?), Duration::from_millis(pause.parse()?));
    let delays = Arc::new(Mutex::new(Vec::new()));
    let builder = CDCLogReaderBuilder::new()
        .session(session.clone())
        .keyspace(keyspace)
        .table_name(table)
        .start_timestamp(since)
        .safety_interval(lag)
        .consumer_factory(Arc::new(Arrivals { delays: delays.clone() }));
    let builder = if pause.is_zero() { builder } else { builder.sleep_interval(pause) };
    let (mut reader, handle) = builder.build().await?;
    tokio::time::sleep(during).await;
    reader.stop();
    handle.await?;
    let delays = delays.lock().unwrap();
    Ok(json!({"delays_ms": *delays}))
}

/// Notes when rows are delivered. Consumers of several streams share it.
struct Arrivals {
    delays: Arc<Mutex<Vec<f64>>>,
}

#[async_trait]
impl ConsumerFactory for Arrivals {
    async fn new_consumer(&self) -> Box<dyn Consumer> {
        Box::new(Arrivals { delays: self.delays.clone() })
    }
}

#[async_trait]
impl Consumer for Arrivals {
    async fn consume_cdc(&mut self, row: CDCRow<'_>) -> anyhow::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as i64;
        let written = row.get_value("n").as_ref().and_then(|n| n.as_bigint()).context("n is no bigint")?;
        self.delays.lock().unwrap().push((now - written) as f64 / 1e3);
        Ok(())
    }
}

/// Counts. Consumers of several streams share it.
struct Tally {
    wanted: i64,
    rows: AtomicI64,
    check: AtomicI64,
    done: Notify,
}

struct Counters {
    kind: Kind,
    tally: Arc<Tally>,
}

#[async_trait]
impl ConsumerFactory for Counters {
    async fn new_consumer(&self) -> Box<dyn Consumer> {
        Box::new(Counter { kind: self.kind, tally: self.tally.clone(), columns: Vec::new() })
    }
}

struct Counter {
    kind: Kind,
    tally: Arc<Tally>,
    columns: Vec<String>,
}

#[async_trait]
impl Consumer for Counter {
    async fn consume_cdc(&mut self, row: CDCRow<'_>) -> anyhow::Result<()> {
        let check = match self.kind {
            Kind::Count => 0,
            Kind::Key => key(&row)?,
            Kind::Cells => {
                if self.columns.is_empty() {
                    self.columns = row.get_non_cdc_column_names().map(str::to_owned).collect();
                }
                self.columns.iter().filter(|name| black_box(row.get_value(name)).is_some()).count() as i64
            }
        };
        if check != 0 {
            self.tally.check.fetch_add(check, Ordering::Relaxed);
        }
        if self.tally.rows.fetch_add(1, Ordering::Relaxed) + 1 == self.tally.wanted {
            self.tally.done.notify_one();
        }
        Ok(())
    }
}

fn key(row: &CDCRow<'_>) -> anyhow::Result<i64> {
    let number = |name| row.get_value(name).as_ref().with_context(|| format!("{name} is null"));
    black_box(number("pk")?.as_int().context("pk is no int")?);
    number("ck")?.as_bigint().context("ck is no bigint")
}
