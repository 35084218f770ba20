//! Removes the folders that killed test programs have left.
//!
//! A folder is removed if no process holds its lock, which ends with the process, and if it is not
//! new: another test program may be about to lock it.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, test_kill_process};

use super::folder::clusters_folder;
use super::name::PREFIX;

/// The age of a folder from which on it can be removed.
const OLD: Duration = Duration::from_secs(10 * 60);
/// The name of the lock in the data folder of a cluster.
const CLUSTER_LOCK: &str = "server.lock";
/// The depth below a folder at which data folders of clusters are searched.
const DEPTH: usize = 2;

/// The folders that are searched.
#[derive(Debug, Clone)]
pub(super) struct SearchedFolders {
    /// The folder for temporary files.
    pub temporary: PathBuf,
    /// The folder for clusters of tests.
    pub clusters: PathBuf,
    /// The folder in which root creates data folders that a link points to.
    pub roots: PathBuf,
    /// The age of a folder from which on it can be removed.
    pub old: Duration,
}

impl SearchedFolders {
    /// Returns the folders of this system.
    pub fn of_this_system() -> Self {
        Self {
            temporary: std::env::temp_dir(),
            clusters: clusters_folder(),
            roots: crate::cluster::ROOTS_FOLDER.into(),
            old: OLD,
        }
    }

    /// Removes what is left behind there. A folder that cannot be removed stays.
    pub fn sweep(&self) {
        for (folder, name) in folders(&self.roots) {
            if name.as_bytes().starts_with(b"data-") && self.is_old(&folder) {
                self.remove_roots_data(&folder);
            }
        }
        for (folder, name) in folders(&self.clusters) {
            if name.as_bytes().starts_with(PREFIX.as_bytes()) && self.is_old(&folder) {
                remove_scratch_folder(&folder);
            }
        }
        for (folder, name) in folders(&self.temporary) {
            if name.as_bytes().starts_with(b".tmp") && self.is_old(&folder) && is_ours(&folder) {
                remove_abandoned(&folder);
            }
        }
    }

    fn is_old(&self, folder: &Path) -> bool {
        let modified = fs::symlink_metadata(folder).and_then(|found| found.modified());
        modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age >= self.old))
    }

    /// Removes a data folder whose link was in the folder for temporary files and is gone.
    fn remove_roots_data(&self, data: &Path) {
        let Ok(origin) = fs::read(data.join("origin")) else { return };
        let origin = Path::new(OsStr::from_bytes(&origin));
        let is_linked = fs::read_link(origin).is_ok_and(|target| target == data);
        if origin.starts_with(&self.temporary)
            && !is_linked
            && let Some(_lock) = free_lock(&data.join(CLUSTER_LOCK))
        {
            let _ = fs::remove_dir_all(data);
        }
    }
}

/// Returns the path of the lock that belongs to the folder of clusters or of an ordinary server.
pub(super) fn folder_lock(folder: &Path) -> PathBuf {
    folder.with_extension("lock")
}

/// Creates and holds the lock of the folder of clusters or of an ordinary server.
pub(super) fn lock_folder(folder: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder_lock(folder))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Removes the folder of clusters or of an ordinary server whose test program has ended. Where
/// there is no lock, the program ended before it had one.
fn remove_scratch_folder(folder: &Path) {
    let lock = folder_lock(folder);
    let is_held = lock.exists() && free_lock(&lock).is_none();
    let process = fs::read_to_string(folder.join("postmaster.pid")).ok();
    let process = process.and_then(|text| Pid::from_raw(text.lines().next()?.trim().parse().ok()?));
    let runs = process.is_some_and(|process| test_kill_process(process) != Err(rustix::io::Errno::SRCH));
    if !is_held && !runs {
        let _ = fs::remove_dir_all(folder);
        let _ = fs::remove_file(lock);
    }
}

/// Removes a temporary folder with data folders of clusters, none of which is in use. Other
/// temporary folders may belong to other programs.
fn remove_abandoned(folder: &Path) {
    let mut locks = Vec::new();
    let mut level = vec![folder.to_owned()];
    for _ in 0..=DEPTH {
        locks.extend(level.iter().map(|folder| folder.join(CLUSTER_LOCK)).filter(|lock| lock.exists()));
        level = level.iter().flat_map(|folder| folders(folder)).map(|(folder, _)| folder).collect();
    }
    let held: Option<Vec<File>> = locks.iter().map(|lock| free_lock(lock)).collect();
    if held.is_some_and(|held| !held.is_empty()) {
        let _ = fs::remove_dir_all(folder);
    }
}

/// Takes a lock that no process holds.
fn free_lock(path: &Path) -> Option<File> {
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

/// Returns the folders in a folder, without links.
fn folders(parent: &Path) -> Vec<(PathBuf, std::ffi::OsString)> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_folder).map(|entry| (entry.path(), entry.file_name())).collect()
}

fn is_ours(folder: &Path) -> bool {
    let us = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(folder).is_ok_and(|found| found.uid() == us)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_dead_processes_are_removed_and_others_stay() {
        let scene = tempfile::tempdir().unwrap();
        let at = |path: &str| scene.path().join(path);
        let folders =
            SearchedFolders { temporary: at("tmp"), clusters: at("memory"), roots: at("roots"), old: Duration::ZERO };
        let make = |path: &str| fs::create_dir_all(at(path)).unwrap();
        let locked = |path: &str| {
            make(path);
            let file = File::create(at(path).join(CLUSTER_LOCK)).unwrap();
            flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
            file
        };
        let origin =
            |data: &str, origin: &Path| fs::write(at(data).join("origin"), origin.as_os_str().as_bytes()).unwrap();
        // Data folders that root has created
        drop(locked("roots/data-dead"));
        origin("roots/data-dead", &at("tmp/gone/data"));
        let running = locked("roots/data-running");
        origin("roots/data-running", &at("tmp/gone/other"));
        drop(locked("roots/data-stopped"));
        make("tmp/project");
        origin("roots/data-stopped", &at("tmp/project/data"));
        std::os::unix::fs::symlink(at("roots/data-stopped"), at("tmp/project/data")).unwrap();
        drop(locked("roots/data-of-production"));
        origin("roots/data-of-production", &at("srv/moved"));
        // Temporary folders
        drop(locked("tmp/.tmpdead/data"));
        let used = locked("tmp/.tmpused/data");
        drop(locked("tmp/.tmpused/another"));
        make("tmp/.tmpforeign/data");
        // Clusters and ordinary servers of one test
        make("memory/scratch_dead");
        drop(lock_folder(&at("memory/scratch_dead")).unwrap());
        make("memory/scratch_starting");
        let starting = lock_folder(&at("memory/scratch_starting")).unwrap();
        make("memory/scratch_stopping");
        fs::write(at("memory/scratch_stopping/postmaster.pid"), format!("{}\n", std::process::id())).unwrap();

        let careful = SearchedFolders { old: OLD, ..folders.clone() };
        careful.sweep();
        assert!(at("tmp/.tmpdead").exists(), "it is new");
        folders.sweep();
        for (path, stays) in [
            ("roots/data-dead", false),
            ("roots/data-running", true),
            ("roots/data-stopped", true),
            ("roots/data-of-production", true),
            ("tmp/.tmpdead", false),
            ("tmp/.tmpused", true),
            ("tmp/.tmpforeign", true),
            ("memory/scratch_dead", false),
            ("memory/scratch_dead.lock", false),
            ("memory/scratch_starting", true),
            ("memory/scratch_stopping", true),
        ] {
            assert_eq!(at(path).exists(), stays, "{path}");
        }
        drop((running, used, starting));
    }
}
