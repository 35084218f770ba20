//! `auth.users`. Every update names only the columns that change and `updated_at`, so that triggers of applications
//! (`after update of email`) see what they expect (database, 5.4).

use serde_json::Value;
use time::OffsetDateTime;
use tokio_postgres::Error;

use super::{Params, Run, Tx, one_time_tokens};
use crate::model::contact::Contact;
use crate::model::ids::{EmailAddress, PhoneNumber, UserId};
use crate::model::{Factor, Identity, JsonObject, User, factor_columns, identity_columns, user_columns};
use crate::one_time::token::TokenKind;

/// Every statement of this file.
pub const ALL: &[(&str, &str)] = &[
    ("users::BY_ID", BY_ID),
    ("users::LOCK_BY_ID", LOCK_BY_ID),
    ("users::BY_EMAIL", BY_EMAIL),
    ("users::LOCK_BY_EMAIL", LOCK_BY_EMAIL),
    ("users::BY_PHONE", BY_PHONE),
    ("users::LOCK_BY_PHONE", LOCK_BY_PHONE),
    ("users::LOCK_BY_TOKEN", LOCK_BY_TOKEN),
    ("users::LOCK_OWNER_OF_EMAIL", LOCK_OWNER_OF_EMAIL),
    ("users::SIGNED_IN", SIGNED_IN),
    ("users::IDENTITIES", IDENTITIES),
    ("users::FACTORS", FACTORS),
    ("users::INSERT", INSERT),
    ("users::SET_ROLE", SET_ROLE),
    ("users::SET_USER_METADATA", SET_USER_METADATA),
    ("users::SET_APP_METADATA", SET_APP_METADATA),
    ("users::REFRESH_PROVIDERS", REFRESH_PROVIDERS),
    ("users::CONFIRM_EMAIL", CONFIRM_EMAIL),
    ("users::CONFIRM_PHONE", CONFIRM_PHONE),
    ("users::SET_CONFIRMATION", SET_CONFIRMATION),
    ("users::SET_RECOVERY", SET_RECOVERY),
    ("users::CLEAR_RECOVERY", CLEAR_RECOVERY),
    ("users::SET_REAUTHENTICATION", SET_REAUTHENTICATION),
    ("users::SET_EMAIL_CHANGE", SET_EMAIL_CHANGE),
    ("users::CONFIRM_EMAIL_CHANGE_HALF", CONFIRM_EMAIL_CHANGE_HALF),
    ("users::APPLY_EMAIL_CHANGE", APPLY_EMAIL_CHANGE),
    ("users::SET_PHONE_CHANGE", SET_PHONE_CHANGE),
    ("users::APPLY_PHONE_CHANGE", APPLY_PHONE_CHANGE),
    ("users::SET_PASSWORD", SET_PASSWORD),
    ("users::REHASH_PASSWORD", REHASH_PASSWORD),
    ("users::REPLACE_CREDENTIALS", REPLACE_CREDENTIALS),
    ("users::UNDO_CONFIRMATION", UNDO_CONFIRMATION),
    ("users::UNDO_PHONE_CHANGE", UNDO_PHONE_CHANGE),
    ("users::UNDO_REAUTHENTICATION", UNDO_REAUTHENTICATION),
    ("users::DELETE_UNREACHED", DELETE_UNREACHED),
];

const BY_ID: &str = concat!("select ", user_columns!(), " from auth.users where users.id = $1");
const LOCK_BY_ID: &str = concat!("select ", user_columns!(), " from auth.users where users.id = $1 for no key update");

