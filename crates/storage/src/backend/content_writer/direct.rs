//! Writes that go past the system's cache, and space that is reserved for them.

use std::fs::File;
use std::io;

/// Sets whether writes to a file go past the cache.
///
/// # Errors
/// When the file system does not know that.
#[cfg(target_os = "linux")]
pub(super) fn set(file: &File, is_direct: bool) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, is_direct);
    Ok(fcntl_setfl(file, flags)?)
}

/// Reserves space on the disk, which does not change the length of the file.
///
/// # Errors
/// When the disk is full, or the file system cannot do it.
#[cfg(target_os = "linux")]
pub(super) fn reserve(file: &File, from: u64, size: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, from, size)?)
}

/// Asks the system to write what a file has from a position on to disk, and does not wait for it.
/// What is not on disk yet stays in memory for those who read the file.
#[cfg(target_os = "linux")]
pub(super) fn begin_writeback(file: &File, from: u64) {
    // The flush at the end reports errors
    let _ = rustix::fs::fadvise(file, from, None, rustix::fs::Advice::DontNeed);
}

#[cfg(not(target_os = "linux"))]
pub(super) fn set(_: &File, is_direct: bool) -> io::Result<()> {
    if is_direct { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn reserve(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn begin_writeback(_: &File, _: u64) {}
