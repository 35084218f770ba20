//! `POST /admin/generate_link`: the link and the code of an email, for an application that sends
//! its emails itself.

use axum::extract::State;
use portico_mail::MailKind;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{invitation, record};
use crate::Auth;
use crate::account::contact;
use crate::admin::administrator::Administrator;
use crate::error::{AuthError, ContractError};
use crate::hooks;
use crate::http::extract::{Json, RequestInfo};
use crate::messages::mailer;
use crate::model::contact::Contact;
use crate::model::ids::EmailAddress;
use crate::model::metadata;
use crate::model::{JsonObject, User};
use crate::one_time::token::{OneTimeToken, TokenKind};
use crate::operation::AccountOperation;
use crate::protection::audit::Action;
use crate::sql::{Tx, one_time_tokens, users};

/// The body of `POST /admin/generate_link`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct LinkRequest {
    r#type: String,
    email: String,
    new_email: String,
    password: String,
    data: Option<JsonObject>,
    redirect_to: String,
}

/// The type of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkType {
    SignUp,
    Invite,
    MagicLink,
    Recovery,
    EmailChangeCurrent,
    EmailChangeNew,
}

impl LinkType {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "signup" => Self::SignUp,
            "invite" => Self::Invite,
            "magiclink" => Self::MagicLink,
            "recovery" => Self::Recovery,
            "email_change_current" => Self::EmailChangeCurrent,
            "email_change_new" => Self::EmailChangeNew,
            _ => return None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::SignUp => "signup",
            Self::Invite => "invite",
            Self::MagicLink => "magiclink",
            Self::Recovery => "recovery",
            Self::EmailChangeCurrent => "email_change_current",
            Self::EmailChangeNew => "email_change_new",
        }
    }

    /// Returns the kind of email that carries such a link.
    const fn mail(self) -> MailKind {
        match self {
            Self::SignUp => MailKind::Confirmation,
            Self::Invite => MailKind::Invite,
            Self::MagicLink => MailKind::MagicLink,
            Self::Recovery => MailKind::Recovery,
            Self::EmailChangeCurrent | Self::EmailChangeNew => MailKind::EmailChange,
        }
    }

    const fn token_kind(self) -> TokenKind {
        match self {
            Self::SignUp | Self::Invite => TokenKind::Confirmation,
            Self::MagicLink | Self::Recovery => TokenKind::Recovery,
            Self::EmailChangeCurrent => TokenKind::EmailChangeCurrent,
            Self::EmailChangeNew => TokenKind::EmailChangeNew,
        }
    }
}

/// A request with checked values.
struct CheckedLink {
    link_type: LinkType,
    email: EmailAddress,
    new_email: Option<EmailAddress>,
    /// The hash of the password of a sign-up.
    hash: Option<String>,
    data: Option<JsonObject>,
}

/// `POST /admin/generate_link`
pub(crate) async fn generate(
    State(auth): State<Auth>,
    administrator: Administrator,
    mut request: RequestInfo,
    Json(body): Json<LinkRequest>,
) -> Result<axum::Json<Value>, AuthError> {
    if auth.allow_list().allows(&body.redirect_to) {
        request.redirect_to.clone_from(&body.redirect_to);
    }
    let link = check(&auth, &request, body).await?;
    let actor = administrator.actor(&request.aud, request.now);
    let generated = hooks::complete(auth.hooks(), &request, || async {
        let tx = Tx::begin(auth.database()).await?;
        let op = AccountOperation::new(&auth, &request, &tx);
        let user = find_or_create(op, &link).await?;
        match link.link_type {
            LinkType::MagicLink | LinkType::Recovery => {
                record(op, &actor, Action::UserRecoveryRequested, &user).await?;
            }
            LinkType::Invite => record(op, &actor, Action::UserInvited, &user).await?,
            _ => {}
        }
        let token = store(op, &user, &link).await?;
        let user = users::complete(&tx, user.id).await?.ok_or(ContractError::UserUnknown)?;
        tx.commit().await?;
        Ok((user, token))
    });
    let (user, token) = generated.await?;
    Ok(axum::Json(Value::Object(response(&auth, &request, &user, link.link_type, token)?)))
}

