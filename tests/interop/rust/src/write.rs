//! The workload that test_interop.py expects; a partition key names a case.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::SystemTime;

use anyhow::{Context, bail};
use scylla::SerializeValue;
use scylla::client::session::Session;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::value::{CqlDate, CqlDecimal, CqlTimestamp, CqlVarint, MaybeUnset, Row};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

const MANY_BATCHES: i32 = 40;
const ROWS_PER_BATCH: i32 = 130;
const MORE_PARTITIONS: i32 = 32;
const ROUTED_PARTITIONS: i32 = 100;

/// The user-defined type of that name.
#[derive(SerializeValue)]
struct Address {
    street: Option<&'static str>,
    zip: Option<i32>,
}

pub async fn write(session: &Session) -> anyhow::Result<()> {
    write_scalars(session).await?;
    write_collections(session).await?;
    write_types(session).await?;
    write_deletes(session).await?;
    write_batches(session).await?;
    write_conditions(session).await?;
    write_images(session).await?;
    let now = i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs())?;
    run(session, "INSERT INTO fading (pk, ck, expires) VALUES (?, ?, ?)", (1, 1, now)).await?;
    let mut batch = Batch::new(BatchType::Unlogged);
    for _ in 0..ROWS_PER_BATCH {
        batch.append_statement("INSERT INTO many (pk, ck, filler) VALUES (?, ?, ?)");
    }
    let batch = session.prepare_batch(&batch).await?;
    for number in 0..MANY_BATCHES {
        let values: Vec<_> = (0..ROWS_PER_BATCH).map(|i| (1, number * ROWS_PER_BATCH + i, "x")).collect();
        session.batch(&batch, values).await?;
    }
    Ok(())
}

pub async fn write_more(session: &Session) -> anyhow::Result<()> {
    for pk in 0..MORE_PARTITIONS {
        run(session, "INSERT INTO many (pk, ck, filler) VALUES (?, ?, ?)", (pk, -1, "later")).await?;
    }
    Ok(())
}

/// Writes one row after the other, so that what the driver learns from an answer is known to the next request.
pub async fn route(session: &Session) -> anyhow::Result<()> {
    let insert = session.prepare("INSERT INTO routed (pk, v) VALUES (?, ?)").await?;
    let mut lines = BufReader::new(stdin()).lines();
    while lines.next_line().await?.is_some() {
        for pk in 0..ROUTED_PARTITIONS {
            session.execute_unpaged(&insert, (pk, pk)).await?;
        }
        println!("written");
    }
    Ok(())
}

async fn run(session: &Session, statement: &str, values: impl SerializeRow) -> anyhow::Result<()> {
    session.query_unpaged(statement, values).await.with_context(|| statement.to_string())?;
    Ok(())
}

/// Runs a conditional statement, which has to be applied or not, as wanted.
async fn run_if(session: &Session, wanted: bool, statement: &str, values: impl SerializeRow) -> anyhow::Result<()> {
    let rows = session.query_unpaged(statement, values).await?.into_rows_result()?;
    let first: Row = rows.first_row()?;
    let applied = first.columns[0].as_ref().and_then(|value| value.as_boolean());
    if applied != Some(wanted) {
        bail!("{statement}: applied is {applied:?}");
    }
    Ok(())
}

async fn write_scalars(session: &Session) -> anyhow::Result<()> {
    let statement = "INSERT INTO things (pk, ck, part, name, large, tiny, ratio, flag, raw, moment, id, host, day, price, \
                     huge) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let huge: i128 = -123_456_789_012_345_678_901_234_567_890;
    let values = (
        1,
        1,
        "a",
        "Zoë ☃",
        1_i64 << 60,
        -5_i8,
        0.1_f64,
        false,
        vec![0_u8, 255, 16],
        CqlTimestamp(1_700_000_000_123),
        uuid::Uuid::parse_str("3c7f0d3e-9a51-4a0e-8f0b-0123456789ab")?,
        IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3)),
        CqlDate((1 << 31) + 19_782),
        CqlDecimal::from_signed_be_bytes_and_exponent((-1250_i16).to_be_bytes().to_vec(), 2),
        CqlVarint::from_signed_bytes_be(huge.to_be_bytes().to_vec()),
    );
    run(session, statement, values).await?;
    let statement = "INSERT INTO things (pk, ck, part, name) VALUES (?, ?, ?, ?) USING TTL ?";
    run(session, statement, (2, 1, "a", "short-lived", 3600)).await?;
    let statement = "INSERT INTO things (pk, ck, part, name, large) VALUES (?, ?, ?, ?, ?)";
    run(session, statement, (3, 1, "a", "x", MaybeUnset::<i64>::Unset)).await?;
    let statement = "UPDATE things SET name = ? WHERE pk = ? AND ck = ? AND part = ?";
    run(session, statement, (None::<&str>, 3, 1, "a")).await?;
    let statement = "INSERT INTO things (pk, ck, part, shared, name) VALUES (?, ?, ?, ?, ?)";
    run(session, statement, (4, 1, "a", "for all", "one")).await?;
    run(session, "UPDATE things SET seen = seen + ? WHERE pk = ?", (vec![2, 1], 4)).await
}

