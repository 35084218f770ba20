//! The data folder: its contents and its owner.
//!
//! ```text
//! <data>/server.lock    held while a server runs; contains its process id
//! <data>/pgdata/        PostgreSQL's own data folder
//! <data>/vault.key      the key of the secrets in the vault
//! <data>/extensions/    substitutes for extensions that plain PostgreSQL lacks
//! <data>/run/           the socket, when the path is short enough for one
//! ```

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::account::SystemAccount;
use super::error::ClusterError;

/// The cluster's superuser, as on the hosted platform. Migrations run as `postgres`, which is not
/// one.
pub(super) const SUPERUSER: &str = "supabase_admin";

/// The name of every cluster's socket carries a port number; with a folder of its own, one number
/// serves all.
pub(super) const SOCKET_PORT: u16 = 5432;
/// `sockaddr_un` has 108 bytes, a zero byte at the end included; `/.s.PGSQL.65535.lock` is the
/// longest name in the folder.
const SOCKET_FOLDER_LIMIT: usize = 107 - "/.s.PGSQL.65535.lock".len();
/// The folder in which root creates data folders whose chosen location an unprivileged user cannot
/// reach.
pub(crate) const ROOTS_FOLDER: &str = "/var/lib/portico";

/// The data folder of one cluster, locked for this process.
#[derive(Debug)]
pub(super) struct Home {
    folder: PathBuf,
    socket_folder: PathBuf,
    pub account: SystemAccount,
    /// Held open: the lock ends with it, also when this process crashes.
    lock: File,
}

impl Home {
    /// Creates the folder if it is missing, and locks it.
    pub fn open(data: &Path) -> Result<Self, ClusterError> {
        let data = std::path::absolute(data).map_err(|error| ClusterError::folder(data, &error))?;
        // The path goes into PostgreSQL's configuration, which is lines of UTF-8.
        if data.to_str().is_none_or(|text| text.chars().any(char::is_control)) {
            return Err(ClusterError::Folder {
                folder: data,
                problem: "its path is not UTF-8, or contains a control character".into(),
                remedy: "Choose another data folder".into(),
            });
        }
        let account = SystemAccount::for_data(&data);
        let folder = reachable_folder(&data, account)?;
        let lock = lock(&folder, account)?;
        let private = |path: &Path| private_folder(path, account).map_err(|error| ClusterError::folder(path, &error));
        private(&folder)?;
        let socket_folder = socket_folder(&folder, account)?;
        Ok(Self { folder, socket_folder, account, lock })
    }

    /// Returns PostgreSQL's own data folder.
    pub fn pgdata(&self) -> PathBuf {
        self.folder.join("pgdata")
    }