/// Checks the request in the order of the contract. A sign-in link for an unknown address becomes a
/// sign-up.
async fn check(auth: &Auth, request: &RequestInfo, body: LinkRequest) -> Result<CheckedLink, AuthError> {
    let email = EmailAddress::parse(&body.email)?;
    let client = auth.database().client().await?;
    let existing = users::by_email(&client, &email, &request.aud).await?;
    drop(client);
    let unknown_type = || ContractError::LinkTypeUnknown { name: body.r#type.chars().take(64).collect() };
    let mut link_type = LinkType::parse(&body.r#type).ok_or_else(unknown_type)?;
    let mut hash = None;
    match (link_type, &existing) {
        (LinkType::MagicLink, None) => {
            link_type = LinkType::SignUp;
        }
        (LinkType::Recovery | LinkType::EmailChangeCurrent | LinkType::EmailChangeNew, None) => {
            return Err(ContractError::LinkUserUnknown.into());
        }
        (LinkType::SignUp, None) if body.password.is_empty() => {
            return Err(ContractError::SignUpNeedsPassword.into());
        }
        (LinkType::SignUp, existing) if !body.password.is_empty() => {
            if existing.as_ref().is_some_and(User::is_email_confirmed) {
                return Err(ContractError::EmailTaken.into());
            }
            auth.passwords().check_strength(&body.password).await?;
            hash = Some(auth.passwords().hash(&body.password).await?);
        }
        _ => {}
    }
    let new_email = match link_type {
        LinkType::EmailChangeCurrent if !auth.settings().email.secure_change => {
            return Err(ContractError::LinkNeedsSecureEmailChange.into());
        }
        LinkType::EmailChangeCurrent | LinkType::EmailChangeNew => Some(EmailAddress::parse(&body.new_email)?),
        _ => None,
    };
    body.data.as_ref().map_or(Ok(()), metadata::check_size)?;
    Ok(CheckedLink { link_type, email, new_email, hash, data: body.data })
}

/// Locks and returns the account of the link, or creates it for a sign-up or an invitation.
async fn find_or_create(op: AccountOperation<'_>, link: &CheckedLink) -> Result<User, AuthError> {
    let existing = users::lock_by_email(op.tx, &link.email, &op.request.aud).await?;
    match (link.link_type, existing) {
        (LinkType::Invite, _) => invitation::admit(op, &link.email, link.data.clone()).await,
        (LinkType::SignUp, Some(user)) if user.is_email_confirmed() => Err(ContractError::EmailTaken.into()),
        (LinkType::SignUp, Some(user)) => {
            continue_sign_up(op, &user, link).await?;
            Ok(user)
        }
        (LinkType::SignUp, None) => {
            let hash = link.hash.as_deref().unwrap_or_default();
            let id = invitation::insert(op, &link.email, link.data.clone().unwrap_or_default(), hash).await?;
            users::by_id(op.tx, id)
                .await?
                .ok_or_else(|| AuthError::internal(anyhow::anyhow!("a trigger removed the new user")))
        }
        (_, Some(user)) => Ok(user),
        (_, None) => Err(ContractError::LinkUserUnknown.into()),
    }
}

/// Continues a sign-up whose address was not confirmed. A new password replaces that of the earlier
/// sign-up, which may be a stranger's: the owner of the address gets the password of the sign-up
/// that the link belongs to.
async fn continue_sign_up(op: AccountOperation<'_>, user: &User, link: &CheckedLink) -> Result<(), AuthError> {
    if let Some(hash) = &link.hash {
        let stored = op.auth.columns().encrypt(user.id.0, hash);
        users::set_password(op.tx, user.id, &stored, op.now()).await?;
        one_time_tokens::delete_all(op.tx, user.id).await?;
    }
    if let Some(data) = &link.data {
        let merged = metadata::merge(&user.user_metadata, data.clone());
        metadata::check_size(&merged)?;
        users::set_user_metadata(op.tx, user.id, &merged, op.now()).await?;
    }
    Ok(())
}

/// Makes and stores the token of the link.
async fn store(op: AccountOperation<'_>, user: &User, link: &CheckedLink) -> Result<OneTimeToken, AuthError> {
    let (tx, now) = (op.tx, op.now());
    // A change is confirmed at the address that the link is for
    let sent_to = match (link.link_type, &link.new_email) {
        (LinkType::EmailChangeNew, Some(new)) => new,
        _ => &link.email,
    };
    let token = OneTimeToken::generate(sent_to.as_str(), op.auth.settings().email.otp_length, false);
    match link.link_type {
        LinkType::MagicLink | LinkType::Recovery => users::set_recovery(tx, user.id, &token.hash, now).await?,
        LinkType::Invite => users::set_invitation(tx, user.id, &token.hash, now).await?,
        LinkType::SignUp => users::set_confirmation(tx, user.id, &token.hash, now).await?,
        LinkType::EmailChangeCurrent | LinkType::EmailChangeNew => begin_change(op, user, link, &token).await?,
    }
    let kind = link.link_type.token_kind().as_str();
    one_time_tokens::put(tx, user.id, kind, &token.hash, sent_to.as_str(), now).await?;
    Ok(token)
}

/// Stores a pending change of address. The other of its two links stays valid if it is for the same
/// address.
async fn begin_change(
    op: AccountOperation<'_>,
    user: &User,
    link: &CheckedLink,
    token: &OneTimeToken,
) -> Result<(), AuthError> {
    let new = link.new_email.as_ref().ok_or(ContractError::EmailRequired)?;
    contact::check_free(op, user, &Contact::Email(new.clone())).await?;
    let is_same_change = user.email_change == new.as_str() && user.email_change_confirm_status == 0;
    let other = |stored: &str| if is_same_change { stored.to_owned() } else { String::new() };
    let [of_new, of_current] = match link.link_type {
        LinkType::EmailChangeNew => [token.hash.clone(), other(&user.email_change_token_current)],
        _ => [other(&user.email_change_token_new), token.hash.clone()],
    };
    users::set_email_change(op.tx, user.id, new, [&of_new, &of_current], op.now()).await?;
    if !is_same_change {
        for kind in [TokenKind::EmailChangeNew, TokenKind::EmailChangeCurrent] {
            one_time_tokens::delete_kind(op.tx, user.id, kind.as_str()).await?;
        }
    }
    Ok(())
}

/// Returns the account with the properties of the link.
fn response(
    auth: &Auth,
    request: &RequestInfo,
    user: &User,
    link_type: LinkType,
    token: OneTimeToken,
) -> Result<Map<String, Value>, AuthError> {
    let action_link = mailer::confirmation_url(auth, link_type.mail(), &token.hash, request);
    let Value::Object(mut body) = serde_json::to_value(user).map_err(AuthError::internal)? else {
        return Err(AuthError::internal(anyhow::anyhow!("a user is an object")));
    };
    for (name, value) in [
        ("action_link", action_link),
        ("email_otp", token.code),
        ("hashed_token", token.hash),
        ("verification_type", link_type.name().to_owned()),
        ("redirect_to", request.redirect_to.clone()),
    ] {
        body.insert(name.to_owned(), value.into());
    }
    Ok(body)
}
