//! The memory into which long request bodies are read.

use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::io::ReadBuf;

/// The bytes of a block.
pub(super) const BLOCK_SIZE: usize = 256 * 1024;
/// The bytes at multiples of this in the body are at multiples of it in memory, and reads end at
/// them as far as there is room. So a body can be written to a disk from where it was read, without
/// a copy.
const ALIGNMENT: usize = 4096;
/// The bytes that are read at once while no block is free.
const SMALL_SIZE: usize = 8 * 1024;
/// The blocks for each processor.
const BLOCKS: usize = 9;
/// The number of free blocks that are kept.
const MAX_FREE: usize = 16;

/// A bounded number of blocks of memory, however many bodies arrive. Clones share them.
///
/// Nothing waits for a block: while none is free, less is read at once. So who keeps blocks can
/// make others slower, but not stop them. A block in which little has arrived is copied and free at
/// once, so a slow client keeps none.
#[derive(Debug, Clone)]
pub(crate) struct ReadBlocks(Arc<Mutex<BlockPool>>);

#[derive(Debug)]
struct BlockPool {
    free: Vec<Box<[u8]>>,
    /// The number of blocks that may still be made.
    unmade: usize,
}

/// A block, which is free again when it is dropped. It contains what was read into it before, so
/// only what is read now is ever shown.
struct ReadBlock {
    memory: Box<[u8]>,
    /// The index at which the bytes begin.
    start: usize,
    filled: usize,
    pool: ReadBlocks,
}

impl Default for ReadBlocks {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self(Arc::new(Mutex::new(BlockPool { free: Vec::new(), unmade: BLOCKS * processors })))
    }
}

impl ReadBlocks {
    fn pool(&self) -> MutexGuard<'_, BlockPool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<ReadBlock> {
        let mut pool = self.pool();
        let memory = match pool.free.pop() {
            Some(memory) => memory,
            None => {
                pool.unmade = pool.unmade.checked_sub(1)?;
                drop(pool);
                vec![0; BLOCK_SIZE + ALIGNMENT].into()
            }
        };
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Some(ReadBlock { memory, start, filled: 0, pool: self.clone() })
    }

    /// Returns what `read` fills in memory for at most `wanted` bytes, which are at this position
    /// of the body.
    pub fn read(&self, position: u64, wanted: u64, read: impl FnOnce(&mut ReadBuf<'_>)) -> Bytes {
        let room = |size: usize| usize::try_from(wanted).map_or(size, |wanted| wanted.min(size));
        let Some(mut block) = self.take() else {
            let mut memory = vec![0; room(SMALL_SIZE)];
            let mut buffer = ReadBuf::new(&mut memory);
            read(&mut buffer);
            let filled = buffer.filled().len();
            memory.truncate(filled);
            memory.shrink_to_fit();
            return memory.into();
        };
        let beyond = (position % ALIGNMENT as u64) as usize;
        block.start += beyond;
        let mut buffer = ReadBuf::new(&mut block.memory[block.start..][..room(BLOCK_SIZE - beyond)]);
        read(&mut buffer);
        block.filled = buffer.filled().len();
        if block.filled < BLOCK_SIZE / 2 { Bytes::copy_from_slice(block.as_ref()) } else { Bytes::from_owner(block) }
    }
}

impl AsRef<[u8]> for ReadBlock {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.start..][..self.filled]
    }
}

impl Drop for ReadBlock {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        let mut pool = self.pool.pool();
        if pool.free.len() < MAX_FREE {
            pool.free.push(memory);
        } else {
            pool.unmade += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ReadBlocks {
        fn free(&self) -> usize {
            self.pool().free.len()
        }
    }

    fn read(blocks: &ReadBlocks, wanted: u64, byte: u8, count: usize) -> Bytes {
        blocks.read(0, wanted, |buffer| {
            let count = count.min(buffer.remaining());
            buffer.put_slice(&vec![byte; count]);
        })
    }

    #[test]
    fn there_are_few_blocks_and_reads_without_one_are_small() {
        let blocks = ReadBlocks::default();
        let most = blocks.pool().unmade;
        let kept: Vec<Bytes> = (0..most).map(|_| read(&blocks, u64::MAX, b'a', BLOCK_SIZE)).collect();
        assert!(kept.iter().all(|bytes| bytes.len() == BLOCK_SIZE));
        assert_eq!(read(&blocks, u64::MAX, b'b', BLOCK_SIZE), vec![b'b'; SMALL_SIZE]);
        drop(kept);
        let free = blocks.free();
        assert_eq!(free, most.min(MAX_FREE));
        assert_eq!(blocks.pool().unmade, most - free);
        assert_eq!(read(&blocks, u64::MAX, b'c', BLOCK_SIZE).len(), BLOCK_SIZE);
    }

    #[test]
    fn a_block_shows_nothing_of_its_last_use_and_little_content_keeps_none() {
        let blocks = ReadBlocks::default();
        drop(read(&blocks, u64::MAX, b'a', BLOCK_SIZE));
        let half = read(&blocks, u64::MAX, b'b', BLOCK_SIZE / 2);
        assert_eq!((half.len(), blocks.free()), (BLOCK_SIZE / 2, 0));
        assert!(half.iter().all(|byte| *byte == b'b'));
        drop(half);
        let kept = [read(&blocks, u64::MAX, b'c', 10), read(&blocks, 10, b'c', BLOCK_SIZE), read(&blocks, 10, b'c', 0)];
        assert_eq!(kept, [vec![b'c'; 10], vec![b'c'; 10], Vec::new()]);
        assert_eq!(blocks.free(), 1);
    }

    #[test]
    fn blocks_are_aligned_in_memory_and_in_the_body() {
        let blocks = ReadBlocks::default();
        let fill = |buffer: &mut ReadBuf<'_>| buffer.put_slice(&vec![b'a'; buffer.remaining()]);
        for position in [0, 1, 1000, 4095, 4096, 1_000_000, 7 * BLOCK_SIZE as u64] {
            let read = blocks.read(position, u64::MAX, fill);
            assert_eq!(read.as_ptr() as u64 % ALIGNMENT as u64, position % ALIGNMENT as u64);
            assert_eq!((position + read.len() as u64) % ALIGNMENT as u64, 0);
            assert!(read.len() > BLOCK_SIZE - ALIGNMENT);
            assert_eq!(blocks.read(position, 5, fill), "aaaaa");
        }
    }
}
