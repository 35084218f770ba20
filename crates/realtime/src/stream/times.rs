//! The times of the stream.

use std::time::Duration;

/// The times of the stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamTimes {
    /// The time that the stream runs on without any use.
    pub idle: Duration,
    /// The time between two looks at the publications that exist.
    pub publications: Duration,
    /// The time between two looks at the slot.
    pub slot: Duration,
    /// The time that a received commit may take until other sessions see it, when the stream has to
    /// read a table.
    pub visible: Duration,
    /// The time after which a silent connection is lost.
    pub silence: Duration,
}

impl Default for StreamTimes {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(11 * 60),
            publications: Duration::from_secs(60),
            slot: Duration::from_secs(5 * 60),
            visible: Duration::from_secs(10),
            silence: Duration::from_secs(60),
        }
    }
}
