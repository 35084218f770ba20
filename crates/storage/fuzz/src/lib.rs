//! The modules of `portico-storage` that parse the input of clients: the same files, without the
//! rest of the service. Their items are not public, so what each target checks is here.

// The service uses the rest
#![allow(dead_code)]

#[path = "../../src/checksum/mod.rs"]
mod checksum;
mod error;
#[path = "../../src/http/form.rs"]
mod form;
#[path = "../../src/media_type.rs"]
mod media_type;
#[path = "../../src/model.rs"]
mod model;
mod object;
pub mod resumable;
pub mod s3;
#[path = "../../src/sigv4.rs"]
mod sigv4;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};

use crate::error::{Result, StorageError};
use crate::form::{FormReader, PartHead};

/// The sizes of the pieces that a body is received in.
const PIECES: [usize; 4] = [1, 3, 100, usize::MAX];

/// Returns a body in pieces of a size.
fn body(bytes: &[u8], piece: usize) -> impl futures_util::Stream<Item = Result<Bytes>> + Unpin {
    let pieces: Vec<Result<Bytes>> = bytes.chunks(piece).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    stream::iter(pieces)
}

/// Reads a form: the first line is the content type, the others are the body.
pub fn check_form(input: &[u8]) {
    let (head, content) = lines(input);
    let Ok(content_type) = std::str::from_utf8(head) else { return };
    let outcomes =
        PIECES.map(|piece| read_form(content, piece, content_type).now_or_never().expect("a body in memory"));
    for outcome in &outcomes {
        // The text of an error depends on what has arrived before it
        assert_eq!(outcome.as_ref().ok(), outcomes[0].as_ref().ok());
    }
    let field = async {
        let mut form = FormReader::new(body(content, 7), content_type)?;
        while form.next_part().await?.is_some() {
            // The rest of a part is skipped
            match form.field("field", 8).await {
                Ok(field) => assert!(field.chars().count() <= 8),
                Err(StorageError::TooLarge(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    let is_read = field.now_or_never().expect("a body in memory").is_ok();
    assert_eq!(is_read, outcomes[0].is_ok());
}

async fn read_form(content: &[u8], piece: usize, content_type: &str) -> Result<Vec<(PartHead, Vec<u8>)>> {
    let mut form = FormReader::new(body(content, piece), content_type)?;
    let mut parts = Vec::new();
    while let Some(head) = form.next_part().await? {
        let mut whole = Vec::new();
        let mut chunks = form.content();
        while let Some(chunk) = chunks.next().await {
            whole.extend_from_slice(&chunk?);
        }
        parts.push((head, whole));
    }
    Ok(parts)
}

/// Splits an input behind its first line.
fn lines(input: &[u8]) -> (&[u8], &[u8]) {
    let end = input.iter().position(|&byte| byte == b'\n');
    end.map_or((input, &[][..]), |end| (&input[..end], &input[end + 1..]))
}
