//! The uploads in parts that are being completed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Result, S3Error};

/// The uploads that are being completed. Each is completed by one request at a time, since every
/// attempt writes the whole content.
#[derive(Debug, Clone, Default)]
pub(crate) struct Completions(Arc<Mutex<HashSet<String>>>);

/// The right to complete an upload.
pub(crate) struct Completion {
    all: Completions,
    id: String,
}

impl Completions {
    /// Begins the completion of an upload.
    ///
    /// # Errors
    /// `OperationAborted` if another request completes it.
    pub fn begin(&self, id: &str) -> Result<Completion> {
        let is_first = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
        if is_first { Ok(Completion { all: self.clone(), id: id.to_owned() }) } else { Err(S3Error::CONFLICT.into()) }
    }

    /// Returns true if a request completes the upload.
    pub fn is_running(&self, id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