async fn write_collections(session: &Session) -> anyhow::Result<()> {
    let statement = "INSERT INTO things (pk, ck, part, tags, scores, steps) VALUES (?, ?, ?, ?, ?, ?)";
    let scores = HashMap::from([("x", 1), ("y", 2)]);
    run(session, statement, (5, 1, "a", vec!["red", "blue"], scores, vec!["first", "second"])).await?;
    let statement = "UPDATE things SET tags = tags + ?, scores[?] = ?, steps = steps + ? \
                     WHERE pk = 5 AND ck = 1 AND part = 'a'";
    run(session, statement, (vec!["green"], "z", 3, vec!["third"])).await?;
    let statement = "UPDATE things SET tags = tags - ?, scores = scores - ?, steps = steps - ? \
                     WHERE pk = 5 AND ck = 1 AND part = 'a'";
    run(session, statement, (vec!["red"], vec!["x"], vec!["first"])).await?;
    run(session, "UPDATE things SET tags = ? WHERE pk = 5 AND ck = 1 AND part = 'a'", (vec!["only"],)).await
}

async fn write_types(session: &Session) -> anyhow::Result<()> {
    let home = Address { street: Some("High Street"), zip: None };
    let place = Address { street: Some("Low Street"), zip: Some(12) };
    let statement = "INSERT INTO things (pk, ck, part, home, place, pair, grid) VALUES (?, ?, ?, ?, ?, ?, ?)";
    run(session, statement, (6, 1, "a", home, place, (7, "seven"), vec![3, 1, 2])).await?;
    run(session, "UPDATE things SET place.zip = ? WHERE pk = 6 AND ck = 1 AND part = 'a'", (13,)).await?;
    let statement = "UPDATE things SET pair = ? WHERE pk = 6 AND ck = 1 AND part = 'a'";
    run(session, statement, ((None::<i32>, None::<&str>),)).await?;
    run(session, statement, (None::<(i32, &str)>,)).await
}

async fn write_deletes(session: &Session) -> anyhow::Result<()> {
    let statement = "INSERT INTO things (pk, ck, part, name) VALUES (?, ?, ?, ?)";
    run(session, statement, (7, 1, "a", "gone soon")).await?;
    run(session, "DELETE FROM things WHERE pk = ? AND ck = ? AND part = ?", (7, 1, "a")).await?;
    run(session, "DELETE FROM things WHERE pk = ? AND ck > ? AND ck <= ?", (8, 1, 5)).await?;
    run(session, "DELETE FROM things WHERE pk = ? AND ck = ?", (8, 9)).await?;
    run(session, "DELETE FROM things WHERE pk = ? AND ck < ?", (8, 3)).await?;
    run(session, "DELETE FROM things WHERE pk = ?", (9,)).await
}

async fn write_batches(session: &Session) -> anyhow::Result<()> {
    let mut batch = Batch::new(BatchType::Logged);
    batch.append_statement("INSERT INTO things (pk, ck, part, name) VALUES (?, ?, ?, ?)");
    batch.append_statement("UPDATE things SET name = ? WHERE pk = ? AND ck = ? AND part = ?");
    batch.append_statement("DELETE FROM things WHERE pk = ? AND ck = ? AND part = ?");
    batch.append_statement("INSERT INTO things (pk, ck, part, name) VALUES (?, ?, ?, ?)");
    let values = ((10, 1, "a", "in a batch"), ("too", 10, 2, "a"), (10, 0, "a"), (11, 1, "a", "elsewhere"));
    session.batch(&batch, values).await?;
    let mut batch = Batch::new(BatchType::Unlogged);
    batch.append_statement("UPDATE things SET name = ? WHERE pk = ? AND ck = ? AND part = ?");
    batch.append_statement("INSERT INTO things (pk, ck, part, name) VALUES (?, ?, ?, ?) USING TTL ?");
    session.batch(&batch, (("stays", 12, 1, "a"), (12, 2, "a", "goes", 60))).await?;
    Ok(())
}

async fn write_conditions(session: &Session) -> anyhow::Result<()> {
    let insert = "INSERT INTO things (pk, ck, part, name) VALUES (?, ?, ?, ?) IF NOT EXISTS";
    let update = "UPDATE things SET name = ? WHERE pk = ? AND ck = ? AND part = ? IF name = ?";
    run_if(session, true, insert, (13, 1, "a", "mine")).await?;
    run_if(session, false, insert, (13, 1, "a", "yours")).await?;
    run_if(session, true, update, ("ours", 13, 1, "a", "mine")).await?;
    run_if(session, false, update, ("theirs", 13, 1, "a", "mine")).await?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_micros() as i64;
    let statement = "INSERT INTO things (pk, ck, part, name) VALUES (?, ?, ?, ?) USING TIMESTAMP ?";
    run(session, statement, (14, 1, "a", "dated", now)).await?;
    let text = r#"{"pk": 15, "ck": 1, "part": "a", "name": "from JSON", "tags": ["t"]}"#;
    run(session, "INSERT INTO things JSON ? DEFAULT UNSET", (text,)).await
}

async fn write_images(session: &Session) -> anyhow::Result<()> {
    run(session, "INSERT INTO images (pk, ck, name) VALUES (?, ?, ?)", (1, 1, "a")).await?;
    let statement = "UPDATE images SET name = ?, tags = tags + ? WHERE pk = ? AND ck = ?";
    run(session, statement, ("b", vec!["t"], 1, 1)).await?;
    run(session, "UPDATE images SET shared = ? WHERE pk = ?", ("s", 1)).await?;
    run(session, "DELETE name FROM images WHERE pk = ? AND ck = ?", (1, 1)).await?;
    run(session, "DELETE FROM images WHERE pk = ? AND ck = ?", (1, 1)).await?;
    run(session, "DELETE FROM images WHERE pk = ? AND ck > ? AND ck < ?", (1, 1, 5)).await
}
