//! The steps of a preparation, for display.

use std::fmt;

/// A function that receives each step as it begins.
pub type ProgressSink<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// A step. `Display` gives the line that Supabase's command line prints on stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A reset begins; with the version at which it stops.
    Resetting {
        /// The last version to apply.
        version: Option<String>,
    },
    /// The database is dropped and created again.
    Recreating,
    /// Roles and schemas are created.
    Initialising,
    /// `supabase/roles.sql` runs.
    SeedingRoles,
    /// Secrets of `[db.vault]` are stored.
    UpdatingVault,
    /// A migration runs.
    ApplyingMigration {
        /// Its file name.
        file_name: String,
    },
    /// A file in the folder is not a migration.
    SkippingMigration {
        /// Its name.
        file_name: String,
    },
    /// A seed file runs.
    Seeding {
        /// Its path from the project root.
        path: String,
    },
    /// A seed file that ran before has changed; only its hash is stored.
    UpdatingSeedHash {
        /// Its path from the project root.
        path: String,
    },
    /// A remark that stops nothing.
    Warning {
        /// The text.
        message: String,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resetting { version: None } => f.write_str("Resetting local database..."),
            Self::Resetting { version: Some(version) } => {
                write!(f, "Resetting local database to version: {version}")
            }
            Self::Recreating => f.write_str("Recreating database..."),
            Self::Initialising => f.write_str("Initialising schema..."),
            Self::SeedingRoles => f.write_str("Seeding globals from roles.sql..."),
            Self::UpdatingVault => f.write_str("Updating vault secrets..."),
            Self::ApplyingMigration { file_name } => write!(f, "Applying migration {file_name}..."),
            Self::SkippingMigration { file_name } => {
                write!(f, "Skipping migration {file_name}... (file name must match pattern \"<timestamp>_name.sql\")")
            }
            Self::Seeding { path } => write!(f, "Seeding data from {path}..."),
            Self::UpdatingSeedHash { path } => write!(f, "Updating seed hash to {path}..."),
            Self::Warning { message } => write!(f, "WARN: {message}"),
        }
    }
}
