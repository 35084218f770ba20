//! The mails that carry a code and a link: each checks how often it may be sent, stores the token, remembers the flow of an
//! app with a proof key, and promises the mail. All in the caller's transaction.

use portico_mail::{MailKind, Variables};

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::RequestInfo;
use crate::messages::mailer;
use crate::model::User;
use crate::model::ids::EmailAddress;
use crate::oauth::pkce::Challenge;
use crate::one_time::token::{Kind, OneTimeToken};
use crate::protection::audit::{self, Action, AuditEvent};
use crate::sql::flow_state::{self, NewFlow, method};
use crate::sql::{Tx, one_time_tokens, users};

/// Too early for another mail of this kind?
fn check_interval(auth: &Auth, user: &User, kind: Kind) -> Result<(), AuthError> {
    match kind.wait(user, auth.settings().email.max_frequency, auth.now()) {
        Some(wait) => Err(AuthError::too_soon(wait, |seconds| ContractError::EmailTooSoon { seconds })),
        None => Ok(()),
    }
}

async fn begin_flow(
    tx: &Tx,
    user: &User,
    challenge: Option<&Challenge>,
    authentication_method: &str,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    let Some(challenge) = challenge else { return Ok(()) };
    let flow = NewFlow {
        challenge: Some(challenge),
        provider_type: if authentication_method == method::MAGIC_LINK { "magiclink" } else { "email" },
        authentication_method,
        user_id: Some(user.id),
        ..NewFlow::default()
    };
    flow_state::insert(tx, &flow, request.now).await?;
    Ok(())
}

fn with_link(auth: &Auth, user: &User, kind: MailKind, token: &OneTimeToken, request: &RequestInfo) -> Variables {
    let hash = token.hash.clone();
    Variables {
        confirmation_url: Some(mailer::confirmation_url(auth, kind, &hash, request)),
        token: Some(token.code.clone()),
        token_hash: Some(hash),
        redirect_to: Some(request.redirect_to.clone()),
        ..mailer::variables(auth, user)
    }
}

/// Confirmation of the address of a new account.
///
/// # Errors
/// 429 when it is too early, 400 when the address may not get mail.
pub(crate) async fn send_confirmation(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    challenge: Option<&Challenge>,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    check_interval(auth, user, Kind::Confirmation)?;
    let email = EmailAddress::from_stored(&user.email);
    mailer::check_recipient(auth, &email)?;
    mailer::count_mail(auth)?;
    let token = OneTimeToken::generate(email.as_str(), auth.settings().email.otp_length, challenge.is_some());
    let variables = with_link(auth, user, MailKind::Confirmation, &token, request);
    let (column, row, flow, mail) = tokio::join!(biased;
        users::set_confirmation(tx, user.id, &token.hash, request.now),
        one_time_tokens::put(tx, user.id, Kind::Confirmation.as_str(), &token.hash, email.as_str(), request.now),
        begin_flow(tx, user, challenge, method::EMAIL_SIGNUP, request),
        mailer::enqueue(auth, tx, MailKind::Confirmation, email.as_str(), &variables),
    );
    column?;
    row?;
    flow?;
    mail
}

/// Which of the two mails that share the recovery token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// A link to set a new password.
    Password,
    /// A link to sign in.
    MagicLink,
}

/// A link to set a new password, or to sign in.
///
/// # Errors
/// 429 when it is too early, 400 when the address may not get mail.
pub(crate) async fn send_recovery(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    which: Recovery,
    challenge: Option<&Challenge>,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    check_interval(auth, user, Kind::Recovery)?;
    let email = EmailAddress::from_stored(&user.email);
    mailer::check_recipient(auth, &email)?;
    mailer::count_mail(auth)?;
    let (kind, method) = match which {
        Recovery::Password => (MailKind::Recovery, method::RECOVERY),
        Recovery::MagicLink => (MailKind::MagicLink, method::MAGIC_LINK),
    };
    let token = OneTimeToken::generate(email.as_str(), auth.settings().email.otp_length, challenge.is_some());
    let variables = with_link(auth, user, kind, &token, request);
    let (audit, column, row, flow, mail) = tokio::join!(biased;
        audit::record(auth, tx, AuditEvent::new(user, Action::UserRecoveryRequested), request.now),
        users::set_recovery(tx, user.id, &token.hash, request.now),
        one_time_tokens::put(tx, user.id, Kind::Recovery.as_str(), &token.hash, email.as_str(), request.now),
        begin_flow(tx, user, challenge, method, request),
        mailer::enqueue(auth, tx, kind, email.as_str(), &variables),
    );
    audit?;
    column?;
    row?;
    flow?;
    mail
}

