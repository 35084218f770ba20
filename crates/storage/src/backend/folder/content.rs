//! Files that are read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use portico_base::spawn_blocking;
use tokio::task::JoinHandle;

use super::buffer::{ReadBuffer, ReadBuffers};
use super::cached;
use super::file::blocking;
use crate::backend::model::{BackendError, ByteRange, OpenContent};
use crate::backend::sized_body::SizedBody;

/// Content of at most this size is read when it is opened.
const SMALL: u64 = 64 * 1024;
/// A client for which the last bytes read took longer than this receives slowly.
const SLOW: Duration = Duration::from_millis(200);

/// Returns a range of content that is in memory.
pub(super) fn in_memory(content: &Bytes, range: Option<ByteRange>) -> Result<OpenContent, BackendError> {
    let size = content.len();
    let (start, end) = resolve(range, size as u64)?;
    let bytes = content.slice(start as usize..end as usize);
    Ok(OpenContent { size: size as u64, range: (start, end), body: Body::from(bytes) })
}

/// Opens a version. Also returns its content if all of it was read.
pub(super) async fn open(
    place: PathBuf,
    range: Option<ByteRange>,
    buffers: Arc<ReadBuffers>,
) -> Result<(OpenContent, Option<Bytes>), BackendError> {
    if let Some(file) = cached::open(&place)
        && let OpenedVersion::Whole(content, read) = opened(file, range, &buffers, |file, room, start| {
            cached::read(file, room, start).filter(|read| *read == room.len()).map(drop).ok_or(())
        })?
    {
        return Ok((content, read));
    }
    blocking(move || {
        let read = |file: &File, room: &mut [u8], start| file.read_exact_at(room, start);
        match opened(File::open(place)?, range, &buffers, read)? {
            OpenedVersion::Whole(content, read) => Ok((content, read)),
            OpenedVersion::NotRead(error) => Err(error.into()),
        }
    })
    .await
}

/// A version that was opened.
enum OpenedVersion<E> {
    /// It can be sent. The bytes are its content if all of it was read.
    Whole(OpenContent, Option<Bytes>),
    /// It is small and could not be read.
    NotRead(E),
}

/// Opens a file, and reads it by `read` if it is small.
fn opened<E>(
    file: File,
    range: Option<ByteRange>,
    buffers: &Arc<ReadBuffers>,
    read: impl FnOnce(&File, &mut [u8], u64) -> Result<(), E>,
) -> Result<OpenedVersion<E>, BackendError> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(BackendError::NotFound);
    }
    let size = metadata.len();
    let (start, end) = resolve(range, size)?;
    if end - start > SMALL {
        let (file, buffers) = (Arc::new(file), Arc::clone(buffers));
        let chunks = FileChunks { file, position: start, end, read_at: None, reading: None, buffers };
        let body = Body::new(SizedBody::new(chunks, end - start));
        return Ok(OpenedVersion::Whole(OpenContent { size, range: (start, end), body }, None));
    }
    let mut bytes = BytesMut::zeroed(usize::try_from(end - start).map_err(io::Error::other)?);
    if !bytes.is_empty()
        && let Err(error) = read(&file, &mut bytes, start)
    {
        return Ok(OpenedVersion::NotRead(error));
    }
    let bytes = bytes.freeze();
    let whole = (end - start == size).then(|| bytes.clone());
    Ok(OpenedVersion::Whole(OpenContent { size, range: (start, end), body: Body::from(bytes) }, whole))
}

/// Returns the first position of a range and the one after the last.
fn resolve(range: Option<ByteRange>, size: u64) -> Result<(u64, u64), BackendError> {
    range.map_or(Ok((0, size)), |range| range.resolve(size).ok_or(BackendError::Range))
}

/// The bytes of a range of a file. It keeps the file open, so that a deletion does not disturb it.
struct FileChunks {
    file: Arc<File>,
    /// The position that is read next.
    position: u64,
    end: u64,
    /// The time at which the last bytes were read.
    read_at: Option<Instant>,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
    buffers: Arc<ReadBuffers>,
}

impl FileChunks {
    /// Returns the next bytes if they are in memory, or reads them on a thread that may block.
    fn read_next(&self) -> Result<Bytes, JoinHandle<io::Result<Bytes>>> {
        let (start, wanted) = (self.position, self.end - self.position);
        let read = |room: &mut [u8]| cached::read(&self.file, room, start).ok_or(());
        let is_slow = self.read_at.is_some_and(|read_at| read_at.elapsed() > SLOW);
        self.buffers.take(is_slow).fill(wanted, read).map_err(|(buffer, ())| {
            let file = Arc::clone(&self.file);
            spawn_blocking(move || read_from_disk(&file, buffer, start, wanted))
        })
    }
}

fn read_from_disk(file: &File, buffer: ReadBuffer, start: u64, wanted: u64) -> io::Result<Bytes> {
    let read = |room: &mut [u8]| file.read_exact_at(room, start).map(|()| room.len());
    buffer.fill(wanted, read).map_err(|(_, error)| error)
}

impl Stream for FileChunks {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let this = &mut *self;
        if this.position >= this.end {
            return Poll::Ready(None);
        }
        let outcome = match this.reading.take().map_or_else(|| this.read_next(), Err) {
            Ok(bytes) => Ok(bytes),
            Err(reading) => {
                let outcome = ready!(Pin::new(this.reading.insert(reading)).poll(context));
                this.reading = None;
                outcome.unwrap_or_else(|error| Err(io::Error::other(error)))
            }
        };
        if let Ok(bytes) = &outcome {
            this.position += bytes.len() as u64;
            this.read_at = Some(Instant::now());
        }
        Poll::Ready(Some(outcome))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use http_body_util::BodyExt;
    use rustix::fs::{Advice, fadvise};

    use super::*;

    #[tokio::test]
    async fn content_is_the_same_from_memory_and_from_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (path, buffers) = (folder.path().join("a"), Arc::default());
        let all: Vec<u8> = (0..1_400_000_u32).map(|n| (n % 251) as u8).collect();
        fs::write(&path, &all).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        for (start, end) in [(0, all.len()), (5, all.len() - 1), (100, 105), (300_000, 300_000 + SMALL as usize)] {
            for is_in_memory in [true, false] {
                if !is_in_memory {
                    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
                }
                let range = ByteRange::From(start as u64, Some(end as u64 - 1));
                let (content, _) = open(path.clone(), Some(range), Arc::clone(&buffers)).await.unwrap();
                let bytes = content.body.collect().await.unwrap().to_bytes();
                assert!(bytes == all[start..end], "{start} to {end}, in memory: {is_in_memory}");
            }
        }
    }
}