const BY_EMAIL: &str = concat!(
    "select ",
    user_columns!(),
    " from auth.users
     where users.instance_id = '00000000-0000-0000-0000-000000000000'
       and lower(users.email) = $1
       and users.aud = $2
       and not users.is_sso_user"
);
const LOCK_BY_EMAIL: &str = concat!(
    "select ",
    user_columns!(),
    " from auth.users
     where users.instance_id = '00000000-0000-0000-0000-000000000000'
       and lower(users.email) = $1
       and users.aud = $2
       and not users.is_sso_user
     for no key update"
);
const BY_PHONE: &str = concat!(
    "select ",
    user_columns!(),
    " from auth.users where users.phone = $1 and users.aud = $2 and not users.is_sso_user"
);
const LOCK_BY_PHONE: &str = concat!(
    "select ",
    user_columns!(),
    " from auth.users where users.phone = $1 and users.aud = $2 and not users.is_sso_user for no key update"
);
/// The locked row is the newest version; the caller compares its token column again, so a token is used once even if two
/// requests carry it at the same time.
const LOCK_BY_TOKEN: &str = concat!(
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
/// Who has an address in the default linking domain: as their own, or by an identity whose provider vouches for it. One
/// that merely claims it keeps nobody from using their address. `$3`: providers of other domains.
const LOCK_OWNER_OF_EMAIL: &str = concat!(
    "select ",
    user_columns!(),
    " from auth.users
     where users.aud = $2
       and not users.is_sso_user
       and ($4::uuid is null or users.id <> $4)
       and users.id in (select identities.user_id
                          from auth.identities
                         where identities.email = $1
                           and (identities.identity_data ->> 'email_verified') = 'true'
                           and identities.provider <> 'phone'
                           and identities.provider not like 'sso:%'
                           and identities.provider <> all ($3)
                        union all
                        select owners.id
                          from auth.users as owners
                         where owners.instance_id = '00000000-0000-0000-0000-000000000000'
                           and lower(owners.email) = $1)
     order by users.email = $1 desc nulls last
     limit 1
     for no key update"
);

/// A user and the session of the token, in one row. `$2` is null for a token without a session.
const SIGNED_IN: &str = concat!(
    "select ",
    user_columns!(),
    ", sessions.id, sessions.created_at, sessions.aal::text
      from auth.users
      left join auth.sessions on sessions.id = $2 and sessions.user_id = users.id
     where users.id = $1"
);
const IDENTITIES: &str = concat!(
    "select ",
    identity_columns!(),
    " from auth.identities where identities.user_id = $1 order by identities.created_at, identities.id"
);
const FACTORS: &str = concat!(
    "select ",
    factor_columns!(),
    " from auth.mfa_factors as factors where factors.user_id = $1 order by factors.created_at, factors.id"
);

const INSERT: &str = "
    insert into auth.users
        (instance_id, id, aud, role, email, encrypted_password, email_confirmed_at, invited_at, confirmation_token,
         confirmation_sent_at, recovery_token, recovery_sent_at, email_change_token_new, email_change,
         email_change_sent_at, last_sign_in_at, raw_app_meta_data, raw_user_meta_data, created_at, updated_at, phone,
         phone_confirmed_at, phone_change, phone_change_token, phone_change_sent_at, email_change_token_current,
         email_change_confirm_status, banned_until, reauthentication_token, reauthentication_sent_at, is_sso_user,
         deleted_at, is_anonymous)
    values
        ('00000000-0000-0000-0000-000000000000', $1, $2, '', nullif($3, ''), $4, null, null, '',
         null, '', null, '', '',
         null, null, $6, $7, $8, $8, nullif($5, ''),
         null, '', '', null, '',
         0, null, '', null, $9,
         null, $10)";
const SET_ROLE: &str = "update auth.users set role = $2, updated_at = $3 where id = $1";
const SET_USER_METADATA: &str = "update auth.users set raw_user_meta_data = $2, updated_at = $3 where id = $1";
const SET_APP_METADATA: &str = "update auth.users set raw_app_meta_data = $2, updated_at = $3 where id = $1";
/// `provider` is that of the oldest identity, `providers` are all, by age. Someone without identities keeps what is there.
const REFRESH_PROVIDERS: &str = "
    update auth.users
       set raw_app_meta_data = coalesce(users.raw_app_meta_data, '{}')
                               || jsonb_build_object('provider', linked.providers -> 0, 'providers', linked.providers),
           updated_at = $2
      from (select jsonb_agg(oldest.provider order by oldest.first_made, oldest.provider) as providers
              from (select identities.provider, min(identities.created_at) as first_made
                      from auth.identities
                     where identities.user_id = $1
                     group by identities.provider) as oldest) as linked
     where users.id = $1
       and linked.providers is not null
       and (users.raw_app_meta_data -> 'providers') is distinct from linked.providers";
const CONFIRM_EMAIL: &str = "
    update auth.users
       set confirmation_token = '',
           email_confirmed_at = $2,
           is_anonymous = false,
           raw_user_meta_data = coalesce(raw_user_meta_data, '{}') || '{\"email_verified\": true}',
           updated_at = $2
     where id = $1";
const CONFIRM_PHONE: &str = "
    update auth.users
       set confirmation_token = '', phone_confirmed_at = $2, is_anonymous = false, updated_at = $2
     where id = $1";
const SET_CONFIRMATION: &str =
    "update auth.users set confirmation_token = $2, confirmation_sent_at = $3, updated_at = $3 where id = $1";
const SET_RECOVERY: &str =
    "update auth.users set recovery_token = $2, recovery_sent_at = $3, updated_at = $3 where id = $1";
const CLEAR_RECOVERY: &str = "update auth.users set recovery_token = '', updated_at = $2 where id = $1";
const SET_REAUTHENTICATION: &str =
    "update auth.users set reauthentication_token = $2, reauthentication_sent_at = $3, updated_at = $3 where id = $1";
const SET_EMAIL_CHANGE: &str = "
    update auth.users
       set email_change = $2,
           email_change_token_new = $3,
           email_change_token_current = $4,
           email_change_sent_at = $5,
           email_change_confirm_status = 0,
           updated_at = $5
     where id = $1";
/// The first of two confirmations: the token that was used is gone, the other one stays.
const CONFIRM_EMAIL_CHANGE_HALF: &str = "
    update auth.users
       set email_change_confirm_status = 1,
           email_change_token_new = case when email_change_token_new = $2 then '' else email_change_token_new end,
           email_change_token_current =
               case when email_change_token_current = $2 then '' else email_change_token_current end,
           updated_at = $3
     where id = $1";
const APPLY_EMAIL_CHANGE: &str = "
    update auth.users
       set email = $2::text,
           email_change = '',
           email_change_token_new = '',
           email_change_token_current = '',
           email_change_confirm_status = 0,
           email_confirmed_at = coalesce(email_confirmed_at, $3),
           is_anonymous = false,
           raw_user_meta_data = coalesce(raw_user_meta_data, '{}')
                                || jsonb_build_object('email', $2::text, 'email_verified', true),
           updated_at = $3
     where id = $1";
const SET_PHONE_CHANGE: &str = "
    update auth.users
       set phone_change = $2, phone_change_token = $3, phone_change_sent_at = $4, updated_at = $4
     where id = $1";
const APPLY_PHONE_CHANGE: &str = "
    update auth.users
       set phone = $2,
           phone_change = '',
           phone_change_token = '',
           phone_confirmed_at = $3,
           is_anonymous = false,
           updated_at = $3
     where id = $1";
/// A new password also ends every message that was on its way.
const SET_PASSWORD: &str = "
    update auth.users
       set encrypted_password = $2,
           confirmation_token = '',
           recovery_token = '',
           email_change_token_new = '',
           email_change_token_current = '',
           phone_change_token = '',
           reauthentication_token = '',
           updated_at = $3
     where id = $1";
/// Only if the password did not change meanwhile.
const REHASH_PASSWORD: &str = "
    update auth.users set encrypted_password = $3 where id = $1 and encrypted_password = $2";
/// Someone signs up again for an account that nobody confirmed: what they chose replaces what was there.
const REPLACE_CREDENTIALS: &str = "
    update auth.users set encrypted_password = $2, raw_user_meta_data = $3, updated_at = $4 where id = $1";

/// The message with token `$2` was not sent: the code is deleted, and the next message need not wait.
const UNDO_CONFIRMATION: &str = "
    update auth.users
       set confirmation_token = '', confirmation_sent_at = $3
     where id = $1 and confirmation_token = $2";
const UNDO_PHONE_CHANGE: &str = "
    update auth.users
       set phone_change = '', phone_change_token = '', phone_change_sent_at = $3
     where id = $1 and phone_change_token = $2";
const UNDO_REAUTHENTICATION: &str = "
    update auth.users
       set reauthentication_token = '', reauthentication_sent_at = $3
     where id = $1 and reauthentication_token = $2";
const DELETE_UNREACHED: &str = "
    delete from auth.users
     where id = $1
       and confirmation_token = $2
       and phone_confirmed_at is null
       and email_confirmed_at is null";

async fn one(run: &impl Run, sql: &str, params: Params<'_>) -> Result<Option<User>, Error> {
    Ok(run.rows(sql, params).await?.first().map(User::from_row))
}

/// The user, without identities and factors.
pub async fn by_id(run: &impl Run, id: UserId) -> Result<Option<User>, Error> {
    one(run, BY_ID, &[&id]).await
}

/// The user with identities and factors, in one round trip.
pub async fn complete(run: &impl Run, id: UserId) -> Result<Option<User>, Error> {
    complete_by(run, BY_ID, id).await
}

/// As [`complete`], and nobody else changes the user before the transaction ends.
pub async fn lock_complete(tx: &Tx, id: UserId) -> Result<Option<User>, Error> {
    complete_by(tx, LOCK_BY_ID, id).await
}

async fn complete_by(run: &impl Run, sql: &str, id: UserId) -> Result<Option<User>, Error> {
    let params: Params<'_> = &[&id];
    let (user, identities, factors) =
        tokio::join!(biased; one(run, sql, params), run.rows(IDENTITIES, params), run.rows(FACTORS, params));
    let Some(mut user) = user? else { return Ok(None) };
    user.identities = identities?.iter().map(Identity::from_row).collect();
    user.factors = factors?.iter().map(Factor::from_row).collect();
    Ok(Some(user))
}

/// The session of a bearer token, as far as requests need it.
#[derive(Debug, Clone)]
pub struct SessionSummary {
    /// `auth.sessions.id`
    pub id: crate::model::ids::SessionId,
    /// When the person signed in.
    pub created_at: Option<OffsetDateTime>,
    /// `aal1`, `aal2`
    pub aal: String,
}

/// A user with everything, and the session if it exists, in one round trip.
pub async fn signed_in(
    run: &impl Run,
    id: UserId,
    session: Option<crate::model::ids::SessionId>,
) -> Result<Option<(User, Option<SessionSummary>)>, Error> {
    let params: Params<'_> = &[&id];
    let both: Params<'_> = &[&id, &session];
    let (rows, identities, factors) =
        tokio::join!(biased; run.rows(SIGNED_IN, both), run.rows(IDENTITIES, params), run.rows(FACTORS, params));
    let rows = rows?;
    let Some(row) = rows.first() else { return Ok(None) };
    let mut user = User::from_row(row);
    user.identities = identities?.iter().map(Identity::from_row).collect();
    user.factors = factors?.iter().map(Factor::from_row).collect();
    let session = row.get::<_, Option<crate::model::ids::SessionId>>(User::COLUMN_COUNT).map(|id| SessionSummary {
        id,
        created_at: row.get(User::COLUMN_COUNT + 1),
        aal: row.get::<_, Option<String>>(User::COLUMN_COUNT + 2).unwrap_or_else(|| "aal1".to_owned()),
    });
    Ok(Some((user, session)))
}

/// The user with this address, not of a single sign-on domain.
pub async fn by_email(run: &impl Run, email: &EmailAddress, aud: &str) -> Result<Option<User>, Error> {
    one(run, BY_EMAIL, &[&email.as_str(), &aud]).await
}

/// As [`by_email`], and nobody else changes the user before the transaction ends.
pub async fn lock_by_email(tx: &Tx, email: &EmailAddress, aud: &str) -> Result<Option<User>, Error> {
    one(tx, LOCK_BY_EMAIL, &[&email.as_str(), &aud]).await
}

/// The user with this number.
pub async fn by_phone(run: &impl Run, phone: &PhoneNumber, aud: &str) -> Result<Option<User>, Error> {
    one(run, BY_PHONE, &[&phone.as_str(), &aud]).await
}

/// As [`by_phone`], and nobody else changes the user before the transaction ends.
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

/// As [`by_contact`]; locks the row.
pub async fn lock_by_contact(tx: &Tx, contact: &Contact, aud: &str) -> Result<Option<User>, Error> {
    match contact {
        Contact::Email(email) => lock_by_email(tx, email, aud).await,
        Contact::Phone(phone) => lock_by_phone(tx, phone, aud).await,
    }
}

/// The user to whom one of the kinds of token with this hash was sent; locked. The caller compares the column again.
pub async fn lock_by_token(tx: &Tx, hash: &str, kinds: &[&str]) -> Result<Option<User>, Error> {
    one(tx, LOCK_BY_TOKEN, &[&hash, &kinds]).await
}

/// Who has the address in the default linking domain, as their own or by an identity; locked.
pub async fn lock_owner_of_email(
    tx: &Tx,
    email: &EmailAddress,
    aud: &str,
    other_domain_providers: &[String],
    except: Option<UserId>,
) -> Result<Option<User>, Error> {
    one(tx, LOCK_OWNER_OF_EMAIL, &[&email.as_str(), &aud, &other_domain_providers, &except]).await
}

/// A row to insert.
#[derive(Debug, Clone)]
pub struct NewUser<'a> {
    /// Primary key.
    pub id: UserId,
    /// Audience.
    pub aud: &'a str,
    /// Empty: none.
    pub email: &'a str,
    /// Empty: none.
    pub phone: &'a str,
    /// A hash; empty: none.
    pub encrypted_password: &'a str,
    /// `raw_app_meta_data`
    pub app_metadata: JsonObject,
    /// `raw_user_meta_data`
    pub user_metadata: JsonObject,
    /// Belongs to another linking domain than `default`.
    pub is_sso_user: bool,
    /// Signed in without a name.
    pub is_anonymous: bool,
}

