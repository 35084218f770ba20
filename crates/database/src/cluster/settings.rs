//! The settings of the embedded cluster.

use std::path::PathBuf;

use super::error::ClusterError;

/// The settings of the embedded cluster.
#[derive(Debug, Clone)]
pub struct ClusterSettings {
    /// The folder of the cluster. It is created if missing, and must contain nothing else.
    pub data: PathBuf,
    /// The folder with PostgreSQL's programs; `None`: they are searched, see
    /// [`Binaries::find`](super::Binaries::find).
    pub binaries: Option<PathBuf>,
    /// A port on the loopback addresses for other programs. `None`: only the socket, which only
    /// this user can open.
    pub tcp_port: Option<u16>,
    /// The data that a crash of the machine may lose.
    pub durability: Durability,
    /// Further settings of PostgreSQL by name, which win over ours (`[db.settings]` of the
    /// project).
    pub parameters: Vec<(String, String)>,
}

impl ClusterSettings {
    /// Returns the default settings of a cluster in `data`.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self { data: data.into(), binaries: None, tcp_port: None, durability: Durability::Full, parameters: Vec::new() }
    }

    /// Checks that names are plain words and values have no line breaks, since they become lines of
    /// a configuration file.
    pub(super) fn check(&self) -> Result<(), ClusterError> {
        for (name, value) in &self.parameters {
            let refused = |problem| Err(ClusterError::Setting { name: name.clone(), problem });
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
            {
                return refused("its name is not a word of letters, digits, `_` and `.`");
            }
            if value.chars().any(char::is_control) {
                return refused("its value contains a control character");
            }
        }
        Ok(())
    }
}

/// The data that a crash of the machine (not of a program) may lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Nothing that was committed.
    #[default]
    Full,
    /// Everything: for tests, whose databases live for seconds.
    Off,
}
