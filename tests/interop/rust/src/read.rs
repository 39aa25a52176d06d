//! Reads logs through the CDC library and prints their rows.

use std::env;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use scylla::client::session::Session;
use scylla_cdc::checkpoints::TableBackedCheckpointSaver;
use scylla_cdc::consumer::{CDCRow, Consumer, ConsumerFactory};
use scylla_cdc::log_reader::CDCLogReaderBuilder;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use crate::value::plain;

/// Prints the logs of the tables, whatever generations there are, to the time at which standard input ends.
pub async fn read(
    session: Arc<Session>,
    keyspace: &str,
    tables: &[&str],
    since: Duration,
    lag: Duration,
) -> anyhow::Result<()> {
    let mut readers = Vec::new();
    for table in tables {
        let started = Arc::new(Notify::new());
        let mut builder = CDCLogReaderBuilder::new()
            .session(session.clone())
            .keyspace(keyspace)
            .table_name(table)
            .start_timestamp(since)
            .window_size(Duration::from_secs(3600))
            .safety_interval(lag)
            .sleep_interval(Duration::from_millis(20))
            .consumer_factory(Arc::new(Printers { table: table.to_string(), started: started.clone() }));
        if let Ok(name) = env::var("INTEROP_PROGRESS") {
            // A table for each log: the library tells streams apart there, and logs share these.
            let name = format!("{name}_{table}");
            let saver = TableBackedCheckpointSaver::new_with_default_ttl(session.clone(), keyspace, &name).await?;
            builder = builder.checkpoint_saver(Arc::new(saver)).should_save_progress(true).should_load_progress(true);
        }
        readers.push((builder.build().await?, started));
    }
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    for ((reader, _), started) in &mut readers {
        // A reader that is told to stop before it knows any generation reads nothing at all.
        started.notified().await;
        reader.stop_at(now);
    }
    for ((_reader, handle), _) in readers {
        handle.await?;
    }
    Ok(())
}

struct Printers {
    table: String,
    started: Arc<Notify>,
}

#[async_trait]
impl ConsumerFactory for Printers {
    async fn new_consumer(&self) -> Box<dyn Consumer> {
        self.started.notify_one();
        Box::new(Printer { table: self.table.clone() })
    }
}

struct Printer {
    table: String,
}

#[async_trait]
impl Consumer for Printer {
    async fn consume_cdc(&mut self, row: CDCRow<'_>) -> anyhow::Result<()> {
        let line = json!({"table": self.table, "row": columns_of(&row)?});
        writeln!(std::io::stdout().lock(), "{line}")?;
        Ok(())
    }
}

/// Returns what the library tells of a row, by column of the log, null columns left out.
fn columns_of(row: &CDCRow<'_>) -> anyhow::Result<Map<String, Value>> {
    let mut columns = Map::new();
    columns.insert("cdc$stream_id".into(), json!(format!("0x{}", row.stream_id)));
    columns.insert("cdc$time".into(), json!(row.time.to_string()));
    columns.insert("cdc$batch_seq_no".into(), json!(row.batch_seq_no));
    // A delete by the server itself has the opposite number.
    let operation = row.operation.clone() as i8;
    columns.insert("cdc$operation".into(), json!(if row.is_expiration { -operation } else { operation }));
    if let Some(ttl) = row.ttl {
        columns.insert("cdc$ttl".into(), json!(ttl));
    }
    if row.end_of_batch {
        columns.insert("cdc$end_of_batch".into(), json!(true));
    }
    for name in row.get_non_cdc_column_names() {
        if let Some(value) = row.get_value(name) {
            columns.insert(name.into(), plain(value)?);
        }
        if row.column_deletable(name) && row.is_value_deleted(name) {
            columns.insert(format!("cdc$deleted_{name}"), json!(true));
        }
        if row.collection_exists(name) {
            let gone = row.get_deleted_elements(name).iter().map(plain).collect::<anyhow::Result<Vec<_>>>()?;
            if !gone.is_empty() {
                columns.insert(format!("cdc$deleted_elements_{name}"), json!({"set": gone}));
            }
        }
    }
    Ok(columns)
}
