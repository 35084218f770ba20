//! `grant_type=refresh_token`: continues a session with a new access token and usually a new
//! refresh token.
//!
//! A browser with many tabs, or a client whose connection broke before it could save the response,
//! presents a token that was replaced already. The direct parent of the current token yields the
//! current token. Anything older means that two parties hold tokens of the family, so the family
//! ends.
//!
//! The refreshes of one session happen one after the other: the row of the session is locked, and
//! the statements behind the lock read what its last owner wrote. No request waits for the lock
//! with a connection, so that many tabs cannot use up the pool: requests of this process that carry
//! the same token form a queue, and a request that finds the session locked returns its connection
//! and retries a moment later.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use portico_base::{hash, random};
use portico_database::sqlstate;
use serde::Deserialize;
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::Auth;
use crate::error::{AuthError, ContractError, OAuthError};
use crate::hooks;
use crate::http::extract::RequestInfo;
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, AuditEvent, AuditLog};
use crate::protection::column_encryption::ColumnKeys;
use crate::session::refresh_token::{CountedToken, RefreshToken, SessionKey};
use crate::session::{self, eviction, lifetime, user_agent};
use crate::settings::{RefreshSettings, SessionSettings};
use crate::sql::refresh_tokens::{LockAttempt, RefreshTokenFamily, StoredToken};
use crate::sql::sessions::Session;
use crate::sql::{Tx, refresh_tokens, sessions, users};

/// The time for which a refresh waits for others of the same session.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two attempts to lock a session, in milliseconds: the minimum, and the maximum
/// of a random addition, so that many requests do not retry at the same time.
const PAUSE: (u64, u64) = (10, 20);

/// The authentication method of a refresh, as the hook of access tokens sees it.
const REFRESHED: &str = "token_refresh";

/// The body of the grant.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RefreshBody {
    refresh_token: String,
}

/// Refreshes a session.
///
/// # Errors
/// 400 for a token that is unknown, used or of an ended session; 409 `conflict` when the queue is
/// too long.
pub(crate) async fn grant(auth: &Auth, request: &RequestInfo, body: RefreshBody) -> Result<Response, AuthError> {
    let token = RefreshToken::parse(&body.refresh_token).map_err(|_| ContractError::RefreshTokenMalformed)?;
    let name = match &token {
        RefreshToken::Stored(token) => hash::sha256(token.as_bytes()),
        RefreshToken::Counted(token) => hash::sha256(token.session().as_bytes()),
    };
    let deadline = Instant::now() + PATIENCE;
    let _guard = auth.refresh_queue().enter(name, deadline).await.ok_or_else(busy)?;
    loop {
        match hooks::complete(auth.hooks(), request, || attempt(auth, request, &token)).await {
            Ok(Some(response)) => return Ok(response),
            Ok(None) if Instant::now() < deadline => tokio::time::sleep(pause()).await,
            Ok(None) => return Err(busy()),
            Err(error) if is_lock_timeout(&error) => return Err(busy()),
            Err(error) => return Err(error),
        }
    }
}

