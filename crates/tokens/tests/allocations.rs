//! The memory that the verification of a token takes, counted by the allocator of this test.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use portico_base::Secret;
use portico_tokens::{Algorithm, development};
use portico_tokens::{
    ApiKeys, CurrentKeys, KeptKey, KeyRing, SigningKey, ThirdPartyIssuer, ThirdPartyKeys, generate_jwk,
};
use serde_json::json;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged
#[allow(unsafe_code, reason = "an allocator is an unsafe trait")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract is that of the system's allocator
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as above
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of allocations that `work` makes on this thread.
fn allocations<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = COUNT.get();
    let result = work();
    (COUNT.get() - before, result)
}

fn key(algorithm: Algorithm, id: &str) -> SigningKey {
    SigningKey::parse_jwk(&generate_jwk(algorithm, id).unwrap()).unwrap()
}

#[test]
fn a_warm_look_up_of_a_token_and_of_its_key_allocates_nothing() {
    let configured = KeyRing::hs256(&Secret::new(development::JWT_SECRET));
    let kept =
        ["one", "two", "three"].map(|id| KeptKey { key: Arc::new(key(Algorithm::Es256, id)), signs: id == "two" });
    let ring = configured.with_kept_keys(kept.into(), &[]).unwrap();
    let current = CurrentKeys::new(Arc::new(ring), Arc::new(ApiKeys::development()));
    let foreign = KeyRing::new(None, vec![key(Algorithm::EdDsa, "foreign")]).unwrap();
    let issuer = ThirdPartyIssuer { url: "https://issuer".to_owned(), other_names: Vec::new(), audience: None };
    current.replace_third_party(ThirdPartyKeys::published(issuer, &foreign.jwks()).unwrap());

    let own = current.sign(&json!({ "sub": "u", "role": "authenticated" })).unwrap();
    let third_party = foreign.sign(&json!({ "iss": "https://issuer", "sub": "t" })).unwrap();
    for token in [&own, &third_party] {
        let (cold, _) = allocations(|| current.now().verify_signature(token).unwrap());
        assert!(cold > 0, "the first verification is counted");
        let (warm, claims) = allocations(|| current.now().verify_signature(token).unwrap());
        assert_eq!((warm, claims.subject().is_some()), (0, true));
    }
    let (count, known) = allocations(|| current.ring().may_know("three"));
    assert_eq!((count, known), (0, true));
    let (count, _) = allocations(|| current.now().api.role_of(development::SERVICE_ROLE_KEY));
    assert_eq!(count, 0);
}
