//! A cache of verified tokens, so that their signature need not be computed again.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::claims::Claims;

/// The memory of cached tokens, in bytes. A token of a usual size takes 4 to 5 KiB.
const MOST_BYTES: usize = 24 * 1024 * 1024;

/// The largest cached token, in bytes of its claims' memory. Larger ones are rare, and verifying
/// one costs less than the many others that it would evict.
const LARGEST: usize = 24 * 1024;

/// The bytes of an entry besides its claims: key, pointer and weight in a table with spare room,
/// and the counters of the pointer.
const ENTRY: usize = 128;

/// A cache of verified tokens, keyed by the token's SHA-256, bounded in their number and in bytes.
///
/// Two generations: entries enter the young one; when it is full it becomes the old one, and the
/// former old one is dropped. An entry that is found in the old one moves to the young one. So
/// tokens in use stay, others disappear, and no step costs more than a look-up. Times are not
/// checked here: the user of an entry checks them.
pub(crate) struct Verified {
    per_generation: usize,
    bytes_per_generation: usize,
    generations: Mutex<Generations>,
    asked: AtomicU64,
    found: AtomicU64,
    forgotten: AtomicU64,
}

#[derive(Default)]
struct Generations {
    young: Generation,
    old: Generation,
}

#[derive(Default)]
struct Generation {
    entries: HashMap<[u8; 32], (Arc<Claims>, usize)>,
    /// The sum of the entries' weights.
    bytes: usize,
}

impl Generation {
    fn insert(&mut self, token: [u8; 32], claims: Arc<Claims>, weight: usize) {
        self.bytes += weight;
        if let Some((_, replaced)) = self.entries.insert(token, (claims, weight)) {
            self.bytes -= replaced;
        }
    }

    fn remove(&mut self, token: &[u8; 32]) -> Option<(Arc<Claims>, usize)> {
        let (claims, weight) = self.entries.remove(token)?;
        self.bytes -= weight;
        Some((claims, weight))
    }
}

impl Verified {
    /// Caches at most `capacity` tokens, with at most [`MOST_BYTES`].
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            per_generation: (capacity / 2).max(1),
            bytes_per_generation: MOST_BYTES / 2,
            generations: Mutex::default(),
            asked: AtomicU64::new(0),
            found: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
        }
    }

    /// Returns the number of look-ups, of hits, and of removed entries.
    pub(crate) fn figures(&self) -> [u64; 3] {
        [&self.asked, &self.found, &self.forgotten].map(|figure| figure.load(Ordering::Relaxed))
    }

    /// Returns the bytes of the cached tokens.
    pub(crate) fn bytes(&self) -> usize {
        let generations = self.lock();
        generations.young.bytes + generations.old.bytes
    }

    pub(crate) fn get(&self, token: &[u8; 32]) -> Option<Arc<Claims>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let claims = self.find(token)?;
        self.found.fetch_add(1, Ordering::Relaxed);
        Some(claims)
    }

    /// Like [`get`](Self::get), and counts a look-up only if it is a hit.
    pub(crate) fn get_if_cached(&self, token: &[u8; 32]) -> Option<Arc<Claims>> {
        let claims = self.find(token)?;
        for figure in [&self.asked, &self.found] {
            figure.fetch_add(1, Ordering::Relaxed);
        }
        Some(claims)
    }

    fn find(&self, token: &[u8; 32]) -> Option<Arc<Claims>> {
        let mut generations = self.lock();
        if let Some((claims, _)) = generations.young.entries.get(token) {
            return Some(Arc::clone(claims));
        }
        let (claims, weight) = generations.old.remove(token)?;
        self.put(&mut generations, *token, Arc::clone(&claims), weight);
        Some(claims)
    }

    /// Adds a token, unless it is a large one.
    pub(crate) fn insert(&self, token: [u8; 32], claims: Arc<Claims>) {
        let weight = ENTRY + claims.weight();
        if weight <= LARGEST {
            self.put(&mut self.lock(), token, claims, weight);
        }
    }

    fn put(&self, generations: &mut Generations, token: [u8; 32], claims: Arc<Claims>, weight: usize) {
        let young = &mut generations.young;
        if young.entries.len() >= self.per_generation || young.bytes + weight > self.bytes_per_generation {
            let forgotten = mem::replace(&mut generations.old, mem::take(young));
            self.forgotten.fetch_add(forgotten.entries.len() as u64, Ordering::Relaxed);
        }
        generations.young.insert(token, claims, weight);
    }

    // A panic in another thread leaves the maps consistent: each is changed by single calls
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
        portico_base::hash::sha256(&n.to_be_bytes())
    }

    #[test]
    fn the_cache_stays_bounded_and_keeps_tokens_in_use() {
        let memory = Verified::new(10);
        memory.insert(id(0), claims());
        for n in 1..1000 {
            memory.insert(id(n), claims());
            assert!(memory.get(&id(0)).is_some(), "used entries stay ({n})");
            let held = memory.lock();
            assert!(held.young.entries.len() + held.old.entries.len() <= 10);
        }
        assert!(memory.get(&id(500)).is_none());
        let [asked, found, forgotten] = memory.figures();
        assert_eq!((asked, found), (1000, 999));
        let held = memory.lock();
        assert_eq!(forgotten, 1000 - (held.young.entries.len() + held.old.entries.len()) as u64);
    }

    /// Recounts the sum of all weights.
    fn counted(memory: &Verified) -> usize {
        let held = memory.lock();
        let entries = held.young.entries.values().chain(held.old.entries.values());
        entries.map(|(claims, _)| ENTRY + claims.weight()).sum()
    }

    #[test]
    fn the_cache_is_bounded_in_bytes() {
        let memory = Verified::new(4096);
        // Mostly values, which take more than their text
        for n in 0..4096 {
            let list = vec!["0"; 50 + n % 250].join(",");
            let claims = Claims::parse(format!("{{\"sub\":\"{n}\",\"list\":[{list}]}}").into_bytes()).unwrap();
            memory.insert(id(n), Arc::new(claims));
            memory.get(&id(n / 2));
            assert!(memory.bytes() <= MOST_BYTES);
        }
        assert_eq!(memory.bytes(), counted(&memory));
        assert!(memory.bytes() > MOST_BYTES / 3, "it is used: {}", memory.bytes());
        // The same one twice, as two concurrent requests may insert it
        let before = memory.bytes();
        let claims = Arc::clone(&memory.lock().young.entries.values().next().unwrap().0);
        let known = *memory.lock().young.entries.keys().next().unwrap();
        memory.insert(known, claims);
        assert_eq!((memory.bytes(), counted(&memory)), (before, before));
    }

    #[test]
    fn a_large_token_is_not_cached_whatever_makes_it_large() {
        let memory = Verified::new(4096);
        for (n, metadata) in [
            format!("\"{}\"", "x".repeat(30_000)),
            format!("[{}]", vec!["0"; 2_000].join(",")),
            format!("[{}]", vec!["{}"; 2_000].join(",")),
            format!("{{{}}}", (0..500).map(|n| format!("\"{n}\":0")).collect::<Vec<_>>().join(",")),
        ]
        .iter()
        .enumerate()
        {
            let claims = Claims::parse(format!("{{\"user_metadata\":{metadata}}}").into_bytes()).unwrap();
            memory.insert(id(n), Arc::new(claims));
            assert!(memory.get(&id(n)).is_none(), "{n}");
        }
        assert_eq!(memory.bytes(), 0);
    }
}
