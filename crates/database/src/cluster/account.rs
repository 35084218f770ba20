//! The system user that PostgreSQL runs as. It refuses to run as root, so a server of root starts
//! it as another user.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The overflow user of Linux, named `nobody` on most systems, if the system's list of users has no
/// entry.
const NOBODY: u32 = 65534;

/// The user that PostgreSQL runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SystemAccount {
    /// The same as ours.
    Ours,
    /// This process is root, and this user is not.
    Lesser { uid: u32, gid: u32 },
}

impl SystemAccount {
    /// Chooses the user for a data folder. As root: the owner of the folder, or of the nearest
    /// folder above it, when that is an ordinary user, so that a project's files stay its owner's;
    /// else `portico` or `nobody`.
    pub fn for_data(data: &Path) -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self::Ours;
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let existing = data.ancestors().find_map(|folder| fs::metadata(folder).ok());
        // `initdb` insists on a user that the system knows by name.
        let known = |uid: u32| users.lines().any(|line| line.split(':').nth(2) == Some(&uid.to_string()));
        if let Some(owner) = existing.filter(|folder| folder.uid() != 0 && known(folder.uid())) {
            return Self::Lesser { uid: owner.uid(), gid: owner.gid() };
        }
        let user = ["portico", "nobody"].iter().find_map(|name| listed(&users, name));
        let (uid, gid) = user.unwrap_or((NOBODY, NOBODY));
        Self::Lesser { uid, gid }
    }

    /// Makes a command run as this user, without further groups.
    pub fn apply(self, command: &mut Command) {
        use std::os::unix::process::CommandExt;
        if let Self::Lesser { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
    }

    /// Changes the owner of a file or folder to this user.
    pub fn set_owner(self, path: &Path) -> io::Result<()> {
        match self {
            Self::Ours => Ok(()),
            Self::Lesser { uid, gid } => {
                let now = fs::symlink_metadata(path)?;
                if (now.uid(), now.gid()) == (uid, gid) { Ok(()) } else { lchown(path, Some(uid), Some(gid)) }
            }
        }
    }

    /// Returns the first folder on the way to `path` that this user cannot pass, if any. The path
    /// must be absolute.
    pub fn blocked_at(self, path: &Path) -> Option<PathBuf> {
        let Self::Lesser { uid, gid } = self else { return None };
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut folders: Vec<&Path> = path.ancestors().collect();
        folders.reverse();
        let closed =
            |folder: &&Path| fs::metadata(folder).is_ok_and(|found| found.is_dir() && !passable(&found, uid, gid));
        folders.into_iter().find(closed).map(Path::to_owned)
    }

    /// Returns the user's number, for messages.
    pub fn uid(self) -> u32 {
        match self {
            Self::Ours => rustix::process::geteuid().as_raw(),
            Self::Lesser { uid, .. } => uid,
        }
    }
}

/// Returns the name of the system user that this program runs as, which PostgreSQL gets from the
/// kernel.
pub(super) fn own_name() -> io::Result<String> {
    let uid = rustix::process::geteuid().as_raw();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    if let Some(name) = name_of(&users, uid) {
        return Ok(name);
    }
    // Users of a directory service are not in the file
    let output = Command::new("id").args(["-u", "-n"]).output()?;
    let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() && is_plain(&name) {
        true => Ok(name),
        false => Err(io::Error::new(io::ErrorKind::NotFound, format!("the system knows no name for user {uid}"))),
    }
}

/// Looks up a user's name by number in the text of `/etc/passwd`.
fn name_of(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid) && is_plain(name)).then(|| name.to_owned())
    })
}

/// Checks that a name can be written between quotes into a configuration file and is no pattern.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('/') && !name.contains(|c: char| c == '"' || c.is_control())
}

/// Returns true if a user may pass through a folder.
fn passable(folder: &Metadata, uid: u32, gid: u32) -> bool {
    let bit = match () {
        () if folder.uid() == uid => 0o100,
        () if folder.gid() == gid => 0o010,
        () => 0o001,
    };
    folder.mode() & bit != 0
}

/// Looks up a user in the text of `/etc/passwd`. Never returns root.
fn listed(users: &str, name: &str) -> Option<(u32, u32)> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let uid: u32 = fields.nth(1)?.parse().ok()?;
        let gid: u32 = fields.next()?.parse().ok()?;
        (uid != 0 && gid != 0).then_some((uid, gid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_looked_up_by_name_and_never_root() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\nportico:x:0:0::/:/bin/false\nnobody:x:65534:65533:nobody:/:/bin/false\nbad";
        assert_eq!(listed(users, "nobody"), Some((65534, 65533)));
        assert_eq!(listed(users, "portico"), None, "a second name of root");
        assert_eq!(listed(users, "bad"), None);
        assert_eq!(name_of(users, 0).as_deref(), Some("root"));
        assert_eq!(name_of(users, 7), None);
        assert_eq!(name_of("a\"b:x:7:7::/:/bin/sh", 7), None);
    }
}
