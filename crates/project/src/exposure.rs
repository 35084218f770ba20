//! The decision whether the data API reaches new tables of `public` without an explicit grant.
//!
//! If the key is unset, the age of the project decides, as on the hosted service, which no longer
//! grants by default in projects made since 2026-05-30.

use std::fmt;

use crate::error::ProjectError;
use crate::migrations;
use crate::project::Project;

/// The first day on which new projects were not exposed, as the beginning of a version.
const WITHDRAWN: &str = "20260530";

/// The decision about new tables, and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    /// True if new tables of `postgres` in `public` are granted to the roles of the API.
    pub of_new_tables: bool,
    reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    Setting,
    NoMigration,
    FirstMigration(String),
}

impl Exposure {
    /// Determines the decision for a project.
    ///
    /// # Errors
    /// When the folder of migrations cannot be read.
    pub fn of(project: &Project) -> Result<Self, ProjectError> {
        if let Some(of_new_tables) = project.config().api.auto_expose_new_tables {
            return Ok(Self { of_new_tables, reason: Reason::Setting });
        }
        let first = migrations::list(project)?.migrations.into_iter().next();
        Ok(match first {
            None => Self { of_new_tables: false, reason: Reason::NoMigration },
            // A number that is not a date comes from another naming scheme, older than the change
            Some(first) => Self {
                of_new_tables: first.version.as_str() < WITHDRAWN || first.version.len() < 8,
                reason: Reason::FirstMigration(first.file_name),
            },
        })
    }
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.of_new_tables {
            true => "in the API at once",
            false => "in the API after a GRANT",
        })?;
        match &self.reason {
            Reason::Setting => write!(f, " ([api] auto_expose_new_tables is {})", self.of_new_tables),
            Reason::NoMigration => f.write_str(" (no migration yet; else set [api] auto_expose_new_tables)"),
            Reason::FirstMigration(file) => {
                let age = if self.of_new_tables { "from before" } else { "not from before" };
                write!(f, " ({file} is {age} 2026-05-30; else set [api] auto_expose_new_tables)")
            }
        }
    }
}