/// The nonce of a password change.
///
/// # Errors
/// 429 when it is too early, 400 when the address may not get mail.
pub(crate) async fn send_reauthentication(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    check_interval(auth, user, Kind::Reauthentication)?;
    let email = EmailAddress::from_stored(&user.email);
    mailer::check_recipient(auth, &email)?;
    mailer::count_mail(auth)?;
    let token = OneTimeToken::generate(email.as_str(), auth.settings().email.otp_length, false);
    let variables = Variables { token: Some(token.code.clone()), ..mailer::variables(auth, user) };
    let (audit, column, row, mail) = tokio::join!(biased;
        audit::record(auth, tx, AuditEvent::new(user, Action::UserReauthenticateRequested), request.now),
        users::set_reauthentication(tx, user.id, &token.hash, request.now),
        one_time_tokens::put(tx, user.id, Kind::Reauthentication.as_str(), &token.hash, email.as_str(), request.now),
        mailer::enqueue(auth, tx, MailKind::Reauthentication, email.as_str(), &variables),
    );
    audit?;
    column?;
    row?;
    mail
}

/// A change of address: to the new one, and to the current one if both must agree (auth-core 7.3).
///
/// # Errors
/// 429 when it is too early, 400 when the address may not get mail.
pub(crate) async fn send_email_change(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    new: &EmailAddress,
    challenge: Option<&Challenge>,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    check_interval(auth, user, Kind::EmailChangeNew)?;
    mailer::check_recipient(auth, new)?;
    mailer::count_mail(auth)?;
    let settings = auth.settings();
    let digits = settings.email.otp_length;
    let token_new = OneTimeToken::generate(new.as_str(), digits, challenge.is_some());
    let token_current = user
        .email_address()
        .filter(|_| settings.email.secure_change)
        .map(|current| (OneTimeToken::generate(current.as_str(), digits, challenge.is_some()), current));
    let hash_current = token_current.as_ref().map_or("", |(token, _)| token.hash.as_str());
    let letter = |token: &OneTimeToken, to: &EmailAddress| Variables {
        new_email: Some(new.to_string()),
        sending_to: Some(to.to_string()),
        ..with_link(auth, user, MailKind::EmailChange, token, request)
    };
    let to_new = letter(&token_new, new);
    let (columns, row, flow, mail) = tokio::join!(biased;
        users::set_email_change(tx, user.id, new, &token_new.hash, hash_current, request.now),
        one_time_tokens::put(tx, user.id, Kind::EmailChangeNew.as_str(), &token_new.hash, new.as_str(), request.now),
        begin_flow(tx, user, challenge, method::EMAIL_CHANGE, request),
        mailer::enqueue(auth, tx, MailKind::EmailChange, new.as_str(), &to_new),
    );
    columns?;
    row?;
    flow?;
    mail?;
    let kind = Kind::EmailChangeCurrent.as_str();
    match &token_current {
        Some((token, current)) => {
            let to_current = letter(token, current);
            let (row, mail) = tokio::join!(biased;
                one_time_tokens::put(tx, user.id, kind, &token.hash, current.as_str(), request.now),
                mailer::enqueue(auth, tx, MailKind::EmailChange, current.as_str(), &to_current),
            );
            row?;
            mail
        }
        None => Ok(one_time_tokens::delete_kind(tx, user.id, kind).await?),
    }
}

/// Confirmation of the address that a provider does not vouch for, which becomes the account's when
/// the link is followed. For the person it is the confirmation of a new account; the token belongs
/// to the pending change, so that it can prove no other address.
///
/// # Errors
/// 429 when it is too early, 400 when the address may not get mail.
pub(crate) async fn send_claim_confirmation(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    email: &EmailAddress,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    let kind = Kind::EmailChangeNew;
    check_interval(auth, user, kind)?;
    mailer::check_recipient(auth, email)?;
    mailer::count_mail(auth)?;
    let token = OneTimeToken::generate(email.as_str(), auth.settings().email.otp_length, false);
    let variables =
        Variables { email: email.to_string(), ..with_link(auth, user, MailKind::Confirmation, &token, request) };
    let (column, row, other, mail) = tokio::join!(biased;
        users::set_email_change(tx, user.id, email, &token.hash, "", request.now),
        one_time_tokens::put(tx, user.id, kind.as_str(), &token.hash, email.as_str(), request.now),
        one_time_tokens::delete_kind(tx, user.id, Kind::EmailChangeCurrent.as_str()),
        mailer::enqueue(auth, tx, MailKind::Confirmation, email.as_str(), &variables),
    );
    column?;
    row?;
    other?;
    mail
}

/// Does what sending a mail of this kind costs, and sends nothing: an address that gets no mail is answered as slowly as one
/// that does, and as often.
///
/// # Errors
/// The same as for a mail that is sent.
pub(crate) async fn pretend(
    auth: &Auth,
    tx: &Tx,
    kind: Kind,
    email: &EmailAddress,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    auth.limits().check_decoy_interval(kind, email.as_str(), auth.settings().email.max_frequency)?;
    mailer::check_recipient(auth, email)?;
    mailer::check_mail_budget(auth)?;
    let nobody = User { email: email.to_string(), ..crate::account::sign_up::blank(request) };
    let token = OneTimeToken::generate(email.as_str(), auth.settings().email.otp_length, false);
    let variables = with_link(auth, &nobody, MailKind::Recovery, &token, request);
    mailer::enqueue_decoy(auth, tx, MailKind::Recovery, &variables).await
}
