//! `auth.flow_state` and `auth.oauth_client_states`: the state of a sign-in between two of its
//! steps.

use time::OffsetDateTime;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::{Run, Tx};
use crate::model::ids::{FlowStateId, UserId};
use crate::oauth::pkce::Challenge;

macro_rules! flow_columns {
    () => {
        "flow_state.id, flow_state.user_id, flow_state.auth_code, flow_state.code_challenge_method::text, \
         flow_state.code_challenge, flow_state.provider_type, flow_state.provider_access_token, \
         flow_state.provider_refresh_token, flow_state.created_at, flow_state.authentication_method, \
         flow_state.auth_code_issued_at, flow_state.invite_token, flow_state.referrer, \
         flow_state.oauth_client_state_id, flow_state.linking_target_id, flow_state.email_optional"
    };
}

statements! {
    const INSERT = "
        insert into auth.flow_state
            (id, user_id, auth_code, code_challenge_method, code_challenge, provider_type, created_at, updated_at,
             authentication_method, invite_token, referrer, oauth_client_state_id, linking_target_id, email_optional)
        values ($1, $2, $3, $4::text::auth.code_challenge_method, $5, $6, $7, $7, $8, $9, $10, $11, $12, $13)";
    const BY_ID = concat!("select ", flow_columns!(), " from auth.flow_state where flow_state.id = $1");
    const LOCK_BY_ID =
        concat!("select ", flow_columns!(), " from auth.flow_state where flow_state.id = $1 for update");
    const LOCK_BY_CODE =
        concat!("select ", flow_columns!(), " from auth.flow_state where flow_state.auth_code = $1 for update");
    const LOCK_NEWEST = concat!(
        "select ",
        flow_columns!(),
        " from auth.flow_state
         where flow_state.user_id = $1
           and flow_state.authentication_method = $2
         order by flow_state.created_at desc
         limit 1
           for update"
    );
    const ISSUE_CODE = "update auth.flow_state set auth_code_issued_at = $2, updated_at = $2 where id = $1";
    const SIGNED_IN = "
        update auth.flow_state
           set user_id = $2,
               provider_access_token = $3,
               provider_refresh_token = $4,
               auth_code_issued_at = $5,
               oauth_client_state_id = coalesce($6, oauth_client_state_id),
               updated_at = $5
         where id = $1";
    const DELETE = "delete from auth.flow_state where id = $1";
    const DELETE_OLD = "
        delete from auth.flow_state
         where id in (select old.id
                        from auth.flow_state as old
                       where old.created_at < $1
                       limit 500
                         for update skip locked)";
    const INSERT_CLIENT_STATE =
        "insert into auth.oauth_client_states (id, provider_type, code_verifier, created_at) values ($1, $2, $3, $4)";
    const TAKE_CLIENT_STATE =
        "delete from auth.oauth_client_states where id = $1 returning provider_type, code_verifier, created_at";
    const KEPT_FOR_LINK = "
        select kept.code_verifier
          from auth.flow_state as flow
          join auth.oauth_client_states as kept on kept.id = flow.oauth_client_state_id
         where flow.auth_code = $1
           and flow.auth_code_issued_at is not null
           and flow.linking_target_id = flow.user_id";
    const DELETE_OLD_CLIENT_STATES = "
        delete from auth.oauth_client_states
         where id in (select old.id
                        from auth.oauth_client_states as old
                       where old.created_at < $1
                       limit 500
                         for update skip locked)";
}

/// The values of `authentication_method`, which become methods of the session.
pub mod method {
    /// Sign-in at a provider.
    pub const OAUTH: &str = "oauth";
    /// Confirmation of a new account.
    pub const EMAIL_SIGNUP: &str = "email/signup";
    /// A link to sign in.
    pub const MAGIC_LINK: &str = "magiclink";
    /// A link to set a new password.
    pub const RECOVERY: &str = "recovery";
    /// Confirmation of another address.
    pub const EMAIL_CHANGE: &str = "email_change";
    /// Acceptance of an invitation.
    pub const INVITE: &str = "invite";
}

