//! `grant_type=refresh_token` (auth-core 5.3): a session goes on with a new access token and usually a new refresh token.
//!
//! A browser with many tabs, or a client whose connection broke before it could save the answer, presents a token that was
//! replaced already. Whoever presents the direct parent of the current token gets the current token; anything older means
//! that two parties hold tokens of the family, so the family ends.
//!
//! All refreshes of one session happen one after the other: the session's row is locked, and what follows in the
//! transaction reads what its last owner wrote. Nobody waits with a connection in hand, so that many tabs can not use up
//! the pool: requests of this process that carry the same token form a queue, and who finds the session locked by somebody
//! else gives the connection back and comes again a moment later.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use portico_base::{hash, random};
use portico_database::sqlstate;
use serde::Deserialize;
use time::OffsetDateTime;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

use crate::Auth;
use crate::error::{AuthError, ContractError, OAuthError};
use crate::http::extract::RequestInfo;
use crate::protection::audit::{self, Action, AuditEvent};
use crate::session::refresh_token::{CountedToken, RefreshToken, SessionKey};
use crate::session::{self, user_agent};
use crate::sql::refresh_tokens::{Family, Locked, StoredToken};
use crate::sql::{Tx, refresh_tokens, sessions, users};

/// How long a refresh waits for others of the same session (auth-core 5.3).
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at a session that is locked elsewhere: the least, and how much may be added so that many who wait do
/// not look at the same moment.
const PAUSE: (u64, u64) = (10, 20);

/// The body of the grant.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RefreshBody {
    refresh_token: String,
}

/// Refreshes a session.
///
/// # Errors
/// As the tables of auth-core 5.3 list them.
pub(crate) async fn grant(auth: &Auth, request: &RequestInfo, body: RefreshBody) -> Result<Response, AuthError> {
    let token = RefreshToken::parse(&body.refresh_token).map_err(|_| ContractError::RefreshTokenMalformed)?;
    let name = match &token {
        RefreshToken::Stored(token) => hash::sha256(token.as_bytes()),
        RefreshToken::Counted(token) => hash::sha256(token.session().as_bytes()),
    };
    let deadline = Instant::now() + PATIENCE;
    let _turn = auth.refresh_gate().enter(name, deadline).await.ok_or_else(busy)?;
    loop {
        let tx = Tx::begin(auth.database()).await?;
        let refreshed = match &token {
            RefreshToken::Stored(token) => stored(auth, tx, request, token).await,
            RefreshToken::Counted(token) => counted(auth, tx, request, token).await,
        };
        match refreshed {
            Ok(Some(response)) => return Ok(response),
            Ok(None) if Instant::now() < deadline => tokio::time::sleep(pause()).await,
            Ok(None) => return Err(busy()),
            Err(error) if is_lock_timeout(&error) => return Err(busy()),
            Err(error) => return Err(error),
        }
    }
}

fn pause() -> Duration {
    let [byte] = random::bytes::<1>();
    Duration::from_millis(PAUSE.0 + u64::from(byte) * PAUSE.1 / u64::from(u8::MAX))
}

fn busy() -> AuthError {
    AuthError::from(ContractError::RefreshConflict)
}

fn is_lock_timeout(error: &AuthError) -> bool {
    matches!(error, AuthError::Sql { source, .. } if source.code() == Some(&sqlstate::LOCK_NOT_AVAILABLE))
}

fn not_found() -> AuthError {
    AuthError::from(ContractError::RefreshTokenUnknown)
}

fn banned() -> AuthError {
    AuthError::from(ContractError::RefreshBanned)
}

fn already_used() -> AuthError {
    AuthError::from(ContractError::RefreshTokenUsed)
}

/// What both forms check before they look at the token itself.
async fn check_family(auth: &Auth, tx: &Tx, family: &Family, now: OffsetDateTime) -> Result<(), AuthError> {
    let Family { session, user } = family;
    if user.is_banned(now) {
        return Err(banned());
    }
    session::check_alive(&auth.settings().sessions, session, user, now)?;
    session::check_newest(auth, tx, session, user, now).await?;
    if session.oauth_client_id.is_some() {
        return Err(OAuthError::OAuthSessionNeedsClient.into());
    }
    Ok(())
}

