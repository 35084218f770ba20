//! Writing the content of an upload to its file.
//!
//! Content that arrives faster than it is written goes from the memory of the program to the disk
//! (`O_DIRECT`). By way of the system's cache, each page would be allocated, filled and cleaned
//! without being read, which takes three times as much of the processors. Direct writes have to
//! begin and end on the blocks of a disk, in the file and in memory. So what follows the last whole
//! block is kept for the next write, and what lies otherwise in memory than in the file is copied.
//! Content that arrives slowly goes through the cache, which joins small writes (decision 37).

mod aligned;
mod direct;

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Seek as _, SeekFrom, Write as _};
use std::mem;

use bytes::Bytes;

use self::aligned::BLOCK;
pub(crate) use self::aligned::{AlignedBuffer, AlignedBuffers};

/// The bytes that are worth a write of their own to the disk.
const DIRECT_SIZE: usize = 64 * 1024;
/// The space on the disk that is reserved ahead of direct writes, at first and at most. Without it,
/// each of them has to record a new length of the file before the next one begins. A file that lies
/// in few places is also deleted faster.
const FIRST_RESERVATION: u64 = 1024 * 1024;
const MAX_RESERVATION: u64 = 128 * 1024 * 1024;
/// The space that is reserved for each byte that has arrived. Who sends little reserves little.
const GROWTH: u64 = 16;
/// The bytes in the cache after which the system is asked to write them to disk, and does so while
/// more arrive: the flush at the end waits for the rest only.
const WRITEBACK_SIZE: u64 = 8 * 1024 * 1024;

/// Appends to the file of an upload. What is appended is in the file after
/// [`complete`](Self::complete).
pub(crate) struct ContentWriter {
    pub file: File,
    /// The size of the content to which this appends.
    begin: u64,
    /// The bytes in the file.
    written: u64,
    /// The bytes behind them: less than a block, behind the end of another one.
    rest: Vec<u8>,
    mode: WriteMode,
    /// The largest content.
    limit: u64,
    /// The file has space on the disk up to here.
    reserved: u64,
    /// The bytes that the system was asked to write to disk.
    in_writeback: u64,
}

/// A state of a file that a [`ContentWriter`] can return to.
pub(crate) struct WriterPosition {
    written: u64,
    rest: Vec<u8>,
}

/// Memory for one block.
#[repr(align(4096))]
struct AlignedBlock([u8; BLOCK]);

/// The way that writes to the file go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    Cached,
    Direct,
    /// The file system knows no direct writes.
    AlwaysCached,
}

impl ContentWriter {
    /// Appends to a file of `begin` bytes that is open at its end. It will have at most `limit`
    /// bytes.
    pub fn new(file: File, begin: u64, limit: u64) -> Self {
        Self {
            file,
            begin,
            written: begin,
            rest: Vec::new(),
            mode: WriteMode::Cached,
            limit,
            reserved: begin,
            in_writeback: begin,
        }
    }

    /// Sets the largest content anew.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Returns the size of the content with all that was appended.
    pub fn size(&self) -> u64 {
        self.written + self.rest.len() as u64
    }

    /// Appends chunks; `buffer` is for direct writes.
    pub fn append(&mut self, chunks: &[Bytes], buffer: &mut AlignedBuffer) -> io::Result<()> {
        let size = self.rest.len() + chunks.iter().map(Bytes::len).sum::<usize>();
        if size >= DIRECT_SIZE && self.mode != WriteMode::AlwaysCached {
            self.append_directly(chunks, buffer)
        } else {
            self.append_cached(chunks)
        }
    }

    /// Writes what is left, and gives back the space that was reserved for more.
    pub fn complete(&mut self) -> io::Result<()> {
        self.append_cached(&[])?;
        if self.reserved > self.written.next_multiple_of(BLOCK as u64) {
            self.file.set_len(self.written)?;
            self.reserved = self.written;
        }
        Ok(())
    }