/// Inserts a user, with an empty role as triggers know it from the reference; [`set_role`] follows.
pub async fn insert(tx: &Tx, user: &NewUser<'_>, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(
        INSERT,
        &[
            &user.id,
            &user.aud,
            &user.email,
            &user.encrypted_password,
            &user.phone,
            &Value::Object(user.app_metadata.clone()),
            &Value::Object(user.user_metadata.clone()),
            &now,
            &user.is_sso_user,
            &user.is_anonymous,
        ],
    )
    .await
    .map(drop)
}

/// Sets the database role.
pub async fn set_role(tx: &Tx, id: UserId, role: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_ROLE, &[&id, &role, &now]).await.map(drop)
}

/// Replaces `user_metadata`.
pub async fn set_user_metadata(tx: &Tx, id: UserId, data: &JsonObject, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_USER_METADATA, &[&id, &Value::Object(data.clone()), &now]).await.map(drop)
}

/// Replaces `app_metadata`.
pub async fn set_app_metadata(tx: &Tx, id: UserId, data: &JsonObject, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_APP_METADATA, &[&id, &Value::Object(data.clone()), &now]).await.map(drop)
}

/// Recomputes `provider` and `providers` of `app_metadata` from the identities.
pub async fn refresh_providers(tx: &Tx, id: UserId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(REFRESH_PROVIDERS, &[&id, &now]).await.map(drop)
}

