//! The times of subscriptions and of the delivery.

use std::time::Duration;

use super::pauses::PAUSE;

/// The times of subscriptions and of the delivery of changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeliveryTimes {
    /// The length of the first pause of a policy, a condition or a cast that takes too long.
    pub pause: Duration,
    /// The time that one read of rights and rows may take. A slow policy delays all changes.
    pub read: Duration,
    /// The time that a read may wait for the lock of a migration. Less than `read`, so that the
    /// wait differs from a policy that is slow.
    pub lock: Duration,
    /// The shortest pause before an entry is checked again after the database has not answered. The
    /// longest one is twice as long.
    pub retry: Duration,
    /// The time after which no further read for the values of a column begins.
    pub rendering: Duration,
    /// The time that received commits may take until other sessions see them.
    pub visible: Duration,
    /// The time after which it is asked again, for a cohort of readers, what roles may read.
    pub role_answers: Duration,
}

impl Default for DeliveryTimes {
    fn default() -> Self {
        Self {
            pause: PAUSE,
            read: Duration::from_secs(5),
            lock: Duration::from_secs(4),
            retry: Duration::from_secs(5),
            rendering: Duration::from_secs(1),
            visible: Duration::from_secs(10),
            role_answers: Duration::from_secs(1),
        }
    }
}
