//! The first start: a new, empty cluster.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;

use super::binaries::Binaries;
use super::error::ClusterError;
use super::home::{Home, SUPERUSER};
use super::process::end_with_us;
use super::settings::Durability;

/// A new cluster and its first log of changes take some 60 MiB; less than this would end soon.
const LEAST_SPACE: u64 = 160 << 20;

/// Initialises the cluster unless it exists. An existing one must have the programs' major version.
///
/// It is created under another name and renamed once complete, so that an interrupted attempt
/// leaves no cluster.
pub(super) fn initialise(home: &Home, binaries: &Binaries, durability: Durability) -> Result<(), ClusterError> {
    let (pgdata, new) = (home.pgdata(), home.folder().join("pgdata.new"));
    match fs::read_to_string(pgdata.join("PG_VERSION")) {
        Ok(version) => return check_version(home, version.trim(), binaries),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(ClusterError::folder(&pgdata, &error)),
        Err(_) => {}
    }
    if pgdata.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(ClusterError::Folder {
            folder: pgdata,
            problem: "it is not empty, and not a PostgreSQL data folder either".into(),
            remedy: "Move it away, or choose another data folder".into(),
        });
    }
    let failed = |error: io::Error| ClusterError::folder(home.folder(), &error);
    if let Ok(disk) = rustix::fs::statvfs(home.folder()) {
        let available = disk.f_bavail.saturating_mul(disk.f_frsize);
        if available < LEAST_SPACE {
            return Err(ClusterError::NoSpace { folder: home.folder().to_owned(), available: Some(available) });
        }
    }
    if new.exists() {
        fs::remove_dir_all(&new).map_err(failed)?;
    }
    // The ICU root collation orders text the same on every machine; PostgreSQL built without ICU
    // falls back to C.
    let mut output = initdb(home, binaries, &new, true)?;
    if !output.status.success()
        && mentions(
            &output,
            &["ICU is not supported", "unrecognized option", "could not load locale", "invalid locale"],
        )
    {
        let _ = fs::remove_dir_all(&new);
        output = initdb(home, binaries, &new, false)?;
    }
    if !output.status.success() {
        let _ = fs::remove_dir_all(&new);
        if mentions(&output, &["No space left on device", "Disk quota exceeded"]) {
            return Err(ClusterError::NoSpace { folder: home.folder().to_owned(), available: None });
        }
        return Err(ClusterError::InitialiseFailed { output: text(&output) });
    }
    if durability == Durability::Full {
        sync(&new).map_err(failed)?;
    }
    let _ = fs::remove_dir(&pgdata);
    fs::rename(&new, &pgdata).map_err(failed)?;
    if durability == Durability::Full {
        File::open(home.folder()).and_then(|folder| folder.sync_all()).map_err(failed)?;
    }
    Ok(())
}

fn check_version(home: &Home, found: &str, binaries: &Binaries) -> Result<(), ClusterError> {
    if found == binaries.major().to_string() {
        return Ok(());
    }
    Err(ClusterError::OtherMajorVersion {
        data: home.folder().to_owned(),
        found: found.to_owned(),
        ours: binaries.major(),
    })
}

fn initdb(home: &Home, binaries: &Binaries, pgdata: &Path, icu: bool) -> Result<Output, ClusterError> {
    let program = binaries.program("initdb");
    let mut command = Command::new(&program);
    command
        .arg("--pgdata")
        .arg(pgdata)
        .args(["--username", SUPERUSER, "--encoding", "UTF8", "--data-checksums", "--no-sync", "--no-instructions"])
        .args(["--auth-local", "peer", "--auth-host", "scram-sha-256"]);
    match icu {
        true => command.args(["--locale", "C.UTF-8", "--locale-provider", "icu", "--icu-locale", "und"]),
        false => command.args(["--locale", "C"]),
    };
    // A given time zone saves the search for the machine's. PostgreSQL gets nothing of our
    // environment
    command.env_clear().env("TZ", "UTC").env("LC_ALL", "C.UTF-8").current_dir(home.folder()).stdin(Stdio::null());
    home.account.apply(&mut command);
    end_with_us(&mut command, Signal::KILL);
    command.output().map_err(|error| ClusterError::not_run(program, home.account, &error))
}

/// Flushes everything to the disk, at once where the system supports that, otherwise file by file.
fn sync(folder: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        rustix::fs::syncfs(File::open(folder)?)?;
        Ok(())
    }
    #[cfg(not(target_os = "linux"))]
    {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() { sync(&path)? } else { File::open(&path)?.sync_all()? }
        }
        File::open(folder)?.sync_all()
    }
}

fn mentions(output: &Output, words: &[&str]) -> bool {
    let text = text(output);
    words.iter().any(|word| text.contains(word))
}

fn text(output: &Output) -> String {
    let text = [&*String::from_utf8_lossy(&output.stdout), &*String::from_utf8_lossy(&output.stderr)].concat();
    text.trim().to_owned()
}