/// What a presented stored token leads to.
enum Verdict {
    /// It is current: it is replaced.
    Replace,
    /// It is the parent of this token, which was lost on its way.
    Repeat(String),
    /// It was replaced a moment ago: one more.
    Another,
    /// It was replaced, and the session has counted tokens since: the current one.
    RepeatCounted(SessionKey),
    /// Two parties hold tokens of this family.
    Reuse,
}

fn judge(auth: &Auth, presented: &str, token: &StoredToken, family: &Family, now: OffsetDateTime) -> Verdict {
    if !token.revoked {
        return Verdict::Replace;
    }
    if let Some(active) = token.active.as_ref().filter(|active| active.parent.as_deref() == Some(presented)) {
        return Verdict::Repeat(active.token.clone());
    }
    let recent = token.updated_at.is_some_and(|at| is_recent(auth, at, now));
    match session_key(auth, family).map(|(key, _)| key) {
        // The first counted token replaced this one
        Some(key) if token.active.is_none() && (recent || family.session.counter == 0) => Verdict::RepeatCounted(key),
        // Without a current token the family was ended: then nobody is forgiven
        None if recent && token.active.is_some() => Verdict::Another,
        _ => Verdict::Reuse,
    }
}

/// Returns true if a token that was replaced at `at` may still be reused. The time is read behind the lock of the session,
/// or a request that waited could reuse a token for longer. A moment ahead by more than the interval was written by a
/// clock that was set back since, and is over.
fn is_recent(auth: &Auth, at: OffsetDateTime, now: OffsetDateTime) -> bool {
    let interval = auth.settings().refresh.reuse_interval;
    now <= at + interval && at <= now + interval
}

/// The key of a session's counted tokens, and whether its column is to be written anew.
fn session_key(auth: &Auth, family: &Family) -> Option<(SessionKey, bool)> {
    let session = &family.session;
    match auth.columns().decrypt(session.id.0, session.hmac_key.as_deref()?) {
        Ok(opened) => Some((SessionKey::from_column(&opened.text)?, opened.is_outdated)),
        Err(error) => {
            tracing::error!(session.id = %session.id, %error, "The key of a session can not be opened");
            None
        }
    }
}

/// `None`: the session is locked elsewhere.
async fn stored(auth: &Auth, tx: Tx, request: &RequestInfo, presented: &str) -> Result<Option<Response>, AuthError> {
    let (token, family) = match refresh_tokens::lock_by_token(&tx, presented).await? {
        Locked::Yes(found) => found,
        Locked::Elsewhere => {
            tx.rollback().await;
            return Ok(None);
        }
        Locked::Nothing => return Err(not_found()),
    };
    let now = auth.now();
    let Some(family) = family else {
        let owner = match token.user_id {
            Some(id) => users::by_id(&tx, id).await?,
            None => None,
        };
        if owner.is_some_and(|owner| owner.is_banned(now)) {
            return Err(banned());
        }
        refresh_tokens::delete(&tx, token.id).await?;
        tx.commit().await?;
        return Err(ContractError::RefreshSessionGone.into());
    };
    check_family(auth, &tx, &family, now).await?;
    let Family { session, user } = &family;
    let verdict = judge(auth, presented, &token, &family, now);
    if matches!(verdict, Verdict::Reuse) {
        if auth.settings().refresh.rotation {
            refresh_tokens::revoke_family(&tx, session.id, now).await?;
            audit::record(auth, &tx, AuditEvent::new(user, Action::TokenRevoked), now).await?;
            tx.commit().await?;
        }
        tracing::warn!(session.id = %session.id, user.id = %user.id, "A replaced refresh token was presented again");
        return Err(already_used());
    }
    if matches!(verdict, Verdict::Replace) && upgrades(auth, session.id.0) {
        return upgrade(auth, tx, request, &family, now).await.map(Some);
    }
    let (next, created, counter) = match verdict {
        Verdict::Repeat(next) => (next, false, None),
        Verdict::RepeatCounted(key) => (key.token(session.id.0, session.counter), false, Some(session.counter)),
        _ => (RefreshToken::new_stored(), true, None),
    };
    let replace = created && !token.revoked;
    // One round trip: they are sent together and run in this order
    let (revoked, audited, inserted, finished, committed) = tokio::join!(biased;
        async {
            if replace { refresh_tokens::revoke(&tx, token.id, now).await } else { Ok(()) }
        },
        async {
            if replace {
                audit::record(auth, &tx, AuditEvent::new(user, Action::TokenRevoked), now).await
            } else {
                Ok(())
            }
        },
        async {
            if created {
                refresh_tokens::insert(&tx, &next, Some(presented), session.id, user.id, now).await
            } else {
                Ok(())
            }
        },
        finish(auth, &tx, request, &family, now),
        tx.commit_behind(),
    );
    revoked?;
    audited?;
    inserted?;
    finished?;
    committed?;
    drop(tx);
    let mut response = session::respond(auth, session, user.clone(), next, now)?;
    if created {
        response.set_header("sb-auth-refresh-token-reuse", "false");
    }
    if let Some(counter) = counter {
        response.set_header("sb-auth-refresh-token-counter", &counter.to_string());
        response.set_header("sb-auth-refresh-token-reuse-cause", "fail-to-save");
    }
    Ok(Some(response.into_response()))
}

