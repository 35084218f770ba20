//! The hook that sends emails in place of the mail server.

use portico_mail::{MailKind, Variables};
use serde_json::{Value, json};

use super::{HookCall, points};
use crate::error::AuthError;
use crate::model::{JsonObject, User};
use crate::operation::AccountOperation;
use crate::settings::HookPoint;

/// The data of an email in the input of the hook. Every member is present; those that an email does
/// not have are empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct EmailData {
    /// The code.
    pub(crate) token: String,
    /// The token of the link.
    pub(crate) token_hash: String,
    /// The code for the new address, where both addresses confirm a change.
    pub(crate) token_new: String,
    /// The token of the link for the current address, where both addresses confirm a change.
    pub(crate) token_hash_new: String,
    pub(crate) old_email: String,
    pub(crate) old_phone: String,
    pub(crate) provider: String,
    pub(crate) factor_type: String,
}

impl EmailData {
    /// Takes over the variables of a template.
    pub(crate) fn of(variables: &Variables) -> Self {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        Self {
            token: text(&variables.token),
            token_hash: text(&variables.token_hash),
            old_email: text(&variables.old_email),
            old_phone: text(&variables.old_phone),
            provider: text(&variables.provider),
            factor_type: text(&variables.factor_type),
            ..Self::default()
        }
    }
}

/// Returns the kind of an email as hooks know it.
fn action_type(kind: MailKind) -> &'static str {
    match kind {
        MailKind::Confirmation => "signup",
        MailKind::Recovery => "recovery",
        MailKind::Invite => "invite",
        MailKind::MagicLink => "magiclink",
        MailKind::EmailChange => "email_change",
        MailKind::Reauthentication => "reauthentication",
        notification => notification.key(),
    }
}

async fn call(op: AccountOperation<'_>, user: &User, kind: MailKind, data: EmailData) -> Result<HookCall, AuthError> {
    let user = points::complete_user(op, user, HookPoint::SendEmail).await?;
    let email_data = json!({
        "token": data.token,
        "token_hash": data.token_hash,
        "redirect_to": op.request.redirect_to,
        "email_action_type": action_type(kind),
        "site_url": op.request.external_url,
        "token_new": data.token_new,
        "token_hash_new": data.token_hash_new,
        "old_email": data.old_email,
        "old_phone": data.old_phone,
        "provider": data.provider,
        "factor_type": data.factor_type,
    });
    // Triggers of the application may give other members of the user another value in each run
    let question = json!([user.id.to_string(), user.email, user.email_change, email_data]);
    let members = JsonObject::from_iter([
        ("user".to_owned(), json!(&*user)),
        ("email_data".to_owned(), Value::clone(&email_data)),
    ]);
    Ok(HookCall::new(op.request.ip, HookPoint::SendEmail, members).asking(question))
}

/// Sends an email with a code or a link.
///
/// # Errors
/// Those of the hook.
pub(crate) async fn send_email(
    op: AccountOperation<'_>,
    user: &User,
    kind: MailKind,
    data: EmailData,
) -> Result<(), AuthError> {
    op.auth.hooks().call_within(op, call(op, user, kind, data).await?).await.map(drop)
}

/// Sends a notification. A failure of the hook is logged and fails nothing.
///
/// # Errors
/// Those of the database.
pub(crate) async fn send_notification(
    op: AccountOperation<'_>,
    user: &User,
    kind: MailKind,
    data: EmailData,
) -> Result<(), AuthError> {
    op.auth.hooks().call_within(op, call(op, user, kind, data).await?.optional()).await.map(drop)
}
