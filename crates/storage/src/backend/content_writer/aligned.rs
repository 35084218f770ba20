//! Memory at the places that direct writes demand.

use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::piece_permit::PIECE_SIZE;

/// The size of the blocks on which direct writes begin and end, in memory and in the file: at least
/// that of every usual disk.
pub(super) const BLOCK: usize = 4096;
/// The free buffers that are kept.
const MAX_FREE: usize = 8;
/// The bytes of a buffer: those of a piece, with what precedes it and exceeds it.
const CAPACITY: usize = PIECE_SIZE + 8 * BLOCK;

/// The buffers that no thread uses. A thread has a short life, and to clear a new buffer for each
/// takes as long as a write.
#[derive(Debug, Clone, Default)]
pub(crate) struct AlignedBuffers(Arc<Mutex<Vec<Box<[u8]>>>>);

/// A buffer that begins at a multiple of [`BLOCK`].
pub(crate) struct AlignedBuffer {
    /// Empty until something is appended: most content is written from where it was received.
    memory: Box<[u8]>,
    /// The index at which the buffer begins.
    start: usize,
    filled: usize,
    /// The pool that gets the memory back.
    buffers: AlignedBuffers,
}

impl AlignedBuffers {
    /// Returns an empty buffer.
    pub fn take(&self) -> AlignedBuffer {
        AlignedBuffer { memory: Box::default(), start: 0, filled: 0, buffers: self.clone() }
    }

    /// Returns memory for a buffer, and the index at which it begins.
    fn memory(&self) -> (Box<[u8]>, usize) {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let memory = kept.unwrap_or_else(|| vec![0; CAPACITY + BLOCK].into());
        let start = memory.as_ptr().align_offset(BLOCK);
        (memory, start)
    }
}

impl AlignedBuffer {
    /// Returns what was appended since it was cleared last.
    pub fn filled(&self) -> &[u8] {
        &self.memory[self.start..][..self.filled]
    }

    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// Appends as many bytes as there is room for. Returns those that are left.
    pub fn append<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if bytes.is_empty() {
            return bytes;
        }
        if self.memory.is_empty() {
            (self.memory, self.start) = self.buffers.memory();
        }
        let room = &mut self.memory[self.start + self.filled..self.start + CAPACITY];
        let (fitting, left) = bytes.split_at(bytes.len().min(room.len()));
        room[..fitting.len()].copy_from_slice(fitting);
        self.filled += fitting.len();
        left
    }
}

#[cfg(test)]
impl AlignedBuffer {
    /// Returns true if something was ever appended.
    pub fn is_used(&self) -> bool {
        !self.memory.is_empty()
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        if memory.is_empty() {
            return;
        }
        let mut free = self.buffers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < MAX_FREE {
            free.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_takes_what_fits() {
        let buffers = AlignedBuffers::default();
        let bytes: Vec<u8> = (0..CAPACITY + 7).map(|at| (at % 251) as u8).collect();
        for _ in 0..2 {
            let mut buffer = buffers.take();
            assert!(buffer.filled().is_empty(), "also of one that was used before");
            assert!(buffer.append(&bytes[..9]).is_empty());
            assert_eq!(buffer.append(&bytes[9..]), &bytes[CAPACITY..]);
            assert!(buffer.filled() == &bytes[..CAPACITY]);
            assert_eq!(buffer.filled().as_ptr().align_offset(BLOCK), 0);
            buffer.clear();
            assert!(buffer.filled().is_empty() && buffer.append(b"next").is_empty());
            assert_eq!(buffer.filled(), b"next");
        }
        assert_eq!(buffers.0.lock().unwrap().len(), 1);
        let mut many: Vec<AlignedBuffer> = (0..MAX_FREE + 2).map(|_| buffers.take()).collect();
        assert!(many.iter_mut().all(|buffer| buffer.append(b"x").is_empty()));
        drop(many);
        assert_eq!(buffers.0.lock().unwrap().len(), MAX_FREE);
    }
}
