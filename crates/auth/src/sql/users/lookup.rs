//! The statements that find a user.

use time::OffsetDateTime;
use tokio_postgres::Error;

use crate::model::contact::Contact;
use crate::model::ids::{EmailAddress, PhoneNumber, SessionId, UserId};
use crate::model::{User, user_columns};
use crate::sql::{Params, Run, Tx, identities, mfa_factors};

statements! {
    const BY_ID = concat!("select ", user_columns!(), " from auth.users where users.id = $1");
    const LOCK_BY_ID = concat!("select ", user_columns!(), " from auth.users where users.id = $1 for no key update");
    const BY_EMAIL = concat!(
        "select ",
        user_columns!(),
        " from auth.users
         where users.instance_id = '00000000-0000-0000-0000-000000000000'
           and lower(users.email) = $1
           and users.aud = $2
           and not users.is_sso_user"
    );
    const LOCK_BY_EMAIL = concat!(
        "select ",
        user_columns!(),
        " from auth.users
         where users.instance_id = '00000000-0000-0000-0000-000000000000'
           and lower(users.email) = $1
           and users.aud = $2
           and not users.is_sso_user
         for no key update"
    );
    const BY_PHONE = concat!(
        "select ",
        user_columns!(),
        " from auth.users where users.phone = $1 and users.aud = $2 and not users.is_sso_user"
    );
    const LOCK_BY_PHONE = concat!(
        "select ",
        user_columns!(),
        " from auth.users where users.phone = $1 and users.aud = $2 and not users.is_sso_user for no key update"
    );
    /// The locked row is the newest version; the caller compares its token column again, so a token
    /// is used once even if two requests carry it at the same time.
    const LOCK_BY_TOKEN = concat!(
        "select ",
        user_columns!(),
        " from auth.users
         where users.id = (select one_time_tokens.user_id
                             from auth.one_time_tokens
                            where one_time_tokens.token_hash = $1
                              and one_time_tokens.token_type::text = any ($2)
                            limit 1)
         for no key update"
    );
    /// A user and the session of a token, in one row. `$2` is null for a token without a session.
    const SIGNED_IN = concat!(
        "select ",
        user_columns!(),
        ", sessions.id, sessions.created_at, sessions.aal::text
          from auth.users
          left join auth.sessions on sessions.id = $2 and sessions.user_id = users.id
         where users.id = $1"
    );
}

/// Returns the user that a statement finds.
pub(super) async fn one(run: &impl Run, sql: &str, params: Params<'_>) -> Result<Option<User>, Error> {
    Ok(run.rows(sql, params).await?.first().map(User::from_row))
}

/// Returns a user without identities and factors.
pub async fn by_id(run: &impl Run, id: UserId) -> Result<Option<User>, Error> {
    one(run, BY_ID, &[&id]).await
}

/// Returns the row of [`by_id`], locked until the transaction ends.
pub async fn lock_by_id(tx: &Tx, id: UserId) -> Result<Option<User>, Error> {
    one(tx, LOCK_BY_ID, &[&id]).await
}

/// Returns a user with identities and factors, in one round trip.
pub async fn complete(run: &impl Run, id: UserId) -> Result<Option<User>, Error> {
    complete_by(run, BY_ID, id).await
}

/// Returns the row of [`complete`], locked until the transaction ends.
pub async fn lock_complete(tx: &Tx, id: UserId) -> Result<Option<User>, Error> {
    complete_by(tx, LOCK_BY_ID, id).await
}

async fn complete_by(run: &impl Run, sql: &str, id: UserId) -> Result<Option<User>, Error> {
    let params: Params<'_> = &[&id];
    let (user, identities, factors) =
        tokio::join!(biased; one(run, sql, params), identities::of_user(run, id), mfa_factors::of_user(run, id));
    let Some(mut user) = user? else { return Ok(None) };
    user.identities = identities?;
    user.factors = factors?;
    Ok(Some(user))
}

/// The part of the session of a bearer token that requests need.
#[derive(Debug, Clone)]
pub struct SessionSummary {
    /// `auth.sessions.id`
    pub id: SessionId,
    /// The time of the sign-in.
    pub created_at: Option<OffsetDateTime>,
    /// The assurance level: `aal1` or `aal2`.
    pub aal: String,
}

impl SessionSummary {
    /// Returns true if a second factor was proved in the session.
    pub fn is_aal2(&self) -> bool {
        self.aal == "aal2"
    }
}

/// Returns a user with identities and factors, and the session if it exists, in one round trip.
pub async fn signed_in(
    run: &impl Run,
    id: UserId,
    session: Option<SessionId>,
) -> Result<Option<(User, Option<SessionSummary>)>, Error> {
    let params: Params<'_> = &[&id, &session];
    let (rows, identities, factors) = tokio::join!(biased;
        run.rows(SIGNED_IN, params),
        identities::of_user(run, id),
        mfa_factors::of_user(run, id),
    );
    let rows = rows?;
    let Some(row) = rows.first() else { return Ok(None) };
    let mut user = User::from_row(row);
    user.identities = identities?;
    user.factors = factors?;
    let session = row.get::<_, Option<SessionId>>(User::COLUMN_COUNT).map(|id| SessionSummary {
        id,
        created_at: row.get(User::COLUMN_COUNT + 1),
        aal: row.get::<_, Option<String>>(User::COLUMN_COUNT + 2).unwrap_or_else(|| "aal1".to_owned()),
    });
    Ok(Some((user, session)))
}

/// Returns the user with this address, not of a single sign-on domain.
pub async fn by_email(run: &impl Run, email: &EmailAddress, aud: &str) -> Result<Option<User>, Error> {
    one(run, BY_EMAIL, &[&email.as_str(), &aud]).await
}

/// Returns the row of [`by_email`], locked until the transaction ends.
pub async fn lock_by_email(tx: &Tx, email: &EmailAddress, aud: &str) -> Result<Option<User>, Error> {
    one(tx, LOCK_BY_EMAIL, &[&email.as_str(), &aud]).await
}

/// Returns the user with this number.
pub async fn by_phone(run: &impl Run, phone: &PhoneNumber, aud: &str) -> Result<Option<User>, Error> {
    one(run, BY_PHONE, &[&phone.as_str(), &aud]).await
}

/// Returns the row of [`by_phone`], locked until the transaction ends.
pub async fn lock_by_phone(tx: &Tx, phone: &PhoneNumber, aud: &str) -> Result<Option<User>, Error> {
    one(tx, LOCK_BY_PHONE, &[&phone.as_str(), &aud]).await
}

/// Returns the user with this contact, not of a single sign-on domain.
pub async fn by_contact(run: &impl Run, contact: &Contact, aud: &str) -> Result<Option<User>, Error> {
    match contact {
        Contact::Email(email) => by_email(run, email, aud).await,
        Contact::Phone(phone) => by_phone(run, phone, aud).await,
    }
}

/// Returns the row of [`by_contact`], locked until the transaction ends.
pub async fn lock_by_contact(tx: &Tx, contact: &Contact, aud: &str) -> Result<Option<User>, Error> {
    match contact {
        Contact::Email(email) => lock_by_email(tx, email, aud).await,
        Contact::Phone(phone) => lock_by_phone(tx, phone, aud).await,
    }
}

/// Locks and returns the user to whom a token with this hash, of one of the kinds, was sent. The
/// caller compares the column again.
pub async fn lock_by_token(tx: &Tx, hash: &str, kinds: &[&str]) -> Result<Option<User>, Error> {
    one(tx, LOCK_BY_TOKEN, &[&hash, &kinds]).await
}
