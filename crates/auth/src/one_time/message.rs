//! The messages that carry a one-time code and, in an email, a link.
//!
//! Each function checks how often such a message may be sent, stores the token, remembers the flow
//! of an app with a proof key, and writes the email or reserves the text message. All of it is part
//! of the caller's transaction; the caller delivers the message after the commit.

use portico_mail::{MailKind, Variables};
use serde_json::{Value, json};

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::hooks::{self, EmailData};
use crate::messages::mailer;
use crate::model::User;
use crate::model::contact::{Contact, ContactKind};
use crate::model::ids::{EmailAddress, PhoneNumber};
use crate::oauth::pkce::Challenge;
use crate::one_time::text_message::{ReservedText, reserve};
use crate::one_time::token::{OneTimeToken, TokenKind};
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, Traits};
use crate::settings::HookPoint;
use crate::sql::flow_state::{self, NewFlow, method};
use crate::sql::{one_time_tokens, users};

/// The choices of a request about the message that it causes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MessageOptions<'a> {
    /// The challenge of an app with a proof key; for emails only.
    pub(crate) challenge: Option<&'a Challenge>,
    /// The channel of a text message; empty is `sms`.
    pub(crate) channel: &'a str,
}

/// A message whose token is stored. It must be delivered when the transaction is committed.
#[must_use = "a text message is sent by `deliver` only"]
pub(crate) enum MessageDelivery {
    /// Nothing is left to do: an email is in the outbox.
    Complete,
    /// A text message that the gateway does not have yet.
    Text(Box<ReservedText>),
}

impl MessageDelivery {
    /// Marks the account as made for this message: it is removed when the message cannot be sent.
    pub(crate) fn of_new_account(self) -> Self {
        match self {
            Self::Complete => Self::Complete,
            Self::Text(text) => Self::Text(Box::new(text.of_new_account())),
        }
    }

    /// Delivers the message, and returns the body of the response.
    ///
    /// # Errors
    /// 422 `sms_send_failed`; the message is then undone.
    pub(crate) async fn deliver(self, auth: &Auth) -> Result<Value, AuthError> {
        match self {
            Self::Complete => Ok(json!({})),
            Self::Text(text) => text.deliver(auth).await,
        }
    }
}

/// Checks the limits of an email with a token, and makes the token.
fn prepare_mail(
    op: AccountOperation<'_>,
    user: &User,
    kind: TokenKind,
    to: &EmailAddress,
    is_pkce: bool,
) -> Result<OneTimeToken, AuthError> {
    let settings = &op.auth.settings().email;
    if let Some(wait) = kind.wait(user, settings.max_frequency, op.auth.now()) {
        return Err(AuthError::too_soon(wait, |seconds| ContractError::EmailTooSoon { seconds }));
    }
    op.auth.recipients().check(to)?;
    if op.request.hooks.is_first(format!("count mail {} {to}", kind.as_str())) {
        mailer::count_mail(op.auth)?;
    }
    Ok(make_token(op, kind, to, is_pkce))
}

/// Makes the token of an email, which is the same when the transaction runs again.
fn make_token(op: AccountOperation<'_>, kind: TokenKind, to: &EmailAddress, is_pkce: bool) -> OneTimeToken {
    let entropy = op.request.hooks.bytes(&format!("token {} {to}", kind.as_str()));
    OneTimeToken::from_entropy(entropy, to.as_str(), op.auth.settings().email.otp_length, is_pkce)
}

/// Sends an email to the address of `user`, by the hook or through the outbox.
async fn send(op: AccountOperation<'_>, user: &User, kind: MailKind, variables: &Variables) -> Result<(), AuthError> {
    if op.auth.hooks().has(HookPoint::SendEmail) {
        return Box::pin(hooks::send_email(op, user, kind, EmailData::of(variables))).await;
    }
    op.auth.mailer().enqueue(op.tx, kind, &user.email, variables).await
}

/// Sends a notification to the address of `user`, if it is enabled, by the hook or through the
/// outbox. A failure of the hook, or of a template, does not fail the operation.
///
/// # Errors
/// Those of the database.
pub(crate) async fn notify(
    op: AccountOperation<'_>,
    user: &User,
    kind: MailKind,
    variables: &Variables,
) -> Result<(), AuthError> {
    if !op.auth.hooks().has(HookPoint::SendEmail) {
        return op.auth.mailer().notify(op.tx, kind, &user.email, variables).await;
    }
    if !op.auth.settings().notifies(kind) || EmailAddress::parse(&user.email).is_err() {
        return Ok(());
    }
    Box::pin(hooks::send_notification(op, user, kind, EmailData::of(variables))).await
}

