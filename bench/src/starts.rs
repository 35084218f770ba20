//! Measures starts, and the memory of an idle server.

use anyhow::Result;

use crate::report::{Report, median};
use crate::server::{Server, folder};

const PORT: u16 = 55_321;
const ROUNDS: usize = 7;

/// Measures the first start, warm starts and idle memory.
pub async fn measure(report: &mut Report) -> Result<()> {
    let mut first = Vec::new();
    for _ in 0..3 {
        let folder = folder(PORT, "")?;
        let server = Server::start(folder.path(), PORT).await?;
        first.push(server.first_answer.as_secs_f64());
        server.stop(folder.path()).await?;
    }
    report.row("First start ever to first answer", format!("{:.2} s", median(first)), "bar: 3 s".into(), String::new());

    let folder = folder(PORT, "")?;
    Server::start(folder.path(), PORT).await?.stop(folder.path()).await?;
    let mut warm = Vec::new();
    let mut resident = Vec::new();
    for _ in 0..ROUNDS {
        let server = Server::start(folder.path(), PORT).await?;
        warm.push(server.first_answer.as_secs_f64());
        resident.push(server.resident()? as f64);
        server.stop(folder.path()).await?;
    }
    report.row(
        "Warm start to first answer",
        format!("{:.0} ms", median(warm) * 1e3),
        "bar: 400 ms".into(),
        String::new(),
    );
    let mib = median(resident) / 1024.0 / 1024.0;
    report.row("Resident memory, idle", format!("{mib:.1} MiB"), "bar: 40 MiB".into(), String::new());
    Ok(())
}