/// A row of `auth.flow_state`.
#[derive(Clone)]
pub struct FlowState {
    /// Primary key; the OAuth `state`.
    pub id: FlowStateId,
    /// The user who signed in. Flows by email have it from the beginning.
    pub user_id: Option<UserId>,
    /// The code that the app gets; only in flows with a challenge.
    pub auth_code: Option<String>,
    /// The proof key of the app; `None` in an implicit flow.
    pub challenge: Option<Challenge>,
    /// The browser that must finish an implicit flow, see [`NewFlow::origin`].
    pub origin: Option<String>,
    /// `google`, `email`, ...
    pub provider_type: String,
    /// The access token of the provider, for the app.
    pub provider_access_token: Option<String>,
    /// The refresh token of the provider, for the app.
    pub provider_refresh_token: Option<String>,
    /// The time at which the flow began.
    pub created_at: OffsetDateTime,
    /// One of [`method`].
    pub authentication_method: String,
    /// The time at which the code was issued.
    pub auth_code_issued_at: Option<OffsetDateTime>,
    /// Hash of the invitation that the sign-in accepts.
    pub invite_token: Option<String>,
    /// The address to which the person is redirected in the end.
    pub referrer: Option<String>,
    /// The client state: the proof key of this server towards the provider.
    pub oauth_client_state_id: Option<Uuid>,
    /// The signed-in user who wants to link.
    pub linking_target_id: Option<UserId>,
    /// A person without email address may sign in.
    pub email_optional: bool,
}

impl std::fmt::Debug for FlowState {
    // The code and the provider's tokens are secrets
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowState")
            .field("id", &self.id)
            .field("provider_type", &self.provider_type)
            .field("authentication_method", &self.authentication_method)
            .finish_non_exhaustive()
    }
}

impl FlowState {
    fn from_row(row: &Row) -> Self {
        let text = |at: usize| row.get::<_, Option<String>>(at).filter(|text| !text.is_empty());
        let (challenge, origin) = match (text(3), text(4)) {
            (Some(method), Some(value)) => (Challenge::from_row(&method, value), None),
            (None, origin) => (None, origin),
            (Some(_), None) => (None, None),
        };
        Self {
            id: row.get(0),
            user_id: row.get(1),
            auth_code: text(2),
            challenge,
            origin,
            provider_type: row.get(5),
            provider_access_token: text(6),
            provider_refresh_token: text(7),
            created_at: row.get::<_, Option<OffsetDateTime>>(8).unwrap_or(OffsetDateTime::UNIX_EPOCH),
            authentication_method: row.get(9),
            auth_code_issued_at: row.get(10),
            invite_token: text(11),
            referrer: text(12),
            oauth_client_state_id: row.get(13),
            linking_target_id: row.get(14),
            email_optional: row.get(15),
        }
    }

    /// Returns true if the flow took longer than `expiry`. A flow that an email continues counts
    /// from the time at which its link was opened: until then the life of the link counts, not that
    /// of a round trip to a provider.
    #[must_use]
    pub fn is_expired(&self, now: OffsetDateTime, expiry: std::time::Duration) -> bool {
        let from = match self.auth_code_issued_at {
            Some(issued) if self.authentication_method != method::OAUTH => issued,
            _ => self.created_at,
        };
        now > from + expiry
    }
}

/// A new flow.
#[derive(Debug, Default)]
pub struct NewFlow<'a> {
    /// The proof key of the app; `None` in an implicit flow.
    pub challenge: Option<&'a Challenge>,
    /// The browser that must finish an implicit flow, as [`crate::oauth`] writes it. In the column
    /// of the challenge, without a method; nothing when there is a challenge.
    pub origin: Option<&'a str>,
    /// `google`, `email`, ...
    pub provider_type: &'a str,
    /// One of [`method`].
    pub authentication_method: &'a str,
    /// The user, where it is known.
    pub user_id: Option<UserId>,
    /// The address to which the person is redirected in the end.
    pub referrer: Option<&'a str>,
    /// Hash of the invitation that the sign-in accepts.
    pub invite_token: Option<&'a str>,
    /// The client state: the proof key of this server towards the provider.
    pub oauth_client_state_id: Option<Uuid>,
    /// The signed-in user who wants to link.
    pub linking_target_id: Option<UserId>,
    /// A person without email address may sign in.
    pub email_optional: bool,
}

/// Begins a flow. With a challenge it gets the code that the app will exchange.
pub async fn insert(tx: &Tx, flow: &NewFlow<'_>, now: OffsetDateTime) -> Result<FlowStateId, Error> {
    let id = FlowStateId::random();
    let code = flow.challenge.map(|_| portico_base::random::uuid().to_string());
    let method = flow.challenge.map(|challenge| challenge.method().as_str());
    let value = flow.challenge.map(Challenge::value).or(flow.origin);
    tx.execute(
        INSERT,
        &[
            &id,
            &flow.user_id,
            &code,
            &method,
            &value,
            &flow.provider_type,
            &now,
            &flow.authentication_method,
            &flow.invite_token,
            &flow.referrer,
            &flow.oauth_client_state_id,
            &flow.linking_target_id,
            &flow.email_optional,
        ],
    )
    .await?;
    Ok(id)
}

