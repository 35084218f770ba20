//! The statements that confirm and change the contacts of an account, and store its one-time
//! tokens.

use time::OffsetDateTime;
use tokio_postgres::Error;

use crate::model::ids::{EmailAddress, PhoneNumber, UserId};
use crate::one_time::token::TokenKind;
use crate::sql::{Params, Tx, one_time_tokens};

statements! {
    const CONFIRM_EMAIL = "
        update auth.users
           set confirmation_token = '',
               email_confirmed_at = $2,
               is_anonymous = false,
               raw_user_meta_data = coalesce(raw_user_meta_data, '{}') || '{\"email_verified\": true}',
               updated_at = $2
         where id = $1";
    const CONFIRM_PHONE = "
        update auth.users
           set confirmation_token = '', phone_confirmed_at = $2, is_anonymous = false, updated_at = $2
         where id = $1";
    const SET_CONFIRMATION =
        "update auth.users set confirmation_token = $2, confirmation_sent_at = $3, updated_at = $3 where id = $1";
    const SET_RECOVERY =
        "update auth.users set recovery_token = $2, recovery_sent_at = $3, updated_at = $3 where id = $1";
    const CLEAR_RECOVERY = "update auth.users set recovery_token = '', updated_at = $2 where id = $1";
    const SET_REAUTHENTICATION =
        "update auth.users set reauthentication_token = $2, reauthentication_sent_at = $3, updated_at = $3 where id = $1";
    const SET_EMAIL_CHANGE = "
        update auth.users
           set email_change = $2,
               email_change_token_new = $3,
               email_change_token_current = $4,
               email_change_sent_at = $5,
               email_change_confirm_status = 0,
               updated_at = $5
         where id = $1";
    /// The first of two confirmations: deletes the token that was used and keeps the other one.
    const CONFIRM_EMAIL_CHANGE_HALF = "
        update auth.users
           set email_change_confirm_status = 1,
               email_change_token_new = case when email_change_token_new = $2 then '' else email_change_token_new end,
               email_change_token_current =
                   case when email_change_token_current = $2 then '' else email_change_token_current end,
               updated_at = $3
         where id = $1";
    const APPLY_EMAIL_CHANGE = "
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
    const SET_PHONE_CHANGE = "
        update auth.users
           set phone_change = $2, phone_change_token = $3, phone_change_sent_at = $4, updated_at = $4
         where id = $1";
    const APPLY_PHONE_CHANGE = "
        update auth.users
           set phone = $2,
               phone_change = '',
               phone_change_token = '',
               phone_confirmed_at = $3,
               is_anonymous = false,
               updated_at = $3
         where id = $1";
    /// The message with token `$2` was not sent: the code is deleted, and the next message need not
    /// wait.
    const UNDO_CONFIRMATION = "
        update auth.users
           set confirmation_token = '', confirmation_sent_at = $3
         where id = $1 and confirmation_token = $2";
    const UNDO_PHONE_CHANGE = "
        update auth.users
           set phone_change = '', phone_change_token = '', phone_change_sent_at = $3
         where id = $1 and phone_change_token = $2";
    const UNDO_REAUTHENTICATION = "
        update auth.users
           set reauthentication_token = '', reauthentication_sent_at = $3
         where id = $1 and reauthentication_token = $2";
    const DELETE_UNREACHED = "
        delete from auth.users
         where id = $1
           and confirmation_token = $2
           and phone_confirmed_at is null
           and email_confirmed_at is null";
    const ADOPT_EMAIL = "update auth.users set email = $2, updated_at = $3 where id = $1";
    /// Makes the address of another identity the account's, and invalidates messages to the old
    /// one.
    const PROMOTE_EMAIL = "
        update auth.users
           set email = nullif($2, ''),
               email_confirmed_at = case when $3 then coalesce(email_confirmed_at, $4) end,
               raw_user_meta_data = case when $3 then raw_user_meta_data
                                         else coalesce(raw_user_meta_data, '{}') || '{\"email_verified\": false}' end,
               confirmation_token = '',
               recovery_token = '',
               email_change = '',
               email_change_token_new = '',
               email_change_token_current = '',
               email_change_confirm_status = 0,
               phone_change = '',
               phone_change_token = '',
               reauthentication_token = '',
               updated_at = $4
         where id = $1";
    /// An address that an administrator sets. Messages to the one before are invalid.
    const REPLACE_EMAIL = "
        update auth.users
           set email = $2,
               confirmation_token = '',
               recovery_token = '',
               email_change = '',
               email_change_token_new = '',
               email_change_token_current = '',
               email_change_confirm_status = 0,
               reauthentication_token = '',
               updated_at = $3
         where id = $1";
    const REPLACE_PHONE = "
        update auth.users
           set phone = $2,
               confirmation_token = '',
               phone_change = '',
               phone_change_token = '',
               reauthentication_token = '',
               updated_at = $3
         where id = $1";
    /// Changes nothing for a user without a change that waits for its confirmation.
    const WITHDRAW_CHANGES = "
        update auth.users
           set email_change = '',
               email_change_token_new = '',
               email_change_token_current = '',
               email_change_confirm_status = 0,
               phone_change = '',
               phone_change_token = '',
               updated_at = $2
         where id = $1
           and (email_change <> '' or phone_change <> '')";
    const SET_INVITATION = "
        update auth.users
           set confirmation_token = $2, confirmation_sent_at = $3, invited_at = $3, updated_at = $3
         where id = $1";
    const CLEAR_PHONE =
        "update auth.users set phone = null, phone_confirmed_at = null, updated_at = $2 where id = $1";
}

/// Marks the address as confirmed.
pub async fn confirm_email(tx: &Tx, id: UserId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(CONFIRM_EMAIL, &[&id, &now]).await.map(drop)
}

