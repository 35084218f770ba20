//! Buffers of downloads that are used again. Clearing new memory for each read would cost as much
//! as the read of a cached file.
//!
//! A large buffer takes a third less of the processors for each byte than one of half its size: the
//! receiver has work meanwhile. But it stays in memory until its last byte is sent. So there are
//! few of them, however many downloads there are, and clients that receive slowly get small ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// The bytes of a download that are read at once.
pub(super) const READ_SIZE: usize = 512 * 1024;
/// The bytes that are read at once where no large buffer is to be had.
const SMALL_READ_SIZE: usize = 64 * 1024;
/// The maximum number of large buffers, in use or free.
const MAX_LARGE: usize = 32;

/// The large buffers.
#[derive(Debug, Default)]
pub(super) struct ReadBuffers(Mutex<LargeBuffers>);

#[derive(Debug, Default)]
struct LargeBuffers {
    free: Vec<Box<[u8]>>,
    in_use: usize,
}

/// A buffer of at most [`READ_SIZE`] bytes. A large one is free again when it is dropped. It
/// contains what was read into it before, so only what is read now is ever shown.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    bytes: Box<[u8]>,
    filled: usize,
    /// The pool of a large one.
    pool: Option<Arc<ReadBuffers>>,
}

impl ReadBuffers {
    /// Returns a buffer for a client that receives slowly or not: a large one if there is any.
    pub fn take(self: &Arc<Self>, is_slow: bool) -> ReadBuffer {
        let large = if is_slow { None } else { self.take_large() };
        match large {
            Some(free) => {
                let bytes = free.unwrap_or_else(|| vec![0; READ_SIZE].into_boxed_slice());
                ReadBuffer { bytes, filled: 0, pool: Some(Arc::clone(self)) }
            }
            None => ReadBuffer { bytes: vec![0; SMALL_READ_SIZE].into_boxed_slice(), filled: 0, pool: None },
        }
    }

    /// Counts one more large buffer, and returns a free one. `None`: there are too many.
    fn take_large(&self) -> Option<Option<Box<[u8]>>> {
        let mut large = self.large();
        (large.in_use < MAX_LARGE).then(|| {
            large.in_use += 1;
            large.free.pop()
        })
    }

    fn large(&self) -> MutexGuard<'_, LargeBuffers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let size = self.bytes.len();
        let room = usize::try_from(wanted).map_or(size, |wanted| wanted.min(size));
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
        if let Some(pool) = &self.pool {
            let mut large = pool.large();
            large.in_use -= 1;
            large.free.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free_and_in_use(pool: &ReadBuffers) -> (usize, usize) {
        let large = pool.large();
        (large.free.len(), large.in_use)
    }

    #[test]
    fn a_buffer_that_is_used_again_shows_nothing_of_its_last_use() {
        let pool = Arc::new(ReadBuffers::default());
        let first = pool.take(false).fill(u64::MAX, |room| {
            room.fill(b'x');
            Ok::<_, ()>(room.len())
        });
        assert_eq!(first.unwrap().len(), READ_SIZE);
        let read = |room: &mut [u8]| {
            room[..2].copy_from_slice(b"ab");
            Ok::<_, ()>(2)
        };
        assert_eq!(pool.take(false).fill(5, read).unwrap(), "ab");
        let (buffer, ()) = pool.take(false).fill(5, |_| Err(())).unwrap_err();
        assert_eq!(buffer.as_ref(), b"");
        drop(buffer);
        assert_eq!(free_and_in_use(&pool), (1, 0));
    }

    #[test]
    fn many_downloads_and_slow_ones_take_little_memory() {
        let pool = Arc::new(ReadBuffers::default());
        let sizes = |buffers: &[ReadBuffer]| buffers.iter().map(|buffer| buffer.bytes.len()).collect::<Vec<_>>();
        let slow = pool.take(true);
        assert_eq!((slow.bytes.len(), pool.large().in_use), (SMALL_READ_SIZE, 0));
        let mut buffers: Vec<ReadBuffer> = (0..MAX_LARGE + 5).map(|_| pool.take(false)).collect();
        assert_eq!(sizes(&buffers[..MAX_LARGE]), [READ_SIZE; MAX_LARGE]);
        assert_eq!(sizes(&buffers[MAX_LARGE..]), [SMALL_READ_SIZE; 5]);
        buffers.remove(0);
        assert_eq!(pool.take(false).bytes.len(), READ_SIZE);
        drop((slow, buffers));
        assert_eq!(free_and_in_use(&pool), (MAX_LARGE, 0));
    }
}