/// Whether a session of stored tokens moves to counted ones. Stable per session.
fn upgrades(auth: &Auth, session: uuid::Uuid) -> bool {
    let settings = &auth.settings().refresh;
    let share = u32::from_be_bytes(*hash::sha256(session.as_bytes()).first_chunk().unwrap_or(&[0; 4])) % 100;
    settings.algorithm_version == 2 && share < u32::from(settings.upgrade_percentage)
}

async fn upgrade(
    auth: &Auth,
    tx: Tx,
    request: &RequestInfo,
    family: &Family,
    now: OffsetDateTime,
) -> Result<Response, AuthError> {
    let Family { session, user } = family;
    let key = SessionKey::generate();
    sessions::set_key(&tx, session.id, &auth.columns().encrypt(session.id.0, &key.to_column())).await?;
    refresh_tokens::revoke_family(&tx, session.id, now).await?;
    audit::record(auth, &tx, AuditEvent::new(user, Action::TokenRevoked), now).await?;
    finish(auth, &tx, request, family, now).await?;
    tx.commit().await?;
    let mut response = session::respond(auth, session, user.clone(), key.token(session.id.0, 0), now)?;
    response.set_header("sb-auth-refresh-token-counter", "0");
    Ok(response.into_response())
}

/// `None`: the session is locked elsewhere.
async fn counted(
    auth: &Auth,
    tx: Tx,
    request: &RequestInfo,
    token: &CountedToken,
) -> Result<Option<Response>, AuthError> {
    let family = match refresh_tokens::lock_by_session(&tx, crate::model::ids::SessionId(token.session())).await? {
        Locked::Yes(family) => family,
        Locked::Elsewhere => {
            tx.rollback().await;
            return Ok(None);
        }
        Locked::Nothing => return Err(not_found()),
    };
    let now = auth.now();
    let (key, is_outdated) =
        session_key(auth, &family).filter(|(key, _)| token.is_signed_by(key)).ok_or_else(not_found)?;
    check_family(auth, &tx, &family, now).await?;
    let Family { session, user } = &family;
    let settings = &auth.settings().refresh;
    let behind = session.counter - token.counter();
    let recent = session.refreshed_at.is_some_and(|at| is_recent(auth, at, now));
    let causes: Vec<&str> = match behind {
        ..0 => {
            return Err(ContractError::RefreshTokenForeign.into());
        }
        0 => Vec::new(),
        1 => vec!["fail-to-save"],
        _ => [(recent, "concurrent-refresh"), (settings.allow_reuse, "always-allow")]
            .into_iter()
            .filter_map(|(holds, cause)| holds.then_some(cause))
            .collect(),
    };
    if behind > 1 && causes.is_empty() {
        return reuse_of_counted(auth, tx, &family, now).await.map(Some);
    }
    let counter = if behind == 0 { session.counter.checked_add(1).ok_or_else(already_used)? } else { session.counter };
    let (stored, moved, finished, committed) = tokio::join!(biased;
        async {
            if is_outdated {
                let column = auth.columns().encrypt(session.id.0, &key.to_column());
                sessions::store_key_anew(&tx, session.id, &column).await
            } else {
                Ok(())
            }
        },
        async {
            if behind == 0 { sessions::set_counter(&tx, session.id, counter).await } else { Ok(()) }
        },
        finish(auth, &tx, request, &family, now),
        tx.commit_behind(),
    );
    stored?;
    moved?;
    finished?;
    committed?;
    drop(tx);
    let mut response = session::respond(auth, session, user.clone(), key.token(session.id.0, counter), now)?;
    response.set_header("sb-auth-refresh-token-counter", &counter.to_string());
    if behind == 0 {
        response.set_header("sb-auth-refresh-token-reuse", "false");
    } else {
        response.set_header("sb-auth-refresh-token-reuse-cause", &causes.join(","));
    }
    Ok(Some(response.into_response()))
}

