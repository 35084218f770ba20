//! The variables of a project: those of the process, then those of its `.env` files.
//!
//! A variable that is set is never overwritten, so the process takes precedence over files, and the
//! file nearest to `supabase/` over those further up.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::dotenv;
use crate::error::{ProjectError, read_text};

/// The largest environment file, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// Variables by name. `Debug` shows names only: values are often secrets.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// Returns the variables of this process. Those that are not text are left out.
    pub fn of_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    /// Returns the value of a variable. An empty one counts as unset, as everywhere in the format.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the variables whose name begins with `prefix`.
    pub fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.variables
            .range(prefix.to_owned()..)
            .take_while(move |(name, _)| name.starts_with(prefix))
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Adds a variable unless it is set.
    fn add(&mut self, name: String, value: String) {
        self.variables.entry(name).or_insert(value);
    }

    /// Adds the variables of the project's environment files, nearest folder first. `stage` selects
    /// `.env.<stage>`, unless `SUPABASE_ENV` names another.
    ///
    /// # Errors
    /// When a file cannot be read or parsed. The text never contains the file's content.
    pub fn load_files(&mut self, root: &Path, stage: &str) -> Result<(), ProjectError> {
        let stage = self.get("SUPABASE_ENV").unwrap_or(stage).to_owned();
        // The stage becomes part of a file name; a separator would lead out of the folder
        let is_plain = !stage.contains(['/', '\\']);
        for folder in [root.join("supabase"), root.to_owned()] {
            let mut names = Vec::new();
            if is_plain {
                names.push(format!(".env.{stage}.local"));
            }
            if stage != "test" {
                names.push(".env.local".to_owned());
            }
            if is_plain {
                names.push(format!(".env.{stage}"));
            }
            names.push(".env".to_owned());
            for name in names {
                self.load_file(&folder.join(name))?;
            }
        }
        Ok(())
    }

    /// Adds the variables of one file. A missing file has none.
    ///
    /// # Errors
    /// When the file cannot be read or parsed.
    pub fn load_file(&mut self, path: &Path) -> Result<(), ProjectError> {
        let Some(text) = read_text(path, MAX_FILE)? else {
            return Ok(());
        };
        let parsed =
            dotenv::parse(&text, |name| self.get(name).map(str::to_owned)).map_err(|error| error.in_file(path))?;
        for (name, value) in parsed {
            self.add(name, value);
        }
        Ok(())
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self { variables: variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}
