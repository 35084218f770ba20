//! Clusters that tests have to themselves: each begins with a copy of one that `initdb` has made
//! once for a boot of the machine, in the folder for clusters of tests.
//!
//! `initdb` takes 0.8 seconds of processor time for 39 MB, and a copy in memory 0.08. Copies share
//! the identifier of the cluster, which only tests may do.

use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use super::folder::{boot, clusters_folder, slots_folder};
use super::leftovers::lock_folder;
use super::name::fresh_name;
use crate::cluster::{Binaries, Cluster, ClusterError, ClusterSettings, begin_with, initialise_in};

/// Removes a folder when standard input is closed, which also happens when the test program ends
/// or is killed. Its PostgreSQL may still be writing then.
const REMOVE: &str = r#"
    read -r _; for _ in 1 2 3 4 5 6 7 8 9; do rm -rf "$1" 2>/dev/null && break; sleep 1; done; rm -f "$1.lock""#;

/// A folder for clusters, in memory where there is space. It is removed when this is dropped or the
/// program ends.
#[derive(Debug)]
pub struct ClusterFolder {
    folder: PathBuf,
    remover: Child,
    /// Held open: the lock tells other test programs that the folder is in use.
    _lock: File,
}

impl ClusterFolder {
    /// Creates a folder that PostgreSQL's user can pass.
    ///
    /// # Panics
    /// When the folder cannot be created.
    #[must_use]
    #[allow(clippy::expect_used, clippy::new_without_default)]
    pub fn new() -> Self {
        let (folder, lock) = locked_folder(0o755).expect("a folder for clusters of tests");
        let mut remover = Command::new("/bin/sh");
        remover.args(["-c", REMOVE, "sh"]).arg(&folder).current_dir("/").stdin(Stdio::piped()).process_group(0);
        Self { folder, remover: remover.spawn().expect("a shell"), _lock: lock }
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for ClusterFolder {
    fn drop(&mut self) {
        // Closes its standard input
        let _ = self.remover.wait();
    }
}

/// Creates a folder with a new name and these permissions, and holds its lock.
pub(super) fn locked_folder(mode: u32) -> io::Result<(PathBuf, File)> {
    let folder = clusters_folder().join(fresh_name());
    DirBuilder::new().mode(0o700).create(&folder)?;
    let lock = lock_folder(&folder)?;
    // `create` applies the mask of the process
    fs::set_permissions(&folder, Permissions::from_mode(mode))?;
    Ok((folder, lock))
}

/// Starts a cluster as [`Cluster::start`] does. A data folder without a cluster begins with a copy.
/// Tests of a first start call [`Cluster::start`] instead.
///
/// # Errors
/// Those of [`Cluster::start`].
pub async fn start_cluster(settings: ClusterSettings) -> Result<Cluster, ClusterError> {
    let binaries = Binaries::find(settings.binaries.as_deref())?;
    let initialise = |data: &Path| initialise_in(data, &binaries).map_err(io::Error::other);
    let initialised = initialised("cluster", binaries.folder(), initialise)
        .map_err(|error| ClusterError::folder(&settings.data, &error))?;
    begin_with(&settings.data, &initialised)?;
    Cluster::start(settings).await
}

/// Returns the folder that `initialise` has filled with the programs in `binaries`, for this
/// caller or an earlier one of this boot.
pub(super) fn initialised(
    kind: &str,
    binaries: &Path,
    initialise: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let slots = slots_folder(&clusters_folder())?;
    let mut hasher = DefaultHasher::new();
    // Other programs in the same place have another time
    (binaries, fs::metadata(binaries.join("postgres"))?.modified()?).hash(&mut hasher);
    let folder = slots.join(format!("{}-{kind}-{:016x}", boot(), hasher.finish()));
    // Other callers wait, in this process and in others
    let lock = File::open(&slots)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    if !folder.exists() {
        let unfinished = folder.with_extension("new");
        let _ = fs::remove_dir_all(&unfinished);
        initialise(&unfinished)?;
        fs::rename(&unfinished, &folder)?;
    }
    Ok(folder)
}
