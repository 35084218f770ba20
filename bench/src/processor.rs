//! The processor time of a measurement, from `/proc`.

use std::ops::{AddAssign, Sub};

use anyhow::{Context, Result};

/// The unit of `/proc`: hundredths of a second on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// The processes to observe.
#[derive(Clone, Copy)]
pub struct Watch {
    /// The server's process.
    pub server: u32,
    /// PostgreSQL's first process; its children count, including those that ended.
    pub postgres: u32,
}

/// Seconds of processor time.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    /// The server.
    pub server: f64,
    /// PostgreSQL with all its processes.
    pub postgres: f64,
    /// This program, which generates the load.
    pub generator: f64,
}

impl Watch {
    /// Returns the time that was used so far.
    pub fn read(self) -> Result<Usage> {
        let mut postgres = times(self.postgres)?.of_family();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
                // Other processes start and end
                && let Ok(times) = times(pid)
                && times.parent == self.postgres
            {
                postgres += times.of_family();
            }
        }
        Ok(Usage { server: times(self.server)?.own, postgres, generator: times(std::process::id())?.own })
    }
}

struct Times {
    parent: u32,
    own: f64,
    of_ended_children: f64,
}

impl Times {
    fn of_family(&self) -> f64 {
        self.own + self.of_ended_children
    }
}

fn times(pid: u32) -> Result<Times> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program is in parentheses and may contain anything
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |at: usize| fields.get(at).context("a field of /proc/<pid>/stat");
    let seconds = |at: usize| anyhow::Ok(field(at)?.parse::<f64>()? / TICKS_PER_SECOND);
    Ok(Times {
        parent: field(1)?.parse()?,
        own: seconds(11)? + seconds(12)?,
        of_ended_children: seconds(13)? + seconds(14)?,
    })
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            server: self.server - earlier.server,
            postgres: self.postgres - earlier.postgres,
            generator: self.generator - earlier.generator,
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.server += more.server;
        self.postgres += more.postgres;
        self.generator += more.generator;
    }
}