/// Marks the number as confirmed.
pub async fn confirm_phone(tx: &Tx, id: UserId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(CONFIRM_PHONE, &[&id, &now]).await.map(drop)
}

/// Stores the token of a confirmation.
pub async fn set_confirmation(tx: &Tx, id: UserId, hash: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_CONFIRMATION, &[&id, &hash, &now]).await.map(drop)
}

/// Stores the token of a recovery or sign-in link.
pub async fn set_recovery(tx: &Tx, id: UserId, hash: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_RECOVERY, &[&id, &hash, &now]).await.map(drop)
}

/// Deletes the recovery token, which was used.
pub async fn clear_recovery(tx: &Tx, id: UserId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(CLEAR_RECOVERY, &[&id, &now]).await.map(drop)
}

/// Stores the token of a nonce; an empty one deletes it.
pub async fn set_reauthentication(tx: &Tx, id: UserId, hash: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_REAUTHENTICATION, &[&id, &hash, &now]).await.map(drop)
}

/// Stores a pending change of address, with the tokens for the new and the current one.
pub async fn set_email_change(
    tx: &Tx,
    id: UserId,
    new: &EmailAddress,
    [hash_new, hash_current]: [&str; 2],
    now: OffsetDateTime,
) -> Result<(), Error> {
    tx.execute(SET_EMAIL_CHANGE, &[&id, &new.as_str(), &hash_new, &hash_current, &now]).await.map(drop)
}

/// Records the first of two confirmations of a change of address, by the token with this hash.
pub async fn confirm_email_change_half(tx: &Tx, id: UserId, hash: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(CONFIRM_EMAIL_CHANGE_HALF, &[&id, &hash, &now]).await.map(drop)
}

/// Applies a confirmed change of address.
pub async fn apply_email_change(tx: &Tx, id: UserId, new: &EmailAddress, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(APPLY_EMAIL_CHANGE, &[&id, &new.as_str(), &now]).await.map(drop)
}

/// Stores a pending change of number.
pub async fn set_phone_change(
    tx: &Tx,
    id: UserId,
    new: &PhoneNumber,
    hash: &str,
    now: OffsetDateTime,
) -> Result<(), Error> {
    tx.execute(SET_PHONE_CHANGE, &[&id, &new.as_str(), &hash, &now]).await.map(drop)
}

/// Applies a confirmed change of number.
pub async fn apply_phone_change(tx: &Tx, id: UserId, new: &PhoneNumber, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(APPLY_PHONE_CHANGE, &[&id, &new.as_str(), &now]).await.map(drop)
}

/// Undoes a message that was not sent: deletes its token, and restores the time of the message
/// before it. Writes only what the message itself wrote, which its token shows.
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

/// Deletes an account that was made for the message with this token and has confirmed nothing
/// since. Returns true if there was one.
pub async fn delete_unreached(tx: &Tx, id: UserId, hash: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE_UNREACHED, &[&id, &hash]).await? > 0)
}

/// Gives an address to an account without one.
pub async fn adopt_email(tx: &Tx, user: UserId, address: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(ADOPT_EMAIL, &[&user, &address, &now]).await.map(drop)
}

/// Makes `address` the account's own, `confirmed` or not. An empty one removes the address.
pub async fn promote_email(
    tx: &Tx,
    user: UserId,
    address: &str,
    confirmed: bool,
    now: OffsetDateTime,
) -> Result<(), Error> {
    replace(tx, user, PROMOTE_EMAIL, &[&user, &address, &confirmed, &now]).await
}

/// Replaces the address of an account, and invalidates the messages to the one before.
pub async fn replace_email(tx: &Tx, user: UserId, email: &EmailAddress, now: OffsetDateTime) -> Result<(), Error> {
    replace(tx, user, REPLACE_EMAIL, &[&user, &email.as_str(), &now]).await
}

/// Replaces the number of an account, and invalidates the messages to the one before.
pub async fn replace_phone(tx: &Tx, user: UserId, phone: &PhoneNumber, now: OffsetDateTime) -> Result<(), Error> {
    replace(tx, user, REPLACE_PHONE, &[&user, &phone.as_str(), &now]).await
}

/// Runs a statement that replaces a contact, and invalidates the messages to the one before.
async fn replace(tx: &Tx, user: UserId, statement: &str, row: Params<'_>) -> Result<(), Error> {
    let (replaced, tokens) =
        tokio::join!(biased; tx.execute(statement, row), one_time_tokens::delete_all(tx, user));
    replaced?;
    tokens
}

/// Withdraws the changes of address and number that wait for their confirmation.
pub async fn withdraw_changes(tx: &Tx, user: UserId, now: OffsetDateTime) -> Result<(), Error> {
    let kinds = [TokenKind::EmailChangeNew, TokenKind::EmailChangeCurrent, TokenKind::PhoneChange];
    let kinds = kinds.map(TokenKind::as_str);
    let row: Params<'_> = &[&user, &now];
    let (withdrawn, tokens) = tokio::join!(biased;
        tx.execute(WITHDRAW_CHANGES, row),
        one_time_tokens::delete_kinds(tx, user, &kinds),
    );
    withdrawn?;
    tokens
}

/// Stores the token of an invitation.
pub async fn set_invitation(tx: &Tx, id: UserId, hash: &str, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(SET_INVITATION, &[&id, &hash, &now]).await.map(drop)
}

/// Removes the number of an account.
pub async fn clear_phone(tx: &Tx, user: UserId, now: OffsetDateTime) -> Result<(), Error> {
    tx.execute(CLEAR_PHONE, &[&user, &now]).await.map(drop)
}