    /// Creates the key of the vault, once. It is beside PostgreSQL's data folder and not inside:
    /// only a superuser can read it through the server, and a base backup does not contain it. In
    /// the file system only the server's account can read it.
    pub fn ensure_vault_key(&self) -> io::Result<()> {
        let (path, new) = (self.folder.join("vault.key"), self.folder.join("vault.key.new"));
        if path.try_exists()? {
            return Ok(());
        }
        let key = portico_base::random::bytes::<32>();
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(hex::encode(key).as_bytes())?;
        self.account.set_owner(&new)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.folder)?.sync_all()
    }

    /// Returns the folder of the substitutes for extensions, which are in a folder `extension` as
    /// PostgreSQL expects.
    pub fn extensions(&self) -> PathBuf {
        self.folder.join("extensions")
    }

    /// Returns the folder of the socket.
    pub fn socket_folder(&self) -> &Path {
        &self.socket_folder
    }

    /// Removes the files that a killed server left beside its socket, which would block the next
    /// one. Only while none runs.
    pub fn clear_socket_folder(&self) {
        for entry in fs::read_dir(&self.socket_folder).into_iter().flatten().flatten() {
            if entry.file_name().as_bytes().starts_with(b".s.PGSQL.") {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Returns the folder itself, with all links resolved.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the folder for copies of the programs, which the account can reach.
    pub fn private_programs(&self) -> PathBuf {
        match self.account {
            SystemAccount::Lesser { .. } => PathBuf::from(ROOTS_FOLDER),
            SystemAccount::Ours => self.folder.join("programs"),
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self.lock.set_len(0);
        if !self.socket_folder.starts_with(&self.folder) {
            let _ = fs::remove_dir(&self.socket_folder);
        }
    }
}

/// Returns the folder itself or, if the account cannot reach it, a folder elsewhere that a link in
/// its place points to.
fn reachable_folder(data: &Path, account: SystemAccount) -> Result<PathBuf, ClusterError> {
    let failed = |error: io::Error| ClusterError::folder(data, &error);
    if let Some(parent) = data.parent() {
        make_parents(parent, account).map_err(failed)?;
    }
    let blocked = || data.parent().and_then(|parent| account.blocked_at(parent));
    match fs::symlink_metadata(data) {
        Ok(found) if !found.is_symlink() => {
            let Some(blocker) = blocked() else { return fs::canonicalize(data).map_err(failed) };
            // An empty folder can be replaced by a link
            if fs::remove_dir(data).is_err() {
                return Err(ClusterError::Folder {
                    folder: data.to_owned(),
                    problem: format!(
                        "PostgreSQL runs as user {} since it must not run as root, and that user cannot pass {}",
                        account.uid(),
                        blocker.display()
                    ),
                    remedy: format!("Run `chmod o+x {}`, or choose a data folder outside of it", blocker.display()),
                });
            }
        }
        Ok(_) => match fs::canonicalize(data) {
            Ok(folder) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::remove_file(data).map_err(failed)?,
            Err(error) => return Err(failed(error)),
        },
        Err(_) => {}
    }
    if blocked().is_none() {
        private_folder(data, account).map_err(failed)?;
        return fs::canonicalize(data).map_err(failed);
    }
    let folder = Path::new(ROOTS_FOLDER).join(format!("data-{}", random_name()));
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(ROOTS_FOLDER)
        .and_then(|()| private_folder(&folder, account));
    made.map_err(|error| ClusterError::folder(&folder, &error))?;
    // Explains the folder to a person who finds it
    fs::write(folder.join("origin"), data.as_os_str().as_bytes()).map_err(failed)?;
    symlink(&folder, data).map_err(failed)?;
    tracing::info!(
        uid = account.uid(),
        folder = %data.display(),
        data = %folder.display(),
        "PostgreSQL runs as a user that cannot reach the folder: its data lies elsewhere"
    );
    Ok(folder)
}

/// Creates the folders above the data folder. Below a folder of an ordinary user they belong to
/// that user, not to root.
fn make_parents(folder: &Path, account: SystemAccount) -> io::Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(folder)?;
    for folder in missing.into_iter().rev() {
        let above = folder.parent().map(fs::metadata).transpose()?;
        if above.is_some_and(|above| above.uid() == account.uid()) {
            account.set_owner(folder)?;
        }
    }
    Ok(())
}

/// Creates a folder that only the account may enter, or restricts an existing one.
pub(super) fn private_folder(folder: &Path, account: SystemAccount) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a folder"));
    }
    account.set_owner(folder)?;
    if found.mode() & 0o7777 != 0o700 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn lock(folder: &Path, account: SystemAccount) -> Result<File, ClusterError> {
    let path = folder.join("server.lock");
    let failed = |error: io::Error| ClusterError::folder(folder, &error);
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut file = open().map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut text = String::new();
            let _ = file.take(32).read_to_string(&mut text);
            return Err(ClusterError::Locked { data: folder.to_owned(), process: text.trim().parse().ok() });
        }
        Err(error) => return Err(failed(error.into())),
    }
    let write = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        // Created by root below a folder of an ordinary user, it must not lock that user out
        account.set_owner(&path)
    };
    write(&mut file).map_err(failed)?;
    Ok(file)
}

/// Returns a folder for the socket: in the data folder if the path is short enough, otherwise one
/// with a random name, which no other user can prepare or guess.
fn socket_folder(home: &Path, account: SystemAccount) -> Result<PathBuf, ClusterError> {
    let inside = home.join("run");
    if inside.as_os_str().as_bytes().len() <= SOCKET_FOLDER_LIMIT {
        private_folder(&inside, account).map_err(|error| ClusterError::folder(&inside, &error))?;
        return Ok(inside);
    }
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let parents = [runtime, Some(env::temp_dir()), Some("/tmp".into())];
    let short =
        |parent: &PathBuf| parent.is_absolute() && parent.as_os_str().as_bytes().len() + 30 <= SOCKET_FOLDER_LIMIT;
    let mut problem = io::Error::other("no folder for temporary files has a short enough path");
    for parent in parents.into_iter().flatten().filter(short) {
        if account.blocked_at(&parent).is_some() {
            continue;
        }
        let folder = parent.join(format!("portico-{}", random_name()));
        match DirBuilder::new().mode(0o700).create(&folder).and_then(|()| account.set_owner(&folder)) {
            Ok(()) => return Ok(folder),
            Err(error) => problem = error,
        }
    }
    Err(ClusterError::folder(&inside, &problem))
}

fn random_name() -> String {
    hex::encode(portico_base::random::bytes::<8>())
}
