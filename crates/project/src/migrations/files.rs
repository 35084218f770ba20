//! The files of `supabase/migrations`.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::error::ProjectError;
use crate::project::Project;

/// A migration file that has not been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The digits before the first underscore. Compared as text.
    pub version: String,
    /// The rest of the name, without `.sql`.
    pub name: String,
    /// The whole file name.
    pub file_name: String,
    /// The path of the file.
    pub path: PathBuf,
    /// The path from the project root, for messages.
    pub shown: PathBuf,
}

/// The migrations of a project in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The migrations, in the byte order of their file names.
    pub migrations: Vec<Migration>,
    /// Names of files that are not migrations.
    pub skipped: Vec<String>,
    /// Warnings about names.
    pub remark: Option<String>,
}

/// Returns the migration files of a project. Without a folder there are none.
///
/// # Errors
/// When the folder cannot be read.
pub fn list(project: &Project) -> Result<Listing, ProjectError> {
    let shown = PathBuf::from("supabase/migrations");
    let folder = project.root().join(&shown);
    let failed = |source| ProjectError::Io { action: "failed to read", path: folder.clone(), source };
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Listing::default()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        // A link to a file counts as a file; a name that is not text cannot match
        if entry.path().is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort_unstable();

    let mut listing = Listing::default();
    for (index, file_name) in names.into_iter().enumerate() {
        match parse_name(&file_name) {
            Some((version, _)) if index == 0 && is_relic(version, &file_name) => listing.skipped.push(file_name),
            Some((version, name)) => listing.migrations.push(Migration {
                version: version.to_owned(),
                name: name.to_owned(),
                path: folder.join(&file_name),
                shown: shown.join(&file_name),
                file_name,
            }),
            None => listing.skipped.push(file_name),
        }
    }
    listing.remark = mixed_widths(&listing.migrations);
    Ok(listing)
}

/// Parses `<digits>_<name>.sql`.
fn parse_name(file_name: &str) -> Option<(&str, &str)> {
    let (version, name) = file_name.strip_suffix(".sql")?.split_once('_')?;
    let is_version = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    is_version.then_some((version, name))
}

/// Returns true for a first file from before 2021-12-09 with the name `init`, which Supabase's
/// command line skips.
fn is_relic(version: &str, file_name: &str) -> bool {
    version.len() == 14 && version < "20211209000000" && file_name.ends_with("_init.sql") && file_name.len() == 23
}

/// Warns if text order and number order differ, because versions have different widths: `10_b` runs
/// before `1_a`.
fn mixed_widths(migrations: &[Migration]) -> Option<String> {
    let is_out_of_order = |pair: &[Migration]| {
        let [left, right] = pair else { return false };
        let (left, right) = (left.version.trim_start_matches('0'), right.version.trim_start_matches('0'));
        (left.len(), left) > (right.len(), right)
    };
    migrations.windows(2).find(|pair| is_out_of_order(pair)).map(|pair| {
        format!(
            "migrations run in the order of their file names: {} comes before {}; give all versions the same number of digits",
            pair[0].file_name, pair[1].file_name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_is_version_and_name() {
        assert_eq!(parse_name("20260102030405_add_orders.sql"), Some(("20260102030405", "add_orders")));
        assert_eq!(parse_name("0001_.sql"), Some(("0001", "")));
        for other in ["readme.md", "_x.sql", "1.sql", "1a_x.sql", "1_x.sql.bak", "１_x.sql", ""] {
            assert_eq!(parse_name(other), None, "{other:?}");
        }
    }

    #[test]
    fn only_the_old_initial_file_is_a_relic() {
        assert!(is_relic("20210101000000", "20210101000000_init.sql"));
        assert!(!is_relic("20211209000000", "20211209000000_init.sql"));
        assert!(!is_relic("20210101000000", "20210101000000_my_init.sql"));
        assert!(!is_relic("1", "1_init.sql"));
    }
}
