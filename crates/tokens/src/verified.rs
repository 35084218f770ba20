//! Tokens that were verified before, so that their signature need not be computed again.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::claims::Claims;

/// A bounded memory of verified tokens, keyed by the token's SHA-256.
///
/// Two generations: entries enter the young one; when it is full it becomes the old one and the former old
/// one is forgotten. An entry that is found in the old one moves to the young one. So what is in use stays,
/// what is not disappears, and no step costs more than a look-up. Times are not this module's business: who
/// takes an entry checks them.
pub(crate) struct Verified {
    per_generation: usize,
    generations: Mutex<Generations>,
    asked: AtomicU64,
    found: AtomicU64,
    forgotten: AtomicU64,
}

#[derive(Default)]
struct Generations {
    young: HashMap<[u8; 32], Arc<Claims>>,
    old: HashMap<[u8; 32], Arc<Claims>>,
}

impl Verified {
    /// Remembers at most `capacity` tokens.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            per_generation: (capacity / 2).max(1),
            generations: Mutex::default(),
            asked: AtomicU64::new(0),
            found: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
        }
    }

    /// How often it was asked, how often it knew, and how many entries it forgot.
    pub(crate) fn figures(&self) -> [u64; 3] {
        [&self.asked, &self.found, &self.forgotten].map(|figure| figure.load(Ordering::Relaxed))
    }

    pub(crate) fn get(&self, token: &[u8; 32]) -> Option<Arc<Claims>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let claims = self.find(token)?;
        self.found.fetch_add(1, Ordering::Relaxed);
        Some(claims)
    }

    fn find(&self, token: &[u8; 32]) -> Option<Arc<Claims>> {
        let mut generations = self.lock();
        if let Some(claims) = generations.young.get(token) {
            return Some(Arc::clone(claims));
        }
        let claims = generations.old.remove(token)?;
        self.put(&mut generations, *token, Arc::clone(&claims));
        Some(claims)
    }

    pub(crate) fn insert(&self, token: [u8; 32], claims: Arc<Claims>) {
        self.put(&mut self.lock(), token, claims);
    }

    fn put(&self, generations: &mut Generations, token: [u8; 32], claims: Arc<Claims>) {
        if generations.young.len() >= self.per_generation {
            let forgotten = mem::replace(&mut generations.old, mem::take(&mut generations.young));
            self.forgotten.fetch_add(forgotten.len() as u64, Ordering::Relaxed);
        }
        generations.young.insert(token, claims);
    }

    // A panic elsewhere leaves the maps whole: each is changed by single calls
    fn lock(&self) -> std::sync::MutexGuard<'_, Generations> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Arc<Claims> {
        Arc::new(Claims::parse(b"{}".to_vec()).unwrap())
    }

    fn id(n: usize) -> [u8; 32] {
        crate::hash::sha256(&n.to_be_bytes())
    }

    #[test]
    fn the_memory_stays_bounded_and_keeps_what_is_used() {
        let memory = Verified::new(10);
        memory.insert(id(0), claims());
        for n in 1..1000 {
            memory.insert(id(n), claims());
            assert!(memory.get(&id(0)).is_some(), "used entries stay ({n})");
            let held = memory.lock();
            assert!(held.young.len() + held.old.len() <= 10);
        }
        assert!(memory.get(&id(500)).is_none());
        let [asked, found, forgotten] = memory.figures();
        assert_eq!((asked, found), (1000, 999));
        let held = memory.lock();
        assert_eq!(forgotten, 1000 - (held.young.len() + held.old.len()) as u64);
    }
}
