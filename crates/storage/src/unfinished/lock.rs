//! One request at a time for each resumable upload, where a newer one takes over.
//!
//! A client whose connection was lost resumes on another one, while the server still waits for
//! bytes on the first. So the request that holds an upload stops receiving as soon as a newer one
//! asks for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, watch};
use uuid::Uuid;

/// The uploads that requests work on.
#[derive(Debug, Clone, Default)]
pub(crate) struct UploadLocks(Arc<Mutex<HashMap<Uuid, Weak<LockSlot>>>>);

/// The lock of one upload.
#[derive(Debug)]
struct LockSlot {
    /// Held by the request that works on the upload.
    mutex: Arc<AsyncMutex<()>>,
    /// The number of the newest request.
    newest: watch::Sender<u64>,
}

/// The use of a slot, which is removed with its last use.
#[derive(Debug)]
struct SlotUse {
    locks: UploadLocks,
    version: Uuid,
    /// `None` only while it is dropped.
    slot: Option<Arc<LockSlot>>,
}

/// The right to work on an upload.
#[derive(Debug)]
pub(crate) struct UploadLock {
    number: u64,
    newest: watch::Receiver<u64>,
    /// Released before the slot.
    _guard: OwnedMutexGuard<()>,
    _slot: SlotUse,
}

impl UploadLocks {
    fn slots(&self) -> MutexGuard<'_, HashMap<Uuid, Weak<LockSlot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, version: Uuid) -> (SlotUse, Arc<LockSlot>) {
        let mut slots = self.slots();
        let known = slots.get(&version).and_then(Weak::upgrade);
        let slot = known.unwrap_or_else(|| {
            let slot = Arc::new(LockSlot { mutex: Arc::default(), newest: watch::Sender::new(0) });
            slots.insert(version, Arc::downgrade(&slot));
            slot
        });
        (SlotUse { locks: self.clone(), version, slot: Some(Arc::clone(&slot)) }, slot)
    }

    /// Asks the request that holds the upload to stop, and waits for it. Returns `None` if it does
    /// not in time.
    pub async fn take_over(&self, version: Uuid, patience: Duration) -> Option<UploadLock> {
        let (used, slot) = self.slot(version);
        let mut number = 0;
        slot.newest.send_modify(|newest| {
            *newest += 1;
            number = *newest;
        });
        let newest = slot.newest.subscribe();
        let locked = Arc::clone(&slot.mutex).lock_owned();
        drop(slot);
        let guard = tokio::time::timeout(patience, locked).await.ok()?;
        Some(UploadLock { number, newest, _guard: guard, _slot: used })
    }

    /// Returns the lock if no request holds it.
    pub fn try_acquire(&self, version: Uuid) -> Option<UploadLock> {
        let (used, slot) = self.slot(version);
        let guard = Arc::clone(&slot.mutex).try_lock_owned().ok()?;
        let newest = slot.newest.subscribe();
        let number = *newest.borrow();
        Some(UploadLock { number, newest, _guard: guard, _slot: used })
    }
}

impl UploadLock {
    /// Waits until a newer request asks for the upload.
    pub async fn taken_over(&mut self) {
        let number = self.number;
        if self.newest.wait_for(|newest| *newest > number).await.is_err() {
            // The slot lives as long as this
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for SlotUse {
    fn drop(&mut self) {
        let mut slots = self.locks.slots();
        self.slot = None;
        if slots.get(&self.version).is_some_and(|slot| slot.strong_count() == 0) {
            slots.remove(&self.version);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_newer_request_takes_over_and_the_newest_wins() {
        let (locks, version) = (UploadLocks::default(), Uuid::from_u128(1));
        let mut first = locks.take_over(version, PATIENCE).await.unwrap();
        assert!(first.taken_over().now_or_never().is_none());
        let second = locks.take_over(version, PATIENCE);
        let third = async {
            // The second request waits already
            tokio::task::yield_now().await;
            locks.take_over(version, PATIENCE).await
        };
        let release = async {
            first.taken_over().await;
            tokio::task::yield_now().await;
            drop(first);
        };
        let second = async {
            let mut second = second.await.unwrap();
            second.taken_over().await;
        };
        let (third, (), ()) = tokio::join!(third, second, release);
        let mut third = third.unwrap();
        assert!(third.taken_over().now_or_never().is_none());
        assert!(locks.try_acquire(version).is_none());
        drop(third);
        assert!(locks.try_acquire(version).is_some());
        assert_eq!(locks.slots().len(), 0, "nothing is kept of uploads that no request works on");
    }

    #[tokio::test]
    async fn a_request_that_does_not_let_go_is_waited_for_in_vain() {
        let (locks, version) = (UploadLocks::default(), Uuid::from_u128(1));
        let held = locks.take_over(version, PATIENCE).await.unwrap();
        assert!(locks.take_over(version, Duration::from_millis(1)).await.is_none());
        assert!(locks.take_over(Uuid::from_u128(2), PATIENCE).await.is_some(), "another upload is free");
        drop(held);
        assert_eq!(locks.slots().len(), 0);
    }
}
