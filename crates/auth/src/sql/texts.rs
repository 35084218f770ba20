//! What is undone when a text message was not sent. Only what the message itself wrote: its token tells.

use time::OffsetDateTime;
use tokio_postgres::Error;

use super::{Params, Tx};
use crate::model::ids::UserId;
use crate::one_time::token::Kind;

/// Every statement of this file.
pub const ALL: &[(&str, &str)] = &[
    ("texts::FORGET_CONFIRMATION", FORGET_CONFIRMATION),
    ("texts::FORGET_PHONE_CHANGE", FORGET_PHONE_CHANGE),
    ("texts::FORGET_REAUTHENTICATION", FORGET_REAUTHENTICATION),
    ("texts::FORGET_TOKEN", FORGET_TOKEN),
    ("texts::DELETE_UNREACHED", DELETE_UNREACHED),
];

const FORGET_CONFIRMATION: &str = "
    update auth.users
       set confirmation_token = '', confirmation_sent_at = $3
     where id = $1 and confirmation_token = $2";
const FORGET_PHONE_CHANGE: &str = "
    update auth.users
       set phone_change = '', phone_change_token = '', phone_change_sent_at = $3
     where id = $1 and phone_change_token = $2";
const FORGET_REAUTHENTICATION: &str = "
    update auth.users
       set reauthentication_token = '', reauthentication_sent_at = $3
     where id = $1 and reauthentication_token = $2";
const FORGET_TOKEN: &str = "delete from auth.one_time_tokens where user_id = $1 and token_hash = $2";
const DELETE_UNREACHED: &str = "
    delete from auth.users
     where id = $1
       and confirmation_token = $2
       and phone_confirmed_at is null
       and email_confirmed_at is null";

/// The message with this token was not sent: its code is worth nothing, and the next one need not wait for it.
pub async fn forget(
    tx: &Tx,
    user: UserId,
    kind: Kind,
    hash: &str,
    sent_before: Option<OffsetDateTime>,
) -> Result<(), Error> {
    let sql = match kind {
        Kind::PhoneChange => FORGET_PHONE_CHANGE,
        Kind::Reauthentication => FORGET_REAUTHENTICATION,
        _ => FORGET_CONFIRMATION,
    };
    let (row, token): (Params<'_>, Params<'_>) = (&[&user, &hash, &sent_before], &[&user, &hash]);
    let (forgotten, removed) = tokio::join!(biased; tx.execute(sql, row), tx.execute(FORGET_TOKEN, token));
    forgotten?;
    removed.map(drop)
}

/// Removes an account that was made for the message with this token and that nobody confirmed meanwhile. Returns whether
/// it was there.
pub async fn delete_unreached(tx: &Tx, user: UserId, hash: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE_UNREACHED, &[&user, &hash]).await? > 0)
}
