//! Buffers of downloads that are used again. Clearing new memory for each read would cost as much
//! as the read of a cached file.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// The bytes of a download that are read at once.
pub(super) const READ_SIZE: usize = 256 * 1024;
/// The number of free buffers that are kept.
const MAX_FREE: usize = 64;

/// The free buffers.
#[derive(Debug, Default)]
pub(super) struct ReadBuffers(Mutex<Vec<Box<[u8]>>>);

/// A buffer of [`READ_SIZE`] bytes, which is free again when it is dropped. It contains what was
/// read into it before, so only what is read now is ever shown.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    bytes: Box<[u8]>,
    filled: usize,
    pool: Arc<ReadBuffers>,
}

impl ReadBuffers {
    /// Returns a buffer.
    pub fn take(self: &Arc<Self>) -> ReadBuffer {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = free.unwrap_or_else(|| vec![0; READ_SIZE].into_boxed_slice());
        ReadBuffer { bytes, filled: 0, pool: Arc::clone(self) }
    }
}

impl ReadBuffer {
    /// Calls `read` with room for at most `wanted` bytes. Returns the bytes that it has filled,
    /// from the first one on, or the buffer if it fails.
    pub fn fill<E>(
        mut self,
        wanted: u64,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Bytes, (Self, E)> {
        let room = usize::try_from(wanted).map_or(READ_SIZE, |wanted| wanted.min(READ_SIZE));
        match read(&mut self.bytes[..room]) {
            Ok(filled) => {
                self.filled = filled.min(room);
                Ok(Bytes::from_owner(self))
            }
            Err(error) => Err((self, error)),
        }
    }
}

impl AsRef<[u8]> for ReadBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        let mut free = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < MAX_FREE {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_is_used_again_shows_nothing_of_its_last_use() {
        let pool = Arc::new(ReadBuffers::default());
        let first = pool.take().fill(u64::MAX, |room| {
            room.fill(b'x');
            Ok::<_, ()>(room.len())
        });
        assert_eq!(first.unwrap().len(), READ_SIZE);
        let read = |room: &mut [u8]| {
            room[..2].copy_from_slice(b"ab");
            Ok::<_, ()>(2)
        };
        assert_eq!(pool.take().fill(5, read).unwrap(), "ab");
        let (buffer, ()) = pool.take().fill(5, |_| Err(())).unwrap_err();
        assert_eq!(buffer.as_ref(), b"");
        drop(buffer);
        assert_eq!(pool.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn no_more_buffers_are_kept_than_a_few() {
        let pool = Arc::new(ReadBuffers::default());
        let buffers: Vec<ReadBuffer> = (0..MAX_FREE + 5).map(|_| pool.take()).collect();
        drop(buffers);
        assert_eq!(pool.0.lock().unwrap().len(), MAX_FREE);
    }
}
