//! `POST /logout`, and the list of a person's own sessions (`GET` and `DELETE /sessions`).
//!
//! Only the end of the caller's own session leaves a change of the address or number waiting for
//! its confirmation: the person may open the message after the sign-out ([`eviction`]).

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::{Query, RequestInfo, SignedIn};
use crate::model::Timestamp;
use crate::model::ids::SessionId;
use crate::protection::audit::{Action, AuditEvent};
use crate::session::eviction;
use crate::session::lifetime::check_alive;
use crate::sql::Tx;
use crate::sql::sessions::{self, Session};

/// `POST /logout?scope=`: ends this session, the others, or all, with their refresh tokens.
pub(crate) async fn logout(
    State(auth): State<Auth>,
    request: RequestInfo,
    query: Query,
    signed_in: SignedIn,
) -> Result<StatusCode, AuthError> {
    let user = &signed_in.user;
    let session = signed_in.session_id();
    let scope = query.get("scope").unwrap_or("global");
    if !matches!(scope, "global" | "local" | "others") {
        return Err(ContractError::LogoutScopeUnsupported { scope: shortened(scope) }.into());
    }
    let tx = Tx::begin(auth.database()).await?;
    auth.audit_log().record(&tx, AuditEvent::new(user, Action::Logout), request.now).await?;
    match (scope, session) {
        ("local", Some(session)) => sessions::delete(&tx, session).await?,
        ("others", Some(session)) => eviction::end_others(&tx, user.id, session, request.now).await?,
        (_, Some(session)) => {
            eviction::end_others(&tx, user.id, session, request.now).await?;
            sessions::delete(&tx, session).await?;
        }
        // A token without a session cannot mean one of them
        _ => eviction::end_all(&tx, user.id, request.now).await?,
    }
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

#[derive(Serialize)]
struct ListedSession {
    id: SessionId,
    created_at: Timestamp,
    refreshed_at: Option<Timestamp>,
    not_after: Option<Timestamp>,
    aal: String,
    amr: Vec<Value>,
    user_agent: Option<String>,
    ip: Option<String>,
    current: bool,
}

impl ListedSession {
    fn from_session(session: Session, current: Option<SessionId>) -> Self {
        Self {
            id: session.id,
            created_at: Timestamp(session.created_at),
            refreshed_at: session.refreshed_at.map(Timestamp),
            not_after: session.not_after.map(Timestamp),
            aal: session.aal,
            amr: session
                .amr
                .iter()
                .map(|amr| json!({"method": amr.method, "timestamp": amr.at.unix_timestamp()}))
                .collect(),
            user_agent: session.user_agent,
            ip: session.ip.map(|ip| ip.to_string()),
            current: current == Some(session.id),
        }
    }
}

/// `GET /sessions`: the sessions of the person, last used first. Sessions that ended by their age
/// are not listed.
pub(crate) async fn list(
    State(auth): State<Auth>,
    request: RequestInfo,
    signed_in: SignedIn,
) -> Result<Json<Value>, AuthError> {
    let client = auth.database().client().await?;
    let found = sessions::of_user(&client, signed_in.user.id).await?;
    drop(client);
    let current = signed_in.session.as_ref().map(|session| session.id);
    let policy = &auth.settings().sessions;
    let shown: Vec<ListedSession> = found
        .into_iter()
        .filter(|session| {
            current == Some(session.id) || check_alive(policy, session, &signed_in.user, request.now).is_ok()
        })
        .map(|session| ListedSession::from_session(session, current))
        .collect();
    serde_json::to_value(shown).map(Json).map_err(AuthError::internal)
}

/// `DELETE /sessions/{id}`: ends one of the person's own sessions.
pub(crate) async fn revoke(
    State(auth): State<Auth>,
    request: RequestInfo,
    signed_in: SignedIn,
    Path(id): Path<String>,
) -> Result<StatusCode, AuthError> {
    let not_found = || AuthError::from(ContractError::SessionUnknown);
    let id = SessionId::parse(&id).ok_or_else(not_found)?;
    let tx = Tx::begin(auth.database()).await?;
    let user = signed_in.user.id;
    let ended = match signed_in.session_id() == Some(id) {
        true => sessions::delete_of_user(&tx, id, user).await?,
        false => eviction::end_one(&tx, user, id, request.now).await?,
    };
    if !ended {
        return Err(not_found());
    }
    auth.audit_log().record(&tx, AuditEvent::new(&signed_in.user, Action::Logout), request.now).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
