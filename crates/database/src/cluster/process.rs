//! The PostgreSQL process: its start, its end together with this process, and its readiness.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::binaries::Binaries;
use super::configuration;
use super::error::ClusterError;
use super::home::{Home, SOCKET_PORT, SUPERUSER};
use super::settings::ClusterSettings;

/// Starts PostgreSQL. The calling thread must live as long as the server is to: Linux ends the
/// child when *the thread* that made it ends.
pub(super) fn spawn(home: &Home, binaries: &Binaries, settings: &ClusterSettings) -> Result<Child, ClusterError> {
    let program = binaries.program("postgres");
    let mut command = Command::new(&program);
    command.arg("-D").arg(home.pgdata()).args(configuration::arguments(home, settings));
    command.env_clear().env("TZ", "UTC").env("LC_ALL", "C.UTF-8").current_dir(home.folder());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // Ctrl-C in the terminal reaches this process only, which stops PostgreSQL when nothing uses it
    // any more
    command.process_group(0);
    home.account.apply(&mut command);
    end_with_us(&mut command, Signal::INT);
    command.spawn().map_err(|error| ClusterError::not_run(program, home.account, &error))
}

/// Makes the system send the program a signal when this process ends, whatever the reason. `INT`
/// asks PostgreSQL for a fast, clean shutdown.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(super) fn end_with_us(command: &mut Command, signal: Signal) {
    use rustix::process::{getpid, getppid, set_parent_process_death_signal};
    let us = getpid();
    let arrange = move || {
        // Here, after the change of user, which would reset it
        set_parent_process_death_signal(Some(signal))?;
        // We ended before the arrangement stood.
        if getppid() == Some(us) { Ok(()) } else { Err(io::Error::from(ErrorKind::BrokenPipe)) }
    };
    // SAFETY: between fork and exec only calls that are safe in a signal handler are allowed. The
    // closure makes two system calls, takes no lock and allocates nothing.
    unsafe {
        command.pre_exec(arrange);
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn end_with_us(_: &mut Command, _: Signal) {}

/// Returns the socket's file.
pub(super) fn socket(home: &Home, settings: &ClusterSettings) -> PathBuf {
    home.socket_folder().join(format!(".s.PGSQL.{}", settings.tcp_port.unwrap_or(SOCKET_PORT)))
}

/// Returns true if the server accepts sessions. It opens the socket before it has recovered, so a
/// session is tried. Any answer counts except "the database system is starting up" (or shutting
/// down): a missing database is not a fault of the server.
pub(super) fn accepts_sessions(socket: &Path) -> bool {
    const CANNOT_CONNECT_NOW: &[u8] = b"C57P03\0";
    let ask = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(&startup_message())?;
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        if head[0] != b'E' {
            // The session was accepted: terminate it
            stream.write_all(&[b'X', 0, 0, 0, 4])?;
            return Ok(true);
        }
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]).saturating_sub(4);
        let mut error = Vec::new();
        stream.take(length.min(LONGEST_ERROR).into()).read_to_end(&mut error)?;
        Ok::<_, io::Error>(!error.windows(CANNOT_CONNECT_NOW.len()).any(|field| field == CANNOT_CONNECT_NOW))
    };
    ask().unwrap_or(false)
}

/// The number of bytes of an error message that are read.
const LONGEST_ERROR: u32 = 4096;

/// Returns the protocol's first message, for a session of the superuser.
fn startup_message() -> Vec<u8> {
    let mut message = vec![0; 4];
    message.extend(196_608_u32.to_be_bytes());
    for text in ["user", SUPERUSER, "database", "postgres", ""] {
        message.extend(text.as_bytes());
        message.push(0);
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    message[..4].copy_from_slice(&length.to_be_bytes());
    message
}