async fn reuse_of_counted(auth: &Auth, tx: Tx, family: &Family, now: OffsetDateTime) -> Result<Response, AuthError> {
    let Family { session, user } = family;
    tracing::warn!(session.id = %session.id, user.id = %user.id, "A replaced refresh token was presented again");
    if !auth.settings().refresh.rotation {
        return Err(already_used());
    }
    sessions::delete(&tx, session.id).await?;
    audit::record(auth, &tx, AuditEvent::new(user, Action::TokenRevoked), now).await?;
    tx.commit().await?;
    let mut response = already_used().into_response();
    response.headers_mut().insert("sb-auth-refresh-token-rotated", HeaderValue::from_static("true"));
    Ok(response)
}

/// What every successful refresh writes.
async fn finish(
    auth: &Auth,
    tx: &Tx,
    request: &RequestInfo,
    family: &Family,
    now: OffsetDateTime,
) -> Result<(), tokio_postgres::Error> {
    let Family { session, user } = family;
    let (touched, audited) = tokio::join!(biased;
        sessions::touch(tx, session.id, user_agent(request), request.ip, now),
        audit::record(auth, tx, AuditEvent::new(user, Action::TokenRefreshed), now),
    );
    touched?;
    audited
}

type Turns = HashMap<[u8; 32], Arc<Mutex<()>>>;

/// Lets refreshes with the same token pass one after the other.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    turns: std::sync::Mutex<Turns>,
}

/// The right to pass; others wait until it is dropped.
pub(crate) struct Turn<'a> {
    // Dropped before the ticket, which counts who is left
    _guard: OwnedMutexGuard<()>,
    _ticket: Ticket<'a>,
}

struct Ticket<'a> {
    gate: &'a Gate,
    name: [u8; 32],
    turn: Arc<Mutex<()>>,
}

impl Gate {
    fn turns(&self) -> std::sync::MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn. `None`: it took too long.
    async fn enter(&self, name: [u8; 32], deadline: Instant) -> Option<Turn<'_>> {
        let turn = Arc::clone(self.turns().entry(name).or_default());
        let ticket = Ticket { gate: self, name, turn: Arc::clone(&turn) };
        let guard = tokio::time::timeout_at(deadline, turn.lock_owned()).await.ok()?;
        Some(Turn { _guard: guard, _ticket: ticket })
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut turns = self.gate.turns();
        // The map's and our own: nobody waits
        if Arc::strong_count(&self.turn) == 2 {
            turns.remove(&self.name);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_gate_lets_one_pass_at_a_time_and_forgets_names() {
        let gate = Arc::new(Gate::default());
        let inside = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (gate, inside) = (Arc::clone(&gate), Arc::clone(&inside));
                tokio::spawn(async move {
                    let _turn = gate.enter([1; 32], Instant::now() + PATIENCE).await.unwrap();
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(gate.turns().is_empty());
    }

    #[tokio::test]
    async fn someone_who_gives_up_leaves_nothing_behind() {
        let gate = Gate::default();
        let turn = gate.enter([2; 32], Instant::now() + PATIENCE).await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_millis(1), gate.enter([2; 32], Instant::now() + PATIENCE));
        assert!(waiting.await.is_err());
        drop(turn);
        assert!(gate.turns().is_empty());
    }
}