async fn store_token(
    op: AccountOperation<'_>,
    user: &User,
    kind: TokenKind,
    token: &OneTimeToken,
    sent_to: &str,
) -> Result<(), tokio_postgres::Error> {
    one_time_tokens::put(op.tx, user.id, kind.as_str(), &token.hash, sent_to, op.now()).await
}

async fn begin_flow(
    op: AccountOperation<'_>,
    user: &User,
    challenge: Option<&Challenge>,
    authentication_method: &str,
) -> Result<(), AuthError> {
    let Some(challenge) = challenge else { return Ok(()) };
    let flow = NewFlow {
        challenge: Some(challenge),
        provider_type: if authentication_method == method::MAGIC_LINK { "magiclink" } else { "email" },
        authentication_method,
        user_id: Some(user.id),
        ..NewFlow::default()
    };
    flow_state::insert(op.tx, &flow, op.now()).await?;
    Ok(())
}

fn variables_with_link(op: AccountOperation<'_>, user: &User, kind: MailKind, token: &OneTimeToken) -> Variables {
    let hash = token.hash.clone();
    Variables {
        confirmation_url: Some(mailer::confirmation_url(op.auth, kind, &hash, op.request)),
        token: Some(token.code.clone()),
        token_hash: Some(hash),
        redirect_to: Some(op.request.redirect_to.clone()),
        ..mailer::variables(op.auth, user)
    }
}

/// Sends the confirmation of the contact of an account. For a confirmed phone number its code signs
/// in.
///
/// # Errors
/// 429 when it is too soon, 400 when the contact may not get messages.
pub(crate) async fn send_confirmation(
    op: AccountOperation<'_>,
    user: &User,
    contact: ContactKind,
    options: MessageOptions<'_>,
) -> Result<MessageDelivery, AuthError> {
    if contact == ContactKind::Phone {
        let phone = PhoneNumber::parse(&user.phone)?;
        return reserve(op, user, TokenKind::Confirmation, &phone, options.channel)
            .await
            .map(|text| MessageDelivery::Text(Box::new(text)));
    }
    let (kind, challenge) = (TokenKind::Confirmation, options.challenge);
    let email = EmailAddress::from_stored(&user.email);
    let token = prepare_mail(op, user, kind, &email, challenge.is_some())?;
    let variables = variables_with_link(op, user, MailKind::Confirmation, &token);
    let (column, row, flow, mail) = tokio::join!(biased;
        users::set_confirmation(op.tx, user.id, &token.hash, op.now()),
        store_token(op, user, kind, &token, email.as_str()),
        begin_flow(op, user, challenge, method::EMAIL_SIGNUP),
        send(op, user, MailKind::Confirmation, &variables),
    );
    column?;
    row?;
    flow?;
    mail?;
    Ok(MessageDelivery::Complete)
}

/// Sends an invitation. Unlike other emails it does not wait for an interval: an administrator
/// sends it.
///
/// # Errors
/// 429 when too many emails were sent, 400 when the address may not get email.
pub(crate) async fn send_invitation(op: AccountOperation<'_>, user: &User) -> Result<(), AuthError> {
    let kind = TokenKind::Confirmation;
    let email = EmailAddress::from_stored(&user.email);
    op.auth.recipients().check(&email)?;
    if op.request.hooks.is_first(format!("count invitation {email}")) {
        mailer::count_mail(op.auth)?;
    }
    let token = make_token(op, kind, &email, false);
    let variables = variables_with_link(op, user, MailKind::Invite, &token);
    let (column, row, mail) = tokio::join!(biased;
        users::set_invitation(op.tx, user.id, &token.hash, op.now()),
        store_token(op, user, kind, &token, email.as_str()),
        send(op, user, MailKind::Invite, &variables),
    );
    column?;
    row?;
    mail
}

/// The two emails that share the recovery token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecoveryMail {
    /// A link to set a new password.
    Password,
    /// A link to sign in.
    MagicLink,
}

