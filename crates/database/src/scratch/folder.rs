//! The folders of the clusters of tests.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{env, io};

/// The file system in memory of Linux.
const MEMORY: &str = "/dev/shm";
/// The space for the clusters of tests, in bytes, some tens of times what they take.
const MEMORY_NEEDED: u64 = 6 << 30;

/// Returns a name of this boot of the machine.
pub(super) fn boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.get(..8).unwrap_or("machine").to_owned()
}

/// Returns the folder for clusters of tests: one in memory if there is space. Disks are not only
/// slower: the database of a test is hundreds of files, and ext4 searches long for inodes that were
/// not in use a moment ago.
pub(super) fn clusters_folder() -> PathBuf {
    let free = rustix::fs::statvfs(MEMORY).map_or(0, |memory| memory.f_bavail.saturating_mul(memory.f_frsize));
    if free >= MEMORY_NEEDED { PathBuf::from(MEMORY) } else { env::temp_dir() }
}

/// Returns a folder that belongs to this user alone. Its name can be guessed, so its owner and mode
/// are checked.
pub(super) fn slots_folder(parent: &Path) -> io::Result<PathBuf> {
    let us = rustix::process::geteuid().as_raw();
    let folder = parent.join(format!("portico-tests-{us}"));
    match DirBuilder::new().mode(0o755).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(&folder)?;
    if !found.is_dir() || found.uid() != us || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is not only ours", folder.display())));
    }
    Ok(folder)
}
