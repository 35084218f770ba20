//! The errors and warnings of a project folder, with file, line and key.

use std::fmt;
use std::path::{Path, PathBuf};

/// A position in a text file of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePosition {
    /// The path of the file for display.
    pub file: PathBuf,
    /// The 1-based line, if known.
    pub line: Option<usize>,
}

impl SourcePosition {
    /// Returns the position of a whole file.
    pub fn file(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), line: None }
    }

    /// Returns the position of a line.
    pub fn line(file: impl Into<PathBuf>, line: usize) -> Self {
        Self { file: file.into(), line: Some(line) }
    }
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file.display()),
            None => write!(f, "{}", self.file.display()),
        }
    }
}

/// A problem with a configuration value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The position of the value; absent for a value that is missing or comes from the environment.
    pub position: Option<SourcePosition>,
    /// The full name of the key, for example `auth.email.otp_length`.
    pub key: String,
    /// The problem, in words that name the key.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = &self.position {
            write!(f, "{position}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// A remark for the user that does not stop the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The kind of remark.
    pub kind: WarningKind,
    /// The position that it is about.
    pub position: Option<SourcePosition>,
    /// The full name of the key concerned; may be empty.
    pub key: String,
    /// The text.
    pub message: String,
}

/// The kinds of [`Warning`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarningKind {
    /// An unknown key, which has no effect.
    UnknownKey,
    /// An `env(NAME)` whose variable is not set; the key counts as absent.
    UnsetVariable,
    /// A value that is accepted in a form other than written.
    Adjusted,
    /// Plain information.
    Information,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = &self.position {
            write!(f, "{position}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// The reasons for which a project cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// A file or folder could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// The attempted operation, for example `failed to read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The named project folder does not exist.
    #[error("the project folder {} does not exist: correct --workdir or SUPABASE_WORKDIR", path.display())]
    NoFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A file is larger than its limit.
    #[error("{} is too large: {size} bytes, at most {limit} are read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file is not UTF-8 text.
    #[error("{} is not valid UTF-8 text", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// An environment file does not follow the dotenv syntax. The content is never shown.
    #[error("failed to parse environment file: {} ({reason})", position.file.display())]
    EnvironmentFile {
        /// File and line.
        position: SourcePosition,
        /// One of the fixed texts of the syntax.
        reason: String,
    },
    /// The configuration is not TOML.
    #[error("failed to parse config: {position}: {message}")]
    Syntax {
        /// File and line.
        position: SourcePosition,
        /// The message of the parser.
        message: String,
    },
    /// Values are missing, have a wrong type, or are not allowed. Contains all problems of the
    /// file.
    #[error("failed to parse config:\n{}", lines(.0))]
    Invalid(Vec<Problem>),
    /// `init` would overwrite a file.
    #[error("failed to create config file: {} exists already", path.display())]
    Exists {
        /// The existing file.
        path: PathBuf,
    },
    /// A name that cannot be part of a file name.
    #[error("invalid migration name: {name:?}")]
    InvalidName {
        /// The name.
        name: String,
    },
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(|problem| format!("  {problem}")).collect();
    lines.join("\n")
}

/// Reads a text file of at most `limit` bytes. `None`: the file does not exist.
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
    // A device or pipe has no size, so the reader is bounded as well
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    let text = String::from_utf8(bytes).map_err(|_| ProjectError::NotText { path: path.to_owned() })?;
    // Some editors begin a file with a byte order mark, which is not content
    Ok(Some(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    }))
}
