//! How a value of the driver is printed. test_interop.py has the same for values of rscylla.

use anyhow::bail;
use scylla::value::CqlValue;
use serde_json::{Value, json};

/// The days between the smallest date and that of the epoch.
const DATE_OF_EPOCH: i64 = 1 << 31;

pub fn plain(value: &CqlValue) -> anyhow::Result<Value> {
    Ok(match value {
        CqlValue::Ascii(text) | CqlValue::Text(text) => json!(text),
        CqlValue::Boolean(flag) => json!(flag),
        CqlValue::TinyInt(number) => json!(number),
        CqlValue::SmallInt(number) => json!(number),
        CqlValue::Int(number) => json!(number),
        CqlValue::BigInt(number) => json!(number),
        CqlValue::Double(number) => json!(number),
        CqlValue::Varint(number) => json!({"varint": integer(number.as_signed_bytes_be_slice())?.to_string()}),
        CqlValue::Decimal(number) => {
            let (bytes, scale) = number.as_signed_be_bytes_slice_and_exponent();
            json!(format!("{}e{}", integer(bytes)?, -scale))
        }
        CqlValue::Blob(bytes) => json!(bytes.iter().fold("0x".to_string(), |text, byte| format!("{text}{byte:02x}"))),
        CqlValue::Uuid(id) => json!(id.to_string()),
        CqlValue::Timeuuid(id) => json!(id.to_string()),
        CqlValue::Inet(address) => json!(address.to_string()),
        CqlValue::Timestamp(time) => json!(time.0),
        CqlValue::Date(date) => json!(i64::from(date.0) - DATE_OF_EPOCH),
        CqlValue::List(elements) => json!(all(elements)?),
        CqlValue::Set(elements) => json!({"set": all(elements)?}),
        CqlValue::Tuple(fields) => json!(fields.iter().map(maybe).collect::<anyhow::Result<Vec<_>>>()?),
        CqlValue::Map(entries) => {
            let pairs = entries.iter().map(|(key, value)| Ok(json!([plain(key)?, plain(value)?])));
            json!({"map": pairs.collect::<anyhow::Result<Vec<_>>>()?})
        }
        CqlValue::UserDefinedType { fields, .. } => {
            let pairs = fields.iter().map(|(name, value)| Ok(json!([name, maybe(value)?])));
            json!({"map": pairs.collect::<anyhow::Result<Vec<_>>>()?})
        }
        other => bail!("no way to print {other:?}"),
    })
}

fn all(elements: &[CqlValue]) -> anyhow::Result<Vec<Value>> {
    elements.iter().map(plain).collect()
}

fn maybe(value: &Option<CqlValue>) -> anyhow::Result<Value> {
    value.as_ref().map_or(Ok(Value::Null), plain)
}

/// Returns the integer of these big-endian bytes in two's complement.
fn integer(bytes: &[u8]) -> anyhow::Result<i128> {
    if bytes.len() > size_of::<i128>() {
        bail!("the integer has {} bytes", bytes.len());
    }
    let sign = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { -1 } else { 0 };
    Ok(bytes.iter().fold(sign, |number, &byte| number << 8 | i128::from(byte)))
}
