//! Flushes of files and folders to the disk.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Flushes the content of the file at a path.
///
/// # Errors
/// When that fails.
pub(crate) fn flush_content(path: &Path, file: &fs::File) -> io::Result<()> {
    #[cfg(test)]
    flushes::record(path);
    #[cfg(not(test))]
    let _ = path;
    file.sync_data()
}

/// Flushes the entries of a folder.
///
/// # Errors
/// When that fails, except for a folder that does not exist.
pub(crate) fn flush_folder(folder: &Path) -> io::Result<()> {
    #[cfg(test)]
    flushes::record(folder);
    match fs::File::open(folder).and_then(|folder| folder.sync_all()) {
        // A deletion has removed the folder, and with it what was in it
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        flushed => flushed,
    }
}

/// Records what is flushed, since no test can cut the power.
#[cfg(test)]
pub(crate) mod flushes {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;

    static FLUSHES: Mutex<Vec<(PathBuf, Vec<String>)>> = Mutex::new(Vec::new());

    pub fn record(path: &Path) {
        let entries = fs::read_dir(path).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        FLUSHES.lock().unwrap().push((path.to_owned(), names));
    }

    /// Takes the paths below a root that were flushed, in their order, with the names that each
    /// folder had at that moment.
    pub fn take(root: &Path) -> Vec<(String, Vec<String>)> {
        let mut flushes = FLUSHES.lock().unwrap();
        let below = flushes.extract_if(.., |(path, _)| path.starts_with(root));
        below.map(|(path, names)| (path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), names)).collect()
    }
}