/// The address belongs to the person.
pub async fn confirm_email(tx: &Tx, id: UserId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(CONFIRM_EMAIL, &[&id, &now]).await.map(drop)
}

/// The number belongs to the person.
pub async fn confirm_phone(tx: &Tx, id: UserId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(CONFIRM_PHONE, &[&id, &now]).await.map(drop)
}

/// A confirmation is on its way.
pub async fn set_confirmation(tx: &Tx, id: UserId, hash: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_CONFIRMATION, &[&id, &hash, &now]).await.map(drop)
}

/// A recovery or sign-in link is on its way.
pub async fn set_recovery(tx: &Tx, id: UserId, hash: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_RECOVERY, &[&id, &hash, &now]).await.map(drop)
}

/// The recovery token was used.
pub async fn clear_recovery(tx: &Tx, id: UserId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(CLEAR_RECOVERY, &[&id, &now]).await.map(drop)
}

/// A nonce is on its way, or (with an empty hash) was used.
pub async fn set_reauthentication(tx: &Tx, id: UserId, hash: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_REAUTHENTICATION, &[&id, &hash, &now]).await.map(drop)
}

/// A change of address is on its way.
pub async fn set_email_change(
    tx: &Tx,
    id: UserId,
    new: &EmailAddress,
    [hash_new, hash_current]: [&str; 2],
    now: OffsetDateTime,
) -> Result<(), Error> {
    tx.execute(SET_EMAIL_CHANGE, &[&id, &new.as_str(), &hash_new, &hash_current, &now]).await.map(drop)
}