/// Returns `None` when another transaction holds the lock of the session.
async fn attempt(auth: &Auth, request: &RequestInfo, token: &RefreshToken) -> Result<Option<Response>, AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    match token {
        RefreshToken::Stored(token) => stored(auth, tx, request, token).await,
        RefreshToken::Counted(token) => counted(auth, tx, request, token).await,
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

/// Checks the session and its user, for both forms of tokens.
async fn check_family(
    settings: &SessionSettings,
    tx: &Tx,
    family: &RefreshTokenFamily,
    now: OffsetDateTime,
) -> Result<(), AuthError> {
    let RefreshTokenFamily { session, user } = family;
    if user.is_banned(now) {
        return Err(banned());
    }
    lifetime::check_alive(settings, session, user, now)?;
    lifetime::check_newest(settings, tx, session, user, now).await?;
    if session.oauth_client_id.is_some() {
        return Err(OAuthError::OAuthSessionNeedsClient.into());
    }
    Ok(())
}

/// The consequence of a presented stored token.
enum TokenVerdict {
    /// The token is current: it is replaced.
    Replace,
    /// The token is the parent of this one, which was lost on its way.
    Repeat(String),
    /// The token was replaced a moment ago: another one is issued.
    Another,
    /// The token was replaced, and the session has counted tokens since: the current one is
    /// returned.
    RepeatCounted(SessionKey),
    /// Two parties hold tokens of this family.
    Reuse,
}

fn judge(
    auth: &Auth,
    presented: &str,
    token: &StoredToken,
    family: &RefreshTokenFamily,
    now: OffsetDateTime,
) -> TokenVerdict {
    if !token.revoked {
        return TokenVerdict::Replace;
    }
    if let Some(active) = token.active.as_ref().filter(|active| active.parent.as_deref() == Some(presented)) {
        return TokenVerdict::Repeat(active.token.clone());
    }
    let recent = token.updated_at.is_some_and(|at| is_recent(auth.settings().refresh.reuse_interval, at, now));
    match session_key(auth.columns(), &family.session).map(|(key, _)| key) {
        // The first counted token replaced this one
        Some(key) if token.active.is_none() && (recent || family.session.counter == 0) => {
            TokenVerdict::RepeatCounted(key)
        }
        // A family without a current token was ended: its tokens are never accepted again
        None if recent && token.active.is_some() => TokenVerdict::Another,
        _ => TokenVerdict::Reuse,
    }
}

/// Returns true if a token that was replaced at `at` may still be reused. The time is read behind
/// the lock of the session; otherwise a request that waited could reuse a token for longer. A time
/// that is ahead by more than the interval was written by a clock that was set back since, and is
/// not recent.
fn is_recent(interval: Duration, at: OffsetDateTime, now: OffsetDateTime) -> bool {
    now <= at + interval && at <= now + interval
}

/// Returns the key of the counted tokens of a session, and whether its stored form is outdated.
pub(super) fn session_key(columns: &ColumnKeys, session: &Session) -> Option<(SessionKey, bool)> {
    match columns.decrypt(session.id.0, session.hmac_key.as_deref()?) {
        Ok(opened) => Some((SessionKey::from_column(&opened.text)?, opened.is_outdated)),
        Err(error) => {
            tracing::error!(session.id = %session.id, error = %error, "the key of a session could not be decrypted");
            None
        }
    }
}

/// Returns `None` when another transaction holds the lock of the session.
async fn stored(auth: &Auth, tx: Tx, request: &RequestInfo, presented: &str) -> Result<Option<Response>, AuthError> {
    let (token, family) = match refresh_tokens::lock_by_token(&tx, presented).await? {
        LockAttempt::Locked(found) => found,
        LockAttempt::HeldElsewhere => {
            tx.rollback().await;
            return Ok(None);
        }
        LockAttempt::NoRow => return Err(not_found()),
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
    check_family(&auth.settings().sessions, &tx, &family, now).await?;
    let RefreshTokenFamily { session, user } = &family;
    let verdict = judge(auth, presented, &token, &family, now);
    if matches!(verdict, TokenVerdict::Reuse) {
        if auth.settings().refresh.rotation {
            tx.rollback().await;
            let tx = Tx::begin(auth.database()).await?;
            eviction::revoke_tokens(&tx, user.id, session.id, now).await?;
            auth.audit_log().record(&tx, AuditEvent::new(user, Action::TokenRevoked), now).await?;
            tx.commit().await?;
        }
        tracing::warn!(session.id = %session.id, user.id = %user.id, "a replaced refresh token was presented again");
        return Err(already_used());
    }
    if matches!(verdict, TokenVerdict::Replace) && upgrades(&auth.settings().refresh, session.id.0) {
        return upgrade(auth, tx, request, &family, now).await.map(Some);
    }
    let (next, created, counter) = match verdict {
        TokenVerdict::Repeat(next) => (next, false, None),
        TokenVerdict::RepeatCounted(key) => (key.token(session.id.0, session.counter), false, Some(session.counter)),
        _ => (RefreshToken::new_stored(), true, None),
    };
    let replace = created && !token.revoked;
    let op = AccountOperation::new(auth, request, &tx);
    let mut response = session::respond(op, session, user.clone(), next.clone(), REFRESHED, now).await?;
    // One round trip: the statements are sent together and run in this order
    let (revoked, audited, inserted, finished, committed) = tokio::join!(biased;
        async {
            if replace { refresh_tokens::revoke(&tx, token.id, now).await } else { Ok(()) }
        },
        async {
            if replace {
                auth.audit_log().record(&tx, AuditEvent::new(user, Action::TokenRevoked), now).await
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
        finish(auth.audit_log(), &tx, request, &family, now),
        tx.commit_behind(),
    );
    revoked?;
    audited?;
    inserted?;
    finished?;
    committed?;
    drop(tx);
    if created {
        response.set_header("sb-auth-refresh-token-reuse", "false");
    }
    if let Some(counter) = counter {
        response.set_header("sb-auth-refresh-token-counter", &counter.to_string());
        response.set_header("sb-auth-refresh-token-reuse-cause", "fail-to-save");
    }
    Ok(Some(response.into_response()))
}

/// Returns true if a session of stored tokens moves to counted ones: a share that is stable for
/// each session.
fn upgrades(settings: &RefreshSettings, session: uuid::Uuid) -> bool {
    let share = u32::from_be_bytes(*hash::sha256(session.as_bytes()).first_chunk().unwrap_or(&[0; 4])) % 100;
    settings.algorithm_version == 2 && share < u32::from(settings.upgrade_percentage)
}

async fn upgrade(
    auth: &Auth,
    tx: Tx,
    request: &RequestInfo,
    family: &RefreshTokenFamily,
    now: OffsetDateTime,
) -> Result<Response, AuthError> {
    let RefreshTokenFamily { session, user } = family;
    let key = SessionKey::generate();
    let (op, next) = (AccountOperation::new(auth, request, &tx), key.token(session.id.0, 0));
    let mut response = session::respond(op, session, user.clone(), next, REFRESHED, now).await?;
    sessions::set_key(&tx, session.id, &auth.columns().encrypt(session.id.0, &key.to_column())).await?;
    refresh_tokens::revoke_family(&tx, session.id, now).await?;
    auth.audit_log().record(&tx, AuditEvent::new(user, Action::TokenRevoked), now).await?;
    finish(auth.audit_log(), &tx, request, family, now).await?;
    tx.commit().await?;
    response.set_header("sb-auth-refresh-token-counter", "0");
    Ok(response.into_response())
}

/// Returns `None` when another transaction holds the lock of the session.
async fn counted(
    auth: &Auth,
    tx: Tx,
    request: &RequestInfo,
    token: &CountedToken,
) -> Result<Option<Response>, AuthError> {
    let family = match refresh_tokens::lock_by_session(&tx, crate::model::ids::SessionId(token.session())).await? {
        LockAttempt::Locked(family) => family,
        LockAttempt::HeldElsewhere => {
            tx.rollback().await;
            return Ok(None);
        }
        LockAttempt::NoRow => return Err(not_found()),
    };
    let now = auth.now();
    let (key, is_outdated) = session_key(auth.columns(), &family.session)
        .filter(|(key, _)| token.is_signed_by(key))
        .ok_or_else(not_found)?;
    check_family(&auth.settings().sessions, &tx, &family, now).await?;
    let RefreshTokenFamily { session, user } = &family;
    let settings = &auth.settings().refresh;
    let behind = session.counter - token.counter();
    let recent = session.refreshed_at.is_some_and(|at| is_recent(auth.settings().refresh.reuse_interval, at, now));
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
    let (op, next) = (AccountOperation::new(auth, request, &tx), key.token(session.id.0, counter));
    let mut response = session::respond(op, session, user.clone(), next, REFRESHED, now).await?;
    let (stored, moved, finished, committed) = tokio::join!(biased;
        async {
            if is_outdated {
                let column = auth.columns().encrypt(session.id.0, &key.to_column());
                sessions::replace_key_form(&tx, session.id, &column).await
            } else {
                Ok(())
            }
        },
        async {
            if behind == 0 { sessions::set_counter(&tx, session.id, counter).await } else { Ok(()) }
        },
        finish(auth.audit_log(), &tx, request, &family, now),
        tx.commit_behind(),
    );
    stored?;
    moved?;
    finished?;
    committed?;
    drop(tx);
    response.set_header("sb-auth-refresh-token-counter", &counter.to_string());
    if behind == 0 {
        response.set_header("sb-auth-refresh-token-reuse", "false");
    } else {
        response.set_header("sb-auth-refresh-token-reuse-cause", &causes.join(","));
    }
    Ok(Some(response.into_response()))
}

async fn reuse_of_counted(
    auth: &Auth,
    tx: Tx,
    family: &RefreshTokenFamily,
    now: OffsetDateTime,
) -> Result<Response, AuthError> {
    let RefreshTokenFamily { session, user } = family;
    tracing::warn!(session.id = %session.id, user.id = %user.id, "a replaced refresh token was presented again");
    if !auth.settings().refresh.rotation {
        return Err(already_used());
    }
    // This transaction has locked the session, and the lock of the user has to come before it
    tx.rollback().await;
    let tx = Tx::begin(auth.database()).await?;
    if eviction::end_one(&tx, user.id, session.id, now).await? {
        auth.audit_log().record(&tx, AuditEvent::new(user, Action::TokenRevoked), now).await?;
    }
    tx.commit().await?;
    let mut response = already_used().into_response();
    response.headers_mut().insert("sb-auth-refresh-token-rotated", HeaderValue::from_static("true"));
    Ok(response)
}

/// Records a successful refresh.
async fn finish(
    audit_log: AuditLog,
    tx: &Tx,
    request: &RequestInfo,
    family: &RefreshTokenFamily,
    now: OffsetDateTime,
) -> Result<(), tokio_postgres::Error> {
    let RefreshTokenFamily { session, user } = family;
    let (touched, audited) = tokio::join!(biased;
        sessions::touch(tx, session.id, user_agent(request), request.ip, now),
        audit_log.record(tx, AuditEvent::new(user, Action::TokenRefreshed), now),
    );
    touched?;
    audited
}
