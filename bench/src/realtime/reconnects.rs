//! The return of all clients at once, as after a server has started again: the official client has
//! no jitter.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::socket::Receiver;
use super::{Bench, IDLE};
use crate::client::PATIENCE;
use crate::report::{Report, percentile};

/// Sockets that were opened, each with one joined channel.
pub(super) struct OpenedSockets {
    pub sockets: Vec<Receiver>,
    /// The reasons why others were not.
    pub refused: Vec<anyhow::Error>,
    pub took: Duration,
    /// The time until each channel was joined, since the first socket was opened, in milliseconds.
    joined_after: Vec<f64>,
}

impl Bench {
    /// Opens [`IDLE`] sockets, `at_once` of them at the same time, and joins a channel with each.
    pub(super) async fn open_sockets(&self, at_once: usize) -> Result<OpenedSockets> {
        let begun = Instant::now();
        let mut opened = OpenedSockets {
            sockets: Vec::with_capacity(IDLE),
            refused: Vec::new(),
            took: Duration::ZERO,
            joined_after: Vec::with_capacity(IDLE),
        };
        let mut opening = JoinSet::new();
        for number in 0..IDLE {
            let (address, url) = (self.subject.address.clone(), self.url());
            opening.spawn(async move {
                let topic = format!("realtime:idle-{number}");
                let socket = timeout(PATIENCE, Receiver::open(&address, &url, &topic, r#"{"config":{}}"#)).await;
                (socket.context("the join was not answered").flatten(), begun.elapsed())
            });
            if opening.len() >= at_once {
                opened.note(opening.join_next().await.context("a socket")??);
            }
        }
        while let Some(socket) = opening.join_next().await {
            opened.note(socket?);
        }
        opened.took = begun.elapsed();
        Ok(opened)
    }

    /// Drops all sockets, and opens them again at the same time.
    pub(super) async fn reconnects(&self, report: &mut Report) -> Result<()> {
        drop(self.open_sockets(256).await?);
        let before = self.subject.watch.read()?;
        let opened = self.open_sockets(IDLE).await?;
        let used = self.subject.watch.read()? - before;
        for error in opened.refused.iter().take(3) {
            println!("refused: {error:#}");
        }
        let what = format!("{IDLE} sockets that reconnect and join at once");
        let rate = opened.sockets.len() as f64 / opened.took.as_secs_f64();
        report.row(
            &what,
            format!("{rate:.0}/s, {} refused", opened.refused.len()),
            "bar: none refused".to_owned(),
            String::new(),
        );
        let time = |percent| format!("{:.0} ms", percentile(opened.joined_after.clone(), percent));
        report.detail(&["Joined after", "p50", "p99", "all"], vec![what.clone(), time(50), time(99), time(100)]);
        let each = |part: f64| format!("{:.0} µs", part * 1e6 / opened.sockets.len().max(1) as f64);
        let parts = vec![what, each(used.server), each(used.postgres), each(used.generator)];
        report.detail(&["Processor time of a reconnect", "Server", "PostgreSQL", "Load generator"], parts);
        Ok(())
    }
}

impl OpenedSockets {
    fn note(&mut self, (socket, after): (Result<Receiver>, Duration)) {
        match socket {
            Ok(socket) => {
                self.sockets.push(socket);
                self.joined_after.push(after.as_secs_f64() * 1000.0);
            }
            Err(error) => self.refused.push(error),
        }
    }
}