/// The first of two confirmations of a change of address came, with the token of this hash.
pub async fn confirm_email_change_half(tx: &Tx, id: UserId, hash: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(CONFIRM_EMAIL_CHANGE_HALF, &[&id, &hash, &now]).await.map(drop)
}

/// The address is changed and confirmed.
pub async fn apply_email_change(tx: &Tx, id: UserId, new: &EmailAddress, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(APPLY_EMAIL_CHANGE, &[&id, &new.as_str(), &now]).await.map(drop)
}

/// A change of number is on its way.
pub async fn set_phone_change(
    tx: &Tx,
    id: UserId,
    new: &PhoneNumber,
    hash: &str,
    now: OffsetDateTime,
) -> Result<(), Error> {
    tx.execute(SET_PHONE_CHANGE, &[&id, &new.as_str(), &hash, &now]).await.map(drop)
}

/// The number is changed and confirmed.
pub async fn apply_phone_change(tx: &Tx, id: UserId, new: &PhoneNumber, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(APPLY_PHONE_CHANGE, &[&id, &new.as_str(), &now]).await.map(drop)
}

/// Sets the password and forgets every token that was sent.
pub async fn set_password(tx: &Tx, id: UserId, hash: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_PASSWORD, &[&id, &hash, &now]).await.map(drop)
}

