//! The parts that the steps of the bootstrap share.

use tokio_postgres::Error;

use crate::error::DatabaseError;

/// Names the step in an error.
pub(super) fn step(what: &str) -> impl FnOnce(Error) -> DatabaseError {
    let step = format!("setting up the database ({what})");
    move |source| DatabaseError::Bootstrap { step, source }
}

/// Returns a digest of texts, each with its length.
pub(super) fn digest<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    for text in texts {
        context.update(&(text.len() as u64).to_le_bytes());
        context.update(text);
    }
    hex::encode(context.finish())
}