    /// Returns the state as it is now.
    pub fn position(&self) -> WriterPosition {
        WriterPosition { written: self.written, rest: self.rest.clone() }
    }

    /// Cuts off what was appended since then, with the space that was reserved for more.
    pub fn return_to(&mut self, position: WriterPosition) -> io::Result<()> {
        let WriterPosition { written, rest } = position;
        self.file.set_len(written)?;
        self.file.seek(SeekFrom::Start(written))?;
        (self.written, self.rest, self.reserved) = (written, rest, written);
        self.in_writeback = self.in_writeback.min(written);
        Ok(())
    }

    /// Appends more than a block of chunks by direct writes, as far as they have whole blocks.
    fn append_directly(&mut self, chunks: &[Bytes], buffer: &mut AlignedBuffer) -> io::Result<()> {
        // To the end of the block in which the last write has ended. There is no rest then
        let mut skipped = (self.written.next_multiple_of(BLOCK as u64) - self.written) as usize;
        buffer.clear();
        for chunk in chunks {
            let (first, left) = chunk.split_at(skipped.min(chunk.len()));
            self.write_cached(first)?;
            skipped -= first.len();
            let preceding = self.rest.len() + buffer.filled().len();
            if left.len() >= DIRECT_SIZE && (left.as_ptr() as usize).wrapping_sub(preceding).is_multiple_of(BLOCK) {
                self.write_copies(buffer)?;
                self.write_in_place(left)?;
            } else if buffer.filled().is_empty() && self.rest.len() + left.len() < BLOCK {
                self.rest.extend_from_slice(left);
            } else {
                self.copy(left, buffer)?;
            }
        }
        self.write_copies(buffer)
    }

    /// Writes a chunk whose bytes lie in memory as in the file, relative to the blocks: only what
    /// completes the first block is copied.
    fn write_in_place(&mut self, chunk: &[u8]) -> io::Result<()> {
        let (completing, left) = chunk.split_at(self.rest.len().next_multiple_of(BLOCK) - self.rest.len());
        let (whole, rest) = left.split_at(left.len() / BLOCK * BLOCK);
        if completing.is_empty() {
            self.write_directly(&mut [IoSlice::new(whole)])?;
        } else {
            let mut first = AlignedBlock([0; BLOCK]);
            let (before, behind) = first.0.split_at_mut(self.rest.len());
            before.copy_from_slice(&self.rest);
            behind.copy_from_slice(completing);
            self.rest.clear();
            self.write_directly(&mut [IoSlice::new(&first.0), IoSlice::new(whole)])?;
        }
        self.rest.extend_from_slice(rest);
        Ok(())
    }

    /// Copies a chunk to the end of the buffer, which is written when it is full.
    fn copy(&mut self, mut chunk: &[u8], buffer: &mut AlignedBuffer) -> io::Result<()> {
        buffer.append(&mem::take(&mut self.rest));
        loop {
            chunk = buffer.append(chunk);
            if chunk.is_empty() {
                return Ok(());
            }
            self.write_copies(buffer)?;
        }
    }

    /// Writes the whole blocks of the buffer and clears it.
    fn write_copies(&mut self, buffer: &mut AlignedBuffer) -> io::Result<()> {
        let (whole, rest) = buffer.filled().split_at(buffer.filled().len() / BLOCK * BLOCK);
        self.write_directly(&mut [IoSlice::new(whole)])?;
        self.rest.extend_from_slice(rest);
        buffer.clear();
        Ok(())
    }

    /// Appends the rest and chunks through the cache.
    fn append_cached(&mut self, chunks: &[Bytes]) -> io::Result<()> {
        let rest = mem::take(&mut self.rest);
        self.write_cached(&rest)?;
        chunks.iter().try_for_each(|chunk| self.write_cached(chunk))?;
        if self.written - self.in_writeback >= WRITEBACK_SIZE {
            direct::begin_writeback(&self.file, self.in_writeback);
            self.in_writeback = self.written;
        }
        Ok(())
    }

