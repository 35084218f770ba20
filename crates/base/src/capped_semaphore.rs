//! Permits that many callers share, of which no single caller can take all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A semaphore of which each caller can hold at most half (rounded up), so that one caller never
/// makes all others wait. Callers are named by any text that tells them apart.
#[derive(Debug, Clone)]
pub struct CappedSemaphore {
    all: Arc<Semaphore>,
    share: usize,
    callers: Callers,
}

/// The semaphores of the callers that hold permits or wait for them.
type Callers = Arc<Mutex<HashMap<String, Arc<Semaphore>>>>;

/// Permits of a [`CappedSemaphore`], which are returned when this is dropped.
#[derive(Debug)]
pub struct CappedPermit {
    // In the order in which they are returned
    of_all: OwnedSemaphorePermit,
    of_share: OwnedSemaphorePermit,
    _caller: CallerShare,
}

impl CappedPermit {
    /// Returns the permits beyond this number, which are free at once.
    pub fn shrink_to(&mut self, permits: usize) {
        for held in [&mut self.of_all, &mut self.of_share] {
            let surplus = held.num_permits().saturating_sub(permits);
            drop(held.split(surplus));
        }
    }
}

/// The part of the permits that a caller may hold. Forgotten with the last one of a caller.
#[derive(Debug)]
struct CallerShare {
    name: String,
    semaphore: Arc<Semaphore>,
    callers: Callers,
}

impl CappedSemaphore {
    /// Returns a semaphore with this number of permits (at least one).
    pub fn new(permits: usize) -> Self {
        let permits = permits.clamp(1, Semaphore::MAX_PERMITS);
        Self { all: Arc::new(Semaphore::new(permits)), share: permits.div_ceil(2), callers: Callers::default() }
    }

    /// Waits until a caller can have this number of permits. More than its share are never free, so
    /// it gets its whole share then.
    pub async fn acquire(&self, caller: &str, permits: usize) -> CappedPermit {
        let caller = self.share_of(caller);
        let permits = self.bounded(permits);
        let closed = "the semaphores are never closed";
        let of_share = caller.semaphore.clone().acquire_many_owned(permits).await.expect(closed);
        let of_all = self.all.clone().acquire_many_owned(permits).await.expect(closed);
        CappedPermit { of_all, of_share, _caller: caller }
    }

    /// Returns a permit for a caller; `None` if there is none for it at this moment.
    pub fn try_acquire(&self, caller: &str) -> Option<CappedPermit> {
        let caller = self.share_of(caller);
        let of_share = caller.semaphore.clone().try_acquire_owned().ok()?;
        let of_all = self.all.clone().try_acquire_owned().ok()?;
        Some(CappedPermit { of_all, of_share, _caller: caller })
    }

    fn bounded(&self, permits: usize) -> u32 {
        u32::try_from(permits.min(self.share)).unwrap_or(u32::MAX)
    }

    fn share_of(&self, caller: &str) -> CallerShare {
        let mut callers = lock(&self.callers);
        let semaphore = match callers.get(caller) {
            Some(semaphore) => semaphore.clone(),
            None => {
                let semaphore = Arc::new(Semaphore::new(self.share));
                callers.insert(caller.to_owned(), semaphore.clone());
                semaphore
            }
        };
        CallerShare { name: caller.to_owned(), semaphore, callers: self.callers.clone() }
    }
}

impl Drop for CallerShare {
    fn drop(&mut self) {
        let mut callers = lock(&self.callers);
        // The map's and this one; every other is made under the lock
        if Arc::strong_count(&self.semaphore) <= 2 {
            callers.remove(&self.name);
        }
    }
}

fn lock(callers: &Callers) -> MutexGuard<'_, HashMap<String, Arc<Semaphore>>> {
    callers.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_caller_gets_at_most_half_and_others_the_rest() {
        let semaphore = CappedSemaphore::new(5);
        let of_a: Vec<CappedPermit> = std::iter::from_fn(|| semaphore.try_acquire("a")).collect();
        let of_b: Vec<CappedPermit> = std::iter::from_fn(|| semaphore.try_acquire("b")).collect();
        assert_eq!((of_a.len(), of_b.len()), (3, 2));
        assert!(semaphore.try_acquire("c").is_none(), "all permits are taken");
        drop(of_a);
        assert!(semaphore.try_acquire("c").is_some());
    }

    #[test]
    fn one_permit_serves_one_caller_after_another() {
        let semaphore = CappedSemaphore::new(1);
        let permit = semaphore.try_acquire("a");
        assert!(permit.is_some() && semaphore.try_acquire("b").is_none());
        drop(permit);
        assert!(semaphore.try_acquire("b").is_some());
    }

    #[test]
    fn a_waiting_caller_does_not_delay_another_one() {
        let semaphore = CappedSemaphore::new(4);
        let mut context = Context::from_waker(Waker::noop());
        // More than the share is the share
        let mut first = pin!(semaphore.acquire("a", 100));
        let Poll::Ready(first) = first.as_mut().poll(&mut context) else { panic!("the share is free") };
        let mut second = pin!(semaphore.acquire("a", 1));
        assert!(second.as_mut().poll(&mut context).is_pending());
        let mut other = pin!(semaphore.acquire("b", 2));
        assert!(other.as_mut().poll(&mut context).is_ready());
        drop(first);
        assert!(second.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn permits_that_turn_out_to_be_too_many_are_returned() {
        let semaphore = CappedSemaphore::new(8);
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(semaphore.acquire("a", 4));
        let Poll::Ready(mut first) = first.as_mut().poll(&mut context) else { panic!("the share is free") };
        let mut second = pin!(semaphore.acquire("a", 3));
        assert!(second.as_mut().poll(&mut context).is_pending());
        first.shrink_to(1);
        assert!(second.as_mut().poll(&mut context).is_ready());
        assert_eq!(semaphore.all.available_permits(), 7, "of all permits as of the share");
        first.shrink_to(5);
        drop(first);
        assert_eq!(semaphore.all.available_permits(), 8);
    }

    #[test]
    fn callers_without_permits_are_forgotten() {
        let semaphore = CappedSemaphore::new(4);
        let permits = (semaphore.try_acquire("a"), semaphore.try_acquire("a"), semaphore.try_acquire("b"));
        assert_eq!(lock(&semaphore.callers).len(), 2);
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut waiting = pin!(semaphore.acquire("a", 1));
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            drop(permits);
            assert_eq!(lock(&semaphore.callers).len(), 1, "one still waits");
        }
        assert_eq!(lock(&semaphore.callers).len(), 0);
    }
}
