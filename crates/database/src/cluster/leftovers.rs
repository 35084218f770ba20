//! The clean-up after a server that was killed: its PostgreSQL may still be shutting down, or have
//! lost its main process.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::error::ClusterError;

/// The time limit for a left-over PostgreSQL to write its buffers and end.
const PATIENCE: Duration = Duration::from_secs(30);
/// The times until it gets the signal to end at once, and until it is killed, which also works for
/// a stopped process. Both lose nothing: it recovers at the next start.
const POLITENESS: Duration = Duration::from_secs(20);
const FIRMNESS: Duration = Duration::from_secs(25);
const PAUSE: Duration = Duration::from_millis(5);

/// Ends every PostgreSQL that works in `pgdata`, and waits until it is gone. Only after we hold the
/// folder's lock, so that no server of ours misses them.
pub(super) fn end(pgdata: &Path) -> Result<(), ClusterError> {
    // After a clean stop there is no such file, and nothing to search for.
    let pid_file = pgdata.join("postmaster.pid");
    let Ok(contents) = fs::read_to_string(&pid_file) else { return Ok(()) };
    let leader = contents.lines().next().and_then(|line| line.trim().parse().ok()).and_then(Pid::from_raw);
    let start = Instant::now();
    if let Some(leader) = leader.filter(|leader| works_in(*leader, pgdata)) {
        tracing::info!(
            process = leader.as_raw_nonzero().get(),
            "a PostgreSQL that an earlier server left behind is being stopped"
        );
        let _ = kill_process(leader, Signal::INT);
        let mut measures = [(POLITENESS, Signal::QUIT), (FIRMNESS, Signal::KILL)].into_iter().peekable();
        while works_in(leader, pgdata) {
            if start.elapsed() > PATIENCE {
                return Err(ClusterError::LeftBehind {
                    process: leader.as_raw_nonzero().get(),
                    data: pgdata.to_owned(),
                });
            }
            if let Some((_, signal)) = measures.next_if(|(after, _)| start.elapsed() > *after) {
                let _ = kill_process(leader, signal);
            }
            std::thread::sleep(PAUSE);
        }
    }
    end_followers(pgdata)?;
    remove(&pid_file);
    Ok(())
}

/// Removes the file by which PostgreSQL keeps a second one out of the folder. It only looks whether
/// the number in it is a process, which may be another program by now, or a zombie that is never
/// collected (in a container without an init); `/proc` tells them apart. Without `/proc` the file
/// stays.
fn remove(pid_file: &Path) {
    if Path::new("/proc/self/cwd").exists() {
        let _ = fs::remove_file(pid_file);
    }
}

/// Does the same as [`end`] before a restart, but only when the server that died could not clean up
/// behind itself.
pub(super) fn end_followers_of_the_dead(pgdata: &Path) -> Result<(), ClusterError> {
    let pid_file = pgdata.join("postmaster.pid");
    if pid_file.exists() {
        end_followers(pgdata)?;
        remove(&pid_file);
    }
    Ok(())
}

/// Ends the processes of a PostgreSQL whose leader is gone. They end by themselves as soon as they
/// notice; one that is busy notices late, and as long as it holds the shared memory no new leader
/// can start.
fn end_followers(pgdata: &Path) -> Result<(), ClusterError> {
    let start = Instant::now();
    let mut killed = false;
    loop {
        let followers = processes_in(pgdata);
        let Some(first) = followers.first() else { return Ok(()) };
        if start.elapsed() > PATIENCE {
            return Err(ClusterError::LeftBehind { process: first.as_raw_nonzero().get(), data: pgdata.to_owned() });
        }
        if !killed && start.elapsed() > Duration::from_millis(500) {
            // Without the leader their memory is thrown away in any case: nothing that was
            // committed depends on it.
            for process in &followers {
                let _ = kill_process(*process, Signal::KILL);
            }
            killed = true;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns true if a process is one of PostgreSQL with this data folder, which is the current
/// folder of each of them: the number may be another program's by now.
fn works_in(process: Pid, pgdata: &Path) -> bool {
    current_folder(process).is_some_and(|folder| folder == pgdata)
}

fn current_folder(process: Pid) -> Option<PathBuf> {
    let folder = fs::read_link(format!("/proc/{}/cwd", process.as_raw_nonzero())).ok()?;
    // A deleted folder that had our name is another folder.
    (!folder.as_os_str().as_bytes().ends_with(b" (deleted)")).then_some(folder)
}

fn processes_in(pgdata: &Path) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let ours = i32::try_from(std::process::id()).ok();
    numbers
        .filter(|number| Some(*number) != ours)
        .filter_map(Pid::from_raw)
        .filter(|process| works_in(*process, pgdata))
        .collect()
}
