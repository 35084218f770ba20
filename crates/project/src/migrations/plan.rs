//! Determines the migrations to apply from those that are applied.

use std::collections::HashSet;

use super::files::Migration;

/// The options of a plan.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// True if files before the newest applied one are applied too.
    pub include_all: bool,
    /// True if applied versions without a file are ignored.
    pub allow_missing: bool,
    /// The last version to apply.
    pub up_to: Option<String>,
    /// The number of files to leave out at the end.
    pub leave_out_last: usize,
}

/// The reasons for which files and history do not match.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The database has migrations that the folder does not have.
    #[error(
        "Remote migration versions not found in local migrations directory.\n\nThe database has migrations whose files are not \
         here, as after switching to another branch. Bring the files back, or take the versions out of the history; their tables \
         and data stay:\n  portico migration repair --status reverted {}\n",
        .0.join(" ")
    )]
    MissingLocally(Vec<String>),
    /// Files would have to run before others that have run already.
    #[error(
        "Found local migration files to be inserted before the last migration on remote database.\n\nApply \
         these migrations with `portico migration up --include-all`:\n{}",
        .0.join("\n")
    )]
    OutOfOrder(Vec<String>),
    /// Two files have the same version.
    #[error("{first} and {second} have the same version {version}; versions have to be unique")]
    Duplicate {
        /// The version.
        version: String,
        /// A file.
        first: String,
        /// Another file.
        second: String,
    },
    /// The last version to apply has no file.
    #[error("glob supabase/migrations/{0}_*.sql: file does not exist")]
    UnknownVersion(String),
    /// More files are to be left out than there are.
    #[error("--last must be smaller than total applied migrations: {0}")]
    TooManyLeftOut(usize),
}

/// Returns the files to apply now, in their order.
///
/// `applied` contains the versions of the history, in any order.
///
/// # Errors
/// When files and history do not match.
pub fn plan<'m>(
    files: &'m [Migration],
    applied: &[String],
    options: &PlanOptions,
) -> Result<Vec<&'m Migration>, PlanError> {
    check_duplicates(files)?;
    let wanted = wanted(files, options)?;
    let applied: HashSet<&str> = applied.iter().map(String::as_str).collect();
    let local: HashSet<&str> = files.iter().map(|file| file.version.as_str()).collect();
    let mut missing: Vec<String> =
        applied.iter().filter(|version| !local.contains(*version)).map(|version| (*version).to_owned()).collect();
    if !missing.is_empty() && !options.allow_missing {
        missing.sort_unstable();
        return Err(PlanError::MissingLocally(missing));
    }
    let is_applied = |file: &Migration| applied.contains(file.version.as_str());
    // By position, not by comparing versions: files run in the order of their names
    let newest = wanted.iter().rposition(is_applied).map_or(0, |index| index + 1);
    let early: Vec<String> =
        wanted[..newest].iter().filter(|file| !is_applied(file)).map(|file| file.shown.display().to_string()).collect();
    if !early.is_empty() && !options.include_all {
        return Err(PlanError::OutOfOrder(early));
    }
    Ok(wanted.iter().filter(|file| !is_applied(file)).collect())
}

fn check_duplicates(files: &[Migration]) -> Result<(), PlanError> {
    let mut by_version: Vec<&Migration> = files.iter().collect();
    by_version.sort_by(|left, right| left.version.cmp(&right.version));
    match by_version.windows(2).find(|pair| pair[0].version == pair[1].version) {
        None => Ok(()),
        Some(pair) => Err(PlanError::Duplicate {
            version: pair[0].version.clone(),
            first: pair[0].file_name.clone(),
            second: pair[1].file_name.clone(),
        }),
    }
}

fn wanted<'m>(files: &'m [Migration], options: &PlanOptions) -> Result<&'m [Migration], PlanError> {
    let end = match &options.up_to {
        None => files.len(),
        Some(version) => {
            let position = files.iter().position(|file| file.version == *version);
            position.ok_or_else(|| PlanError::UnknownVersion(version.clone()))? + 1
        }
    };
    match end.checked_sub(options.leave_out_last) {
        Some(end) if end > 0 || options.leave_out_last == 0 => Ok(&files[..end]),
        _ => Err(PlanError::TooManyLeftOut(end)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn files(names: &[&str]) -> Vec<Migration> {
        let file = |name: &&str| Migration {
            version: (*name).to_owned(),
            name: "x".to_owned(),
            file_name: format!("{name}_x.sql"),
            path: PathBuf::new(),
            shown: PathBuf::from(format!("{name}_x.sql")),
        };
        names.iter().map(file).collect()
    }

    fn planned(local: &[&str], applied: &[&str], options: &PlanOptions) -> Result<Vec<String>, PlanError> {
        let applied: Vec<String> = applied.iter().map(|version| (*version).to_owned()).collect();
        let files = files(local);
        plan(&files, &applied, options).map(|files| files.into_iter().map(|file| file.version.clone()).collect())
    }

    #[test]
    fn files_behind_the_applied_ones_are_pending() {
        let plain = PlanOptions::default();
        assert_eq!(planned(&["1", "2", "3"], &["1"], &plain), Ok(vec!["2".into(), "3".into()]));
        assert_eq!(planned(&["1", "2"], &["2", "1"], &plain), Ok(vec![]));
        // Unpadded numbers: the tail is found by position, though "10" sorts before "2"
        assert_eq!(planned(&["10", "1", "2"], &["10", "1"], &plain), Ok(vec!["2".into()]));
    }

    #[test]
    fn a_mismatch_is_rejected_unless_it_is_allowed() {
        let plain = PlanOptions::default();
        assert_eq!(planned(&["1"], &["1", "2"], &plain), Err(PlanError::MissingLocally(vec!["2".into()])));
        assert_eq!(planned(&["1", "2"], &["2"], &plain), Err(PlanError::OutOfOrder(vec!["1_x.sql".into()])));
        let all = PlanOptions { include_all: true, allow_missing: true, ..PlanOptions::default() };
        assert_eq!(planned(&["1", "2"], &["2", "9"], &all), Ok(vec!["1".into()]));
        assert!(matches!(planned(&["1", "1"], &[], &plain), Err(PlanError::Duplicate { .. })));
    }

    #[test]
    fn a_plan_can_stop_early() {
        let up_to = |version: &str| PlanOptions { up_to: Some(version.to_owned()), ..PlanOptions::default() };
        assert_eq!(planned(&["1", "2", "3"], &[], &up_to("2")), Ok(vec!["1".into(), "2".into()]));
        assert_eq!(planned(&["1"], &[], &up_to("7")), Err(PlanError::UnknownVersion("7".into())));
        let last = |count| PlanOptions { leave_out_last: count, ..PlanOptions::default() };
        assert_eq!(planned(&["1", "2", "3"], &[], &last(2)), Ok(vec!["1".into()]));
        assert_eq!(planned(&["1", "2"], &[], &last(2)), Err(PlanError::TooManyLeftOut(2)));
    }
}
