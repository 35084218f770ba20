//! The memory of the frames that wait for clients, of the whole server.
//!
//! The bound of an outbox is large enough for a client that is slow for a moment. Many clients that
//! do not read would still fill the memory together, so their frames are counted together, too. A
//! frame counts once, from its creation until no socket has it any more, however many sockets
//! receive it: its bytes are there once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::frame::Frame;

/// Counts the bytes of frames until they are dropped.
#[derive(Debug)]
pub(crate) struct FrameMemory {
    bytes: AtomicUsize,
    max: usize,
}

impl FrameMemory {
    /// Returns an empty memory, which is exceeded by more than `max` bytes.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicUsize::new(0), max })
    }

    /// Returns true while so much waits that clients which do not read are disconnected.
    pub fn is_exceeded(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.max
    }

    /// Counts a new frame until its last clone is dropped.
    pub fn count(self: &Arc<Self>, frame: Frame) -> Frame {
        let count = |bytes: Bytes| {
            self.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
            Bytes::from_owner(CountedBytes { bytes, memory: Arc::clone(self) })
        };
        match frame {
            Frame::Text(bytes) => Frame::Text(count(bytes)),
            Frame::Binary(bytes) => Frame::Binary(count(bytes)),
        }
    }
}

/// The bytes of a frame, counted until they are dropped.
struct CountedBytes {
    bytes: Bytes,
    memory: Arc<FrameMemory>,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.memory.bytes.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_counts_once_until_its_last_clone_is_dropped() {
        let memory = FrameMemory::new(100);
        let frame = memory.count(Frame::Text(Bytes::from_static(&[b'x'; 60])));
        let clones = [frame.clone(), frame.clone()];
        drop(frame);
        assert!(!memory.is_exceeded());
        let other = memory.count(Frame::Binary(Bytes::from_static(&[0; 41])));
        assert!(memory.is_exceeded());
        drop(clones);
        assert!(!memory.is_exceeded());
        drop(other);
        assert_eq!(memory.bytes.load(Ordering::Relaxed), 0);
    }
}