/// Sends a link to set a new password, or to sign in.
///
/// # Errors
/// 429 when it is too soon, 400 when the address may not get email.
pub(crate) async fn send_recovery(
    op: AccountOperation<'_>,
    user: &User,
    which: RecoveryMail,
    challenge: Option<&Challenge>,
) -> Result<(), AuthError> {
    let kind = TokenKind::Recovery;
    let email = EmailAddress::from_stored(&user.email);
    let token = prepare_mail(op, user, kind, &email, challenge.is_some())?;
    let (mail_kind, method) = match which {
        RecoveryMail::Password => (MailKind::Recovery, method::RECOVERY),
        RecoveryMail::MagicLink => (MailKind::MagicLink, method::MAGIC_LINK),
    };
    let variables = variables_with_link(op, user, mail_kind, &token);
    let (audit, column, row, flow, mail) = tokio::join!(biased;
        op.record(user, Action::UserRecoveryRequested, Traits::new()),
        users::set_recovery(op.tx, user.id, &token.hash, op.now()),
        store_token(op, user, kind, &token, email.as_str()),
        begin_flow(op, user, challenge, method),
        send(op, user, mail_kind, &variables),
    );
    audit?;
    column?;
    row?;
    flow?;
    mail
}

/// Sends the nonce of a password change to a contact of an account.
///
/// # Errors
/// 429 when it is too soon, 400 when the contact may not get messages.
pub(crate) async fn send_reauthentication(
    op: AccountOperation<'_>,
    user: &User,
    contact: ContactKind,
) -> Result<MessageDelivery, AuthError> {
    let kind = TokenKind::Reauthentication;
    let action = Action::UserReauthenticateRequested;
    if contact == ContactKind::Phone {
        let phone = PhoneNumber::parse(&user.phone)?;
        op.record(user, action, Traits::new()).await?;
        return reserve(op, user, kind, &phone, "sms").await.map(|text| MessageDelivery::Text(Box::new(text)));
    }
    let email = EmailAddress::from_stored(&user.email);
    let token = prepare_mail(op, user, kind, &email, false)?;
    let variables = Variables { token: Some(token.code.clone()), ..mailer::variables(op.auth, user) };
    let (audit, column, row, mail) = tokio::join!(biased;
        op.record(user, action, Traits::new()),
        users::set_reauthentication(op.tx, user.id, &token.hash, op.now()),
        store_token(op, user, kind, &token, email.as_str()),
        send(op, user, MailKind::Reauthentication, &variables),
    );
    audit?;
    column?;
    row?;
    mail?;
    Ok(MessageDelivery::Complete)
}

/// Sends the confirmation of a change to a new contact. A new address is confirmed there, and at
/// the current address too where the settings demand both.
///
/// # Errors
/// 429 when it is too soon, 400 when the contact may not get messages.
pub(crate) async fn send_change(
    op: AccountOperation<'_>,
    user: &User,
    new: &Contact,
    options: MessageOptions<'_>,
) -> Result<MessageDelivery, AuthError> {
    match new {
        Contact::Email(email) => {
            send_email_change(op, user, email, options.challenge).await.map(|()| MessageDelivery::Complete)
        }
        Contact::Phone(phone) => reserve(op, user, TokenKind::PhoneChange, phone, options.channel)
            .await
            .map(|text| MessageDelivery::Text(Box::new(text))),
    }
}

async fn send_email_change(
    op: AccountOperation<'_>,
    user: &User,
    new: &EmailAddress,
    challenge: Option<&Challenge>,
) -> Result<(), AuthError> {
    let kind = TokenKind::EmailChangeNew;
    let token_new = prepare_mail(op, user, kind, new, challenge.is_some())?;
    let settings = &op.auth.settings().email;
    let token_current = user
        .email_address()
        .filter(|_| settings.secure_change)
        .map(|current| (make_token(op, TokenKind::EmailChangeCurrent, &current, challenge.is_some()), current));
    let hash_current = token_current.as_ref().map_or("", |(token, _)| token.hash.as_str());
    let variables = |token: &OneTimeToken, to: &EmailAddress| Variables {
        new_email: Some(new.to_string()),
        sending_to: Some(to.to_string()),
        ..variables_with_link(op, user, MailKind::EmailChange, token)
    };
    let (columns, row, flow) = tokio::join!(biased;
        users::set_email_change(op.tx, user.id, new, [&token_new.hash, hash_current], op.now()),
        store_token(op, user, kind, &token_new, new.as_str()),
        begin_flow(op, user, challenge, method::EMAIL_CHANGE),
    );
    columns?;
    row?;
    flow?;
    match &token_current {
        Some((token, current)) => {
            store_token(op, user, TokenKind::EmailChangeCurrent, token, current.as_str()).await?;
        }
        None => one_time_tokens::delete_kind(op.tx, user.id, TokenKind::EmailChangeCurrent.as_str()).await?,
    }
    if op.auth.hooks().has(HookPoint::SendEmail) {
        let user = User { email_change: new.to_string(), ..user.clone() };
        let current = token_current.as_ref().map(|(token, _)| token);
        let data = change_data(&token_new, current);
        return Box::pin(hooks::send_email(op, &user, MailKind::EmailChange, data)).await;
    }
    op.auth.mailer().enqueue(op.tx, MailKind::EmailChange, new.as_str(), &variables(&token_new, new)).await?;
    match &token_current {
        Some((token, current)) => {
            let to_current = variables(token, current);
            op.auth.mailer().enqueue(op.tx, MailKind::EmailChange, current.as_str(), &to_current).await
        }
        None => Ok(()),
    }
}

