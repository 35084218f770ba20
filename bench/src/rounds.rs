//! Runs subject and limit in turns.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use crate::client::Done;
use crate::processor::{Usage, Watch};
use crate::report::{Report, median};

/// The rounds of each comparison.
const ROUNDS: usize = 5;
const PROCESSOR: &[&str] = &[
    "Processor time per call",
    "Server",
    "PostgreSQL",
    "Load generator",
    "PostgreSQL under pgbench",
    "Share of server / PostgreSQL / generator",
];

/// The result of a comparison: medians of the rounds.
pub struct Compared {
    subject: f64,
    limit: f64,
    ratio: f64,
    calls: u64,
    usage: Usage,
    limit_calls: u64,
    limit_usage: Usage,
}

static PRACTICE: AtomicBool = AtomicBool::new(false);

/// Makes all further comparisons run the subject once, and nothing else.
pub fn only_practise() {
    PRACTICE.store(true, Ordering::Relaxed);
}

/// Returns true if nothing is compared.
pub fn practises() -> bool {
    PRACTICE.load(Ordering::Relaxed)
}

/// Runs both once to warm them up, and then in turns.
pub async fn compare(
    watch: Watch,
    mut subject: impl AsyncFnMut() -> Result<Done>,
    mut limit: impl AsyncFnMut() -> Result<Done>,
) -> Result<Compared> {
    let warm = subject().await?;
    if practises() {
        let (calls, usage) = (warm.calls, Usage::default());
        return Ok(Compared {
            subject: warm.per_second,
            limit: 0.0,
            ratio: 0.0,
            calls,
            usage,
            limit_calls: 0,
            limit_usage: usage,
        });
    }
    limit().await?;
    let (mut subjects, mut limits, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut calls, mut usage) = (0, Usage::default());
    let (mut limit_calls, mut limit_usage) = (0, Usage::default());
    for _ in 0..ROUNDS {
        let before = watch.read()?;
        let own = subject().await?;
        let between = watch.read()?;
        let best = limit().await?;
        let after = watch.read()?;
        usage += between - before;
        limit_usage += after - between;
        calls += own.calls;
        limit_calls += best.calls;
        subjects.push(own.per_second);
        limits.push(best.per_second);
        ratios.push(own.per_second / best.per_second);
    }
    Ok(Compared {
        subject: median(subjects),
        limit: median(limits),
        ratio: median(ratios),
        calls,
        usage,
        limit_calls,
        limit_usage,
    })
}

/// Returns a rate with about three digits.
fn rate(per_second: f64) -> String {
    if per_second < 100.0 { format!("{per_second:.1}/s") } else { format!("{per_second:.0}/s") }
}

impl Compared {
    /// Adds the rates to the report.
    pub fn rates(&self, report: &mut Report, what: &str, limit: &str, bar: &str) {
        let bar = if bar.is_empty() { String::new() } else { format!(" (bar: {bar})") };
        report.row(
            what,
            rate(self.subject),
            format!("{limit}: {}", rate(self.limit)),
            format!("{:.2}{bar}", self.ratio),
        );
    }

    /// Adds the processor times to the report.
    pub fn processor(&self, report: &mut Report, what: &str) {
        let each = |seconds: f64, calls: u64| format!("{:.0} µs", seconds * 1e6 / calls.max(1) as f64);
        let Usage { server, postgres, generator } = self.usage;
        let share = |part: f64| format!("{:.0} %", part * 100.0 / (server + postgres + generator));
        report.detail(
            PROCESSOR,
            vec![
                what.to_owned(),
                each(server, self.calls),
                each(postgres, self.calls),
                each(generator, self.calls),
                each(self.limit_usage.postgres, self.limit_calls),
                format!("{} / {} / {}", share(server), share(postgres), share(generator)),
            ],
        );
    }
}
