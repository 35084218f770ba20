//! Files that the system has in memory. Opening and reading them takes less time than passing the
//! work to another thread and back, so that is tried first. Nothing here waits for a disk.

use std::fs::File;
use std::path::Path;

/// Opens a file if its path and its facts are in memory. `None`: it may exist or not.
#[cfg(target_os = "linux")]
pub(super) fn open(path: &Path) -> Option<File> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED).ok().map(File::from)
}

/// Reads what is in memory of a file from a position on, at least one byte. `None`: the disk must
/// be read, or the read fails.
#[cfg(target_os = "linux")]
pub(super) fn read(file: &File, buffer: &mut [u8], start: u64) -> Option<usize> {
    use rustix::io::{ReadWriteFlags, preadv2};

    let read = preadv2(file, &mut [std::io::IoSliceMut::new(buffer)], start, ReadWriteFlags::NOWAIT);
    read.ok().filter(|read| *read > 0)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn open(_: &Path) -> Option<File> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn read(_: &File, _: &mut [u8], _: u64) -> Option<usize> {
    None
}