    fn write_cached(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.mode == WriteMode::Direct {
            direct::set(&self.file, false)?;
            self.mode = WriteMode::Cached;
        }
        self.file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes whole blocks at the end of a block. Where the file system knows no direct writes,
    /// they go through the cache.
    fn write_directly(&mut self, mut left: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut left, 0);
        if self.mode == WriteMode::Cached && !left.is_empty() {
            let is_direct = direct::set(&self.file, true).is_ok();
            self.mode = if is_direct { WriteMode::Direct } else { WriteMode::AlwaysCached };
        }
        while self.mode == WriteMode::Direct && !left.is_empty() {
            self.reserve(left.iter().map(|blocks| blocks.len() as u64).sum());
            match self.file.write_vectored(left) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    IoSlice::advance_slices(&mut left, written);
                    self.written += written as u64;
                    self.in_writeback = self.written;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Larger blocks than usual, or no direct writes though the flag was accepted
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    direct::set(&self.file, false)?;
                    self.mode = WriteMode::AlwaysCached;
                }
                Err(error) => return Err(error),
            }
        }
        left.iter().try_for_each(|blocks| self.write_cached(blocks))
    }

    /// Reserves space on the disk for the next bytes and some more.
    fn reserve(&mut self, size: u64) {
        if self.written + size > self.reserved {
            let arrived = self.written - self.begin;
            let step = arrived.saturating_mul(GROWTH).clamp(FIRST_RESERVATION, MAX_RESERVATION);
            let left = self.limit.saturating_sub(self.written);
            self.reserved = self.written + step.min(left).max(size);
            // The writes report a full disk, which may have room for them, but not for the step
            let _ = direct::reserve(&self.file, self.written, self.reserved - self.written);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    /// Makes a file with its writer.
    fn create(path: &Path, limit: u64) -> ContentWriter {
        ContentWriter::new(File::create_new(path).unwrap(), 0, limit)
    }

    /// Returns chunks of these sizes, whose bytes continue each other.
    fn chunks(sizes: &[usize], from: usize) -> Vec<Bytes> {
        let mut at = from;
        let chunk = |size: &usize| {
            let bytes = (at..at + size).map(|at| (at % 251) as u8).collect();
            at += size;
            bytes
        };
        sizes.iter().map(chunk).collect()
    }

    /// The places of chunks in memory.
    #[derive(Debug, Clone, Copy)]
    enum Placement {
        Any,
        /// Those of an even size lie as in the file, relative to the blocks.
        SomeAsInFile,
    }

    /// Writes pieces of chunks of these sizes, and tests what the file has then.
    fn assert_writes(pieces: &[Vec<usize>], mode: WriteMode) -> ContentWriter {
        assert_writes_placed(pieces, mode, Placement::Any)
    }

    fn assert_writes_placed(pieces: &[Vec<usize>], mode: WriteMode, placement: Placement) -> ContentWriter {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut writer = create(&path, u64::MAX);
        writer.mode = mode;
        let (mut buffer, mut size) = (AlignedBuffers::default().take(), 0);
        for (number, sizes) in (1..).zip(pieces) {
            let mut chunks = chunks(sizes, size);
            for chunk in &mut chunks {
                if matches!(placement, Placement::SomeAsInFile) && chunk.len().is_multiple_of(2) {
                    *chunk = beyond_block(size % BLOCK, chunk);
                }
                size += chunk.len();
            }
            writer.append(&chunks, &mut buffer).unwrap();
            if number == pieces.len() {
                writer.complete().unwrap();
            }
            assert_eq!(writer.size(), size as u64);
            assert!(writer.rest.len() < BLOCK);
            // The system is asked again and again, and always for most of what is in the cache
            assert!(writer.written - writer.in_writeback < WRITEBACK_SIZE);
        }
        let expected: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        assert!(fs::read(&path).unwrap() == expected, "{pieces:?}");
        writer
    }

    /// Returns true if files in the folder for temporary files can be written directly.
    fn is_direct() -> bool {
        direct::set(&tempfile::tempfile().unwrap(), true).is_ok()
    }

    /// An event in the life of the file of a resumable upload.
    #[derive(Debug, Clone)]
    enum Step {
        Append(Vec<usize>),
        /// The chunks are cut off again.
        AppendInVain(Vec<usize>),
        Complete,
        /// It is completed and opened again.
        Reopen,
    }

    fn step() -> impl Strategy<Value = Step> {
        let sizes = || prop::collection::vec(prop_oneof![1..5000_usize, Just(BLOCK), 60_000..200_000_usize], 0..4);
        prop_oneof![
            4 => sizes().prop_map(Step::Append),
            2 => sizes().prop_map(Step::AppendInVain),
            1 => Just(Step::Complete),
            1 => Just(Step::Reopen),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn a_file_that_is_continued_has_what_was_not_cut_off(steps in prop::collection::vec(step(), 1..12)) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            let (mut writer, mut buffer) = (create(&path, u64::MAX), AlignedBuffers::default().take());
            let mut size = 0;
            for step in &steps {
                match step {
                    Step::Append(sizes) => {
                        writer.append(&chunks(sizes, size), &mut buffer).unwrap();
                        size += sizes.iter().sum::<usize>();
                    }
                    Step::AppendInVain(sizes) => {
                        let position = writer.position();
                        writer.append(&chunks(sizes, size + 1), &mut buffer).unwrap();
                        // The next one fails
                        let file = mem::replace(&mut writer.file, File::open(&path).unwrap());
                        writer.append(&chunks(&[3 * DIRECT_SIZE + 1], size), &mut buffer).unwrap_err();
                        writer.file = file;
                        writer.return_to(position).unwrap();
                    }
                    Step::Complete => writer.complete().unwrap(),
                    Step::Reopen => {
                        writer.complete().unwrap();
                        let mut file = File::options().write(true).open(&path).unwrap();
                        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), size as u64);
                        writer = ContentWriter::new(file, size as u64, u64::MAX);
                    }
                }
                assert_eq!(writer.size(), size as u64);
            }
            writer.complete().unwrap();
            let expected: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            assert!(fs::read(&path).unwrap() == expected);
        }

        #[test]
        fn a_file_has_the_chunks_in_their_order(
            pieces in prop::collection::vec(
                prop::collection::vec(prop_oneof![Just(0), 1..5000_usize, Just(BLOCK), Just(16 * 1024), 60_000..200_000_usize], 0..10),
                1..8,
            ),
            placement in prop_oneof![Just(Placement::Any), Just(Placement::SomeAsInFile)],
        ) {
            for mode in [WriteMode::Cached, WriteMode::AlwaysCached] {
                assert_writes_placed(&pieces, mode, placement);
            }
        }
    }

    #[test]
    fn large_pieces_leave_a_rest_until_the_last_one() {
        let writer = assert_writes(&[vec![16 * 1024 - 1; 9], vec![16 * 1024 - 1; 9], vec![]], WriteMode::Cached);
        assert_eq!(writer.reserved > 0, is_direct());
        // A small piece goes through the cache, in the midst of a block; the next large one follows
        let writer = assert_writes(&[vec![100_000], vec![7], vec![100_000], vec![90_000]], WriteMode::Cached);
        assert_eq!(writer.reserved > 0, is_direct());
        let small = assert_writes(&[vec![1000; 20], vec![1000; 20]], WriteMode::Cached);
        assert_eq!((small.reserved, small.mode), (0, WriteMode::Cached));
    }

    /// Returns bytes that begin at a multiple of a block in memory.
    fn aligned(size: usize) -> Bytes {
        beyond_block(0, &chunks(&[size], 0)[0])
    }

    /// Returns a copy that begins so far behind a multiple of a block in memory.
    fn beyond_block(distance: usize, bytes: &[u8]) -> Bytes {
        let mut memory = vec![0; BLOCK + distance + bytes.len()];
        let start = memory.as_ptr().align_offset(BLOCK) + distance;
        memory[start..][..bytes.len()].copy_from_slice(bytes);
        Bytes::from(memory).slice(start..start + bytes.len())
    }

    #[test]
    fn what_lies_in_memory_as_in_the_file_is_written_from_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let mut buffer = AlignedBuffers::default().take();
        let bytes = |size| chunks(&[size], size).remove(0);
        let content = [
            beyond_block(7, &bytes(3000)),
            // As a long body is read behind the bytes that came with its head
            beyond_block(3000, &bytes(256 * 1024 - 3000)),
            aligned(256 * 1024),
            aligned(256 * 1024 + 100),
            beyond_block(100, &bytes(256 * 1024)),
        ];
        let path = folder.path().join("file");
        let mut writer = create(&path, u64::MAX);
        let mut append = |from: usize, to: usize| {
            writer.append(&content[from..to], &mut buffer).unwrap();
            (writer.rest.len(), buffer.is_used())
        };
        assert_eq!(append(0, 2), (0, false));
        assert_eq!(append(2, 4), (100, false));
        assert_eq!(append(4, 5), (100, false));
        // Others are copied
        assert_eq!(append(2, 3), (100, true));
        writer.complete().unwrap();
        let expected = [&content[..], &content[2..3]].concat().concat();
        assert!(fs::read(&path).unwrap() == expected);
    }

    #[test]
    fn no_more_space_is_reserved_than_the_content_may_take() {
        let folder = tempfile::tempdir().unwrap();
        let mut buffer = AlignedBuffers::default().take();
        let path = folder.path().join("file");
        let mut writer = create(&path, 40_000_000);
        let mut reserved = Vec::new();
        for _ in 0..40 {
            writer.append(&[aligned(1_000_000)], &mut buffer).unwrap();
            reserved.push(writer.reserved);
        }
        writer.complete().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 40_000_000);
        if is_direct() {
            assert_eq!((reserved[0], *reserved.last().unwrap()), (FIRST_RESERVATION, 40_000_000));
            reserved.dedup();
            assert_eq!(reserved.len(), 3, "{reserved:?}");
        }
    }

    #[test]
    fn space_that_was_reserved_and_not_needed_is_given_back() {
        use std::os::unix::fs::MetadataExt as _;

        let writer = assert_writes(&[vec![300_000], vec![2_000_000], vec![100_001]], WriteMode::Cached);
        let allocated = writer.file.metadata().unwrap().blocks() * 512;
        assert!(allocated < 2_400_001 + 64 * 1024, "{allocated} bytes");
    }

    #[test]
    fn a_large_file_is_whole_while_the_system_writes_it_to_disk() {
        let pieces = vec![vec![1_000_003, 0, 7]; 3 * WRITEBACK_SIZE as usize / 1_000_000 + 1];
        let writer = assert_writes(&pieces, WriteMode::AlwaysCached);
        assert!(writer.in_writeback >= 2 * WRITEBACK_SIZE);
    }

    #[test]
    fn what_the_file_system_does_not_write_directly_goes_through_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut writer = create(&path, u64::MAX);
        let expected = chunks(&[100, 70_001, 80_000], 0);
        // Less than a block of any disk
        writer.write_directly(&mut [IoSlice::new(&expected[0])]).unwrap();
        let mut buffer = AlignedBuffers::default().take();
        writer.append(&expected[1..2], &mut buffer).unwrap();
        writer.append(&expected[2..], &mut buffer).unwrap();
        writer.complete().unwrap();
        assert!(fs::read(&path).unwrap() == expected.concat());
        assert_ne!(writer.mode, WriteMode::Cached);
    }
}
