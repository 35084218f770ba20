//! Files that are read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::backend::model::{BackendError, ByteRange, OpenContent};

/// The bytes of a download that are read at once.
const READ_SIZE: u64 = 256 * 1024;
/// Content of at most this size is read when it is opened.
const SMALL: u64 = 64 * 1024;

/// Opens a version.
pub(super) fn open(place: &Path, range: Option<ByteRange>) -> Result<OpenContent, BackendError> {
    let file = File::open(place)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(BackendError::NotFound);
    }
    let size = metadata.len();
    let part = match range {
        Some(range) => range.resolve(size).ok_or(BackendError::Range)?,
        None => (0, size),
    };
    let body = if part.1 - part.0 <= SMALL {
        Body::from(read(&file, part.0, part.1)?)
    } else {
        Body::new(FileBody { file: Arc::new(file), position: part.0, end: part.1, reading: None })
    };
    Ok(OpenContent { size, part, body })
}

fn read(file: &File, start: u64, end: u64) -> io::Result<Bytes> {
    let mut bytes = BytesMut::zeroed(usize::try_from(end - start).map_err(io::Error::other)?);
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes.freeze())
}

/// A part of a file as a body. It keeps the file open, so that a deletion does not disturb it.
struct FileBody {
    file: Arc<File>,
    /// The position that is read next.
    position: u64,
    end: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl HttpBody for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        if this.position >= this.end {
            return Poll::Ready(None);
        }
        let (start, end) = (this.position, this.end.min(this.position + READ_SIZE));
        let reading = this.reading.get_or_insert_with(|| {
            let file = Arc::clone(&this.file);
            spawn_blocking(move || read(&file, start, end))
        });
        let outcome = ready!(Pin::new(reading).poll(context));
        this.reading = None;
        Poll::Ready(Some(match outcome.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(bytes) => {
                this.position = end;
                Ok(Frame::data(bytes))
            }
            Err(error) => {
                this.position = this.end;
                Err(error)
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.position >= self.end
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.end - self.position)
    }
}