/// Returns the flow of a `state`.
pub async fn by_id(run: &impl Run, id: FlowStateId) -> Result<Option<FlowState>, Error> {
    Ok(run.rows(BY_ID, &[&id]).await?.first().map(FlowState::from_row))
}

/// Returns the row of [`by_id`], locked, so that no other request finishes the flow.
pub async fn lock_by_id(tx: &Tx, id: FlowStateId) -> Result<Option<FlowState>, Error> {
    Ok(tx.query_opt(LOCK_BY_ID, &[&id]).await?.as_ref().map(FlowState::from_row))
}

/// Locks and returns the flow of a code, so that no other request exchanges it.
pub async fn lock_by_code(tx: &Tx, code: &str) -> Result<Option<FlowState>, Error> {
    Ok(tx.query_opt(LOCK_BY_CODE, &[&code]).await?.as_ref().map(FlowState::from_row))
}

/// Locks and returns the newest flow of a user with this method, which a link in an email
/// continues.
pub async fn lock_newest(tx: &Tx, user: UserId, method: &str) -> Result<Option<FlowState>, Error> {
    Ok(tx.query_opt(LOCK_NEWEST, &[&user, &method]).await?.as_ref().map(FlowState::from_row))
}

/// Records that the app gets the code now.
pub async fn issue_code(tx: &Tx, id: FlowStateId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(ISSUE_CODE, &[&id, &now]).await.map(drop)
}

/// The result of a sign-in at a provider.
#[derive(Clone, Copy)]
pub struct Arrival<'a> {
    /// The user.
    pub user: UserId,
    /// The access token of the provider, for the app.
    pub access_token: &'a str,
    /// The refresh token of the provider, for the app.
    pub refresh_token: Option<&'a str>,
    /// The client state that keeps the identity, which the exchange of the code will link.
    pub pending: Option<Uuid>,
}

/// Records a sign-in at the provider, and that the app gets the code now.
pub async fn signed_in(tx: &Tx, id: FlowStateId, arrival: Arrival<'_>, now: OffsetDateTime) -> Result<(), Error> {
    let Arrival { user, access_token, refresh_token, pending } = arrival;
    tx.execute(SIGNED_IN, &[&id, &user, &access_token, &refresh_token, &now, &pending]).await.map(drop)
}

/// Deletes a finished flow.
pub async fn delete(tx: &Tx, id: FlowStateId) -> Result<(), Error> {
    tx.execute(DELETE, &[&id]).await.map(drop)
}

/// Deletes flows that began before `before`. Returns their number.
pub async fn delete_old(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_OLD, &[&before]).await
}

/// The secrets of this server for one sign-in at a provider.
pub struct ClientState {
    /// The name of the provider.
    pub provider_type: String,
    /// See [`crate::oauth`].
    pub code_verifier: Option<String>,
    /// The time at which the flow began.
    pub created_at: OffsetDateTime,
}

/// Stores the secrets of a sign-in at a provider.
pub async fn insert_client_state(
    tx: &Tx,
    provider_type: &str,
    code_verifier: &str,
    now: OffsetDateTime,
) -> Result<Uuid, Error> {
    let id = portico_base::random::uuid();
    put_client_state(tx, id, provider_type, code_verifier, now).await?;
    Ok(id)
}

/// Like [`insert_client_state`], but with an id that a flow refers to already.
pub async fn put_client_state(
    tx: &Tx,
    id: Uuid,
    provider_type: &str,
    code_verifier: &str,
    now: OffsetDateTime,
) -> Result<(), Error> {
    tx.execute(INSERT_CLIENT_STATE, &[&id, &provider_type, &code_verifier, &now]).await.map(drop)
}

/// Deletes and returns the secrets: they serve once.
pub async fn take_client_state(run: &impl Run, id: Uuid) -> Result<Option<ClientState>, Error> {
    Ok(run.rows(TAKE_CLIENT_STATE, &[&id]).await?.first().map(|row| ClientState {
        provider_type: row.get(0),
        code_verifier: row.get(1),
        created_at: row.get(2),
    }))
}

/// Returns the identity that the exchange of a code will link, as [`crate::oauth`] keeps it.
pub async fn kept_for_link(run: &impl Run, code: &str) -> Result<Option<String>, Error> {
    Ok(run.rows(KEPT_FOR_LINK, &[&code]).await?.first().and_then(|row| row.get(0)))
}

/// Deletes the secrets of abandoned sign-ins. Returns their number.
pub async fn delete_old_client_states(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_OLD_CLIENT_STATES, &[&before]).await
}
