//! What can be wrong with a project folder, told with file, line and key.

use std::fmt;
use std::path::{Path, PathBuf};

/// A place in a text file of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, as it should be shown to a person.
    pub file: PathBuf,
    /// 1-based line, when it is known.
    pub line: Option<usize>,
}

impl Place {
    /// A place that is a whole file.
    pub fn file(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), line: None }
    }

    /// A line of a file.
    pub fn line(file: impl Into<PathBuf>, line: usize) -> Self {
        Self { file: file.into(), line: Some(line) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file.display()),
            None => write!(f, "{}", self.file.display()),
        }
    }
}

/// One thing that is wrong with a configuration value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where the value was written; absent for a value that is missing or comes from the environment.
    pub place: Option<Place>,
    /// The full name of the key, for example `auth.email.otp_length`.
    pub key: String,
    /// What is wrong, in words that name the key.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// Something a person should know about, that does not stop the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What kind of remark this is.
    pub kind: WarningKind,
    /// Where it was noticed.
    pub place: Option<Place>,
    /// The full name of the key concerned; may be empty.
    pub key: String,
    /// The remark in words.
    pub message: String,
}

/// The kinds of [`Warning`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarningKind {
    /// A key that Portico does not know; it has no effect.
    UnknownKey,
    /// An `env(NAME)` whose variable is not set; the key counts as absent.
    UnsetVariable,
    /// A value that is accepted, but not as it was written.
    Adjusted,
    /// Plain information.
    Information,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// Why a project could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// A file or folder could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was attempted, for example `failed to read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The project folder that was named is not there.
    #[error("the project folder {} does not exist: correct --workdir or SUPABASE_WORKDIR", path.display())]
    NoFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A file is larger than such a file can sensibly be.
    #[error("{} is too large: {size} bytes, at most {limit} are read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file that has to be UTF-8 text is not.
    #[error("{} is not valid UTF-8 text", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// An environment file does not follow the dotenv syntax. Never shows the content.
    #[error("failed to parse environment file: {} ({reason})", place.file.display())]
    EnvironmentFile {
        /// File and line.
        place: Place,
        /// One of the fixed texts of the contract.
        reason: String,
    },
    /// The configuration is not TOML.
    #[error("failed to parse config: {place}: {message}")]
    Syntax {
        /// File and line.
        place: Place,
        /// The parser's words.
        message: String,
    },
    /// Values are missing, of a wrong type, or not allowed. All problems of the file at once.
    #[error("failed to parse config:\n{}", lines(.0))]
    Invalid(Vec<Problem>),
    /// `init` would overwrite a file.
    #[error("failed to create config file: {} exists already", path.display())]
    Exists {
        /// The file in the way.
        path: PathBuf,
    },
    /// A name that cannot be used for a file.
    #[error("invalid migration name: {name:?}")]
    InvalidName {
        /// The name as given.
        name: String,
    },
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(|problem| format!("  {problem}")).collect();
    lines.join("\n")
}

/// Reads a text file of at most `limit` bytes. `None`: there is no such file.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<Option<String>, ProjectError> {
    use std::io::Read;

    let failed = |source| ProjectError::Io { action: "failed to read", path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(failed(std::io::Error::from(std::io::ErrorKind::IsADirectory)));
    }
    let too_large = |size| ProjectError::TooLarge { path: path.to_owned(), size, limit };
    if metadata.len() > limit {
        return Err(too_large(metadata.len()));
    }
    // A device or pipe has no size; the reader is bounded as well.
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    let text = String::from_utf8(bytes).map_err(|_| ProjectError::NotText { path: path.to_owned() })?;
    // Editors of some systems begin a file with a byte order mark; it is no content.
    Ok(Some(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    }))
}
