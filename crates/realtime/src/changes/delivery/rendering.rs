//! Values that only PostgreSQL can render, by casts of the project.
//!
//! They are rendered as the role with the fewest rights: what its casts read may be seen by every
//! receiver.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use indexmap::IndexMap;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::changes::entries::validate::{malformed, text_array};
use crate::changes::reads::pauses::Pauses;
use crate::changes::reads::role_reads::{CANCELED, ReadFailure, RoleReads, retrying};
use crate::changes::slice::event::ChangeMessages;
use crate::decode::{DescribedTable, RenderedRow, WaitingColumn};

/// The role that renders values.
const RENDERER: &str = "anon";
/// The largest number of reads for the values of a column. Values that were not rendered then are
/// sent as their text.
const MAX_READS: usize = 32;

/// Renders the values of messages that wait for PostgreSQL. `paused` are the tables whose casts
/// took too long, which are sent as their text for a while. After `time` no further read for the
/// values of a column begins.
pub(crate) async fn render_waiting(
    reads: &RoleReads,
    mut messages: Vec<&mut ChangeMessages<'_>>,
    paused: &mut Pauses<u32>,
    time: Duration,
) {
    let mut tables: IndexMap<u32, Arc<DescribedTable>> = IndexMap::new();
    for messages in &mut messages {
        let table = &messages.change().table;
        if messages.waiting_rows().iter().any(|row| row.as_ref().is_some_and(|row| row.is_waiting())) {
            tables.insert(table.table.oid, Arc::clone(table));
        }
    }
    for (oid, table) in tables {
        let mut rows = Vec::new();
        let mut places = Vec::new();
        let of_table = messages.iter_mut().filter(|messages| messages.change().table.table.oid == oid);
        for place in of_table.flat_map(|messages| messages.waiting_rows()) {
            if let Some(row) = place.take() {
                rows.push(row);
                places.push(place);
            }
        }
        render(reads, &table, &mut rows, paused, time).await;
        for (place, row) in places.into_iter().zip(rows) {
            *place = Some(row);
        }
    }
}

async fn render(
    reads: &RoleReads,
    table: &DescribedTable,
    rows: &mut [RenderedRow],
    paused: &mut Pauses<u32>,
    time: Duration,
) {
    let oid = table.table.oid;
    for waiting in table.waiting_columns(rows) {
        if paused.contain(&oid) {
            table.fill(rows, &waiting, None);
            continue;
        }
        match render_column(reads, &waiting, time).await {
            Ok(rendered) => table.fill(rows, &waiting, Some(rendered)),
            Err(error @ ReadFailure::Unavailable(_)) => {
                tracing::warn!(error = %error, "values that only the database can render are missing in changes");
            }
            Err(error) => {
                tracing::debug!(error = %error, table = &*table.table.name, "values are rendered as text");
                if error.has_code(CANCELED) {
                    paused.begin(oid);
                }
                table.fill(rows, &waiting, None);
            }
        }
    }
}

/// Renders the values of a column. Those for which the cast fails are their text.
///
/// # Errors
/// [`ReadFailure`], if it is not that of a value.
async fn render_column(reads: &RoleReads, waiting: &WaitingColumn, time: Duration) -> Result<Vec<String>, ReadFailure> {
    let mut rendered = Vec::with_capacity(waiting.texts.len());
    let mut lists: Vec<&[Box<str>]> = vec![&waiting.texts];
    let (mut count, start) = (0, Instant::now());
    // The last one is the first, so that halves follow each other
    while let Some(texts) = lists.pop() {
        count += 1;
        if count > MAX_READS || count > 1 && start.elapsed() >= time {
            rendered.extend(texts.iter().map(|text| json_string(text)));
            continue;
        }
        match retrying(|| read(reads, &waiting.statement, texts).boxed()).await {
            Ok(values) => rendered.extend(values),
            Err(failure) if !failure.is_of_an_item() => return Err(failure),
            Err(_) if texts.len() > 1 => {
                let (first, second) = texts.split_at(texts.len() / 2);
                lists.extend([second, first]);
            }
            Err(failure) => {
                tracing::debug!(error = %failure, "a value is rendered as text");
                rendered.extend(texts.iter().map(|text| json_string(text)));
            }
        }
    }
    Ok(rendered)
}

async fn read(reads: &RoleReads, statement: &str, texts: &[Box<str>]) -> Result<Vec<String>, ReadFailure> {
    let texts = text_array(texts.iter().map(|text| Some(&**text)));
    let rows = reads.test_as_role(RENDERER, statement, &[Some(texts.as_bytes())]).await?;
    let rows: Vec<&RawValue> = serde_json::from_slice(&rows).map_err(|error| malformed(&error))?;
    Ok(rows.into_iter().map(|row| row.get().to_owned()).collect())
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
