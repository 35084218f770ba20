//! Questions at the terminal.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};

use portico_base::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Restores the modes of a terminal when it is dropped.
struct RestoredModes<'a> {
    terminal: &'a File,
    modes: Termios,
}

impl Drop for RestoredModes<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.modes);
    }
}

/// Asks a question at the terminal that is answered with yes or no. Anything else is no.
///
/// # Errors
/// When the process has no terminal.
pub(super) fn confirm(question: &str) -> std::io::Result<bool> {
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
    (&terminal).write_all(format!("{question} [y/N] ").as_bytes())?;
    let mut line = String::new();
    BufReader::new(&terminal).read_line(&mut line)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Asks for a password at the terminal, which does not show it.
///
/// # Errors
/// When the process has no terminal.
pub(super) fn password(label: &str) -> std::io::Result<Secret> {
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
    let modes = tcgetattr(&terminal)?;
    let mut silent = modes.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    // The line break is shown
    silent.local_modes.insert(LocalModes::ECHONL | LocalModes::ICANON);
    (&terminal).write_all(label.as_bytes())?;
    tcsetattr(&terminal, OptionalActions::Flush, &silent)?;
    let _restored = RestoredModes { terminal: &terminal, modes };
    let mut line = String::new();
    BufReader::new(&terminal).read_line(&mut line)?;
    Ok(Secret::new(line.trim_end_matches(['\n', '\r'])))
}