/// The same password in a newer form.
pub async fn rehash_password(tx: &Tx, id: UserId, old: &str, new: &str) -> Result<(), Error> {
    tx.execute(REHASH_PASSWORD, &[&id, &old, &new]).await.map(drop)
}

/// What someone chose who signs up again for an unconfirmed account.
pub async fn replace_credentials(
    tx: &Tx,
    id: UserId,
    hash: &str,
    data: &JsonObject,
    now: OffsetDateTime,
) -> Result<(), Error> {
    tx.execute(REPLACE_CREDENTIALS, &[&id, &hash, &Value::Object(data.clone()), &now]).await.map(drop)
}

/// Undoes a message that was not sent: deletes its token, and restores the time of the message before it.
/// Writes only what the message itself wrote, which its token shows.
pub async fn undo_message(
    tx: &Tx,
    id: UserId,
    kind: TokenKind,
    hash: &str,
    sent_before: Option<OffsetDateTime>,
) -> Result<(), Error> {
    let sql = match kind {
        TokenKind::PhoneChange => UNDO_PHONE_CHANGE,
        TokenKind::Reauthentication => UNDO_REAUTHENTICATION,
        _ => UNDO_CONFIRMATION,
    };
    let row: Params<'_> = &[&id, &hash, &sent_before];
    let (undone, removed) = tokio::join!(biased; tx.execute(sql, row), one_time_tokens::delete_hash(tx, id, hash));
    undone?;
    removed
}

/// Deletes an account that was made for the message with this token and has confirmed nothing since. Returns
/// whether there was one.
pub async fn delete_unreached(tx: &Tx, id: UserId, hash: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE_UNREACHED, &[&id, &hash]).await? > 0)
}