/// Returns the data of a change of address for the hook. Where both addresses confirm it, codes and
/// links are crossed: receivers expect the code for the current address beside the link for the new
/// one.
fn change_data(new: &OneTimeToken, current: Option<&OneTimeToken>) -> EmailData {
    let new = new.clone();
    match current.cloned() {
        Some(current) => EmailData {
            token: current.code,
            token_hash: new.hash,
            token_new: new.code,
            token_hash_new: current.hash,
            ..EmailData::default()
        },
        None => EmailData { token: new.code, token_hash: new.hash, ..EmailData::default() },
    }
}

/// Sends the confirmation of an address that a provider does not vouch for, which becomes the
/// account's when the link is followed. The person sees the confirmation of a new account; the
/// token belongs to the pending change, so that it can prove no other address.
///
/// # Errors
/// 429 when it is too soon, 400 when the address may not get email.
pub(crate) async fn send_claim_confirmation(
    op: AccountOperation<'_>,
    user: &User,
    email: &EmailAddress,
) -> Result<(), AuthError> {
    let kind = TokenKind::EmailChangeNew;
    let token = prepare_mail(op, user, kind, email, false)?;
    let variables =
        Variables { email: email.to_string(), ..variables_with_link(op, user, MailKind::Confirmation, &token) };
    let recipient = User { email: email.to_string(), ..user.clone() };
    let (column, row, other, mail) = tokio::join!(biased;
        users::set_email_change(op.tx, user.id, email, [&token.hash, ""], op.now()),
        store_token(op, user, kind, &token, email.as_str()),
        one_time_tokens::delete_kind(op.tx, user.id, TokenKind::EmailChangeCurrent.as_str()),
        // To the address that is claimed, which the account does not have yet
        send(op, &recipient, MailKind::Confirmation, &variables),
    );
    column?;
    row?;
    other?;
    mail
}

/// Notifies the owner of an account of a sign-up with its address. The caller learns
/// nothing: the request takes as long, and is allowed as often, as for an address that must be
/// confirmed.
///
/// # Errors
/// The same as for a confirmation.
pub(crate) async fn send_account_exists(
    op: AccountOperation<'_>,
    owner: &User,
    email: &EmailAddress,
) -> Result<(), AuthError> {
    let settings = &op.auth.settings().email;
    op.auth.limits().check_decoy_interval(TokenKind::Confirmation, email.as_str(), settings.max_frequency)?;
    op.auth.recipients().check(email)?;
    mailer::count_mail(op.auth)?;
    let variables = Variables {
        email: email.to_string(),
        sign_in_url: settings.sign_in_page.clone(),
        ..mailer::variables(op.auth, owner)
    };
    op.auth.mailer().enqueue(op.tx, MailKind::AccountExists, email.as_str(), &variables).await
}

/// Does the work of sending an email of this kind, and sends nothing: for an address that gets no
/// email the response comes as slowly as for one that does, and as often.
///
/// # Errors
/// The same as for an email that is sent.
pub(crate) async fn enqueue_decoy(
    op: AccountOperation<'_>,
    kind: TokenKind,
    email: &EmailAddress,
) -> Result<(), AuthError> {
    let settings = &op.auth.settings().email;
    if op.request.hooks.is_first(format!("decoy {} {email}", kind.as_str())) {
        op.auth.limits().check_decoy_interval(kind, email.as_str(), settings.max_frequency)?;
        op.auth.recipients().check(email)?;
        mailer::check_mail_budget(op.auth)?;
    }
    op.request.hooks.note_decoy();
    let unknown = User { email: email.to_string(), ..User::without_facts(&op.request.aud, op.now()) };
    let token = OneTimeToken::generate(email.as_str(), settings.otp_length, false);
    let variables = variables_with_link(op, &unknown, MailKind::Recovery, &token);
    op.auth.mailer().enqueue_decoy(op.tx, MailKind::Recovery, &variables).await
}
