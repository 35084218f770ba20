//! `GET` and `PUT /user`: the account of the person who is signed in.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Auth;
use crate::account::contact;
use crate::account::password_change::{PasswordChange, PreparedChange};
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::hooks;
use crate::http::extract::{Json, RequestInfo, SignedIn};
use crate::model::contact::{Contact, ContactKind};
use crate::model::metadata;
use crate::model::{JsonObject, User};
use crate::oauth::pkce::Challenge;
use crate::one_time::message::{MessageDelivery, MessageOptions};
use crate::one_time::text_message::check_channel;
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, Traits};
use crate::protection::limits::Limiter;
use crate::session::assurance;
use crate::sql::{Tx, users};

const FAILED: ContractError = ContractError::UpdatingUserFailed;

/// `GET /user`
pub async fn get(request: RequestInfo, signed_in: SignedIn) -> Result<Response, AuthError> {
    // A request that names no audience has that of its token
    if request.names_aud && signed_in.claims.audience().is_some_and(|aud| aud != request.aud) {
        return Err(ContractError::AudienceMismatch.into());
    }
    Ok(axum::Json(signed_in.user).into_response())
}

/// `GET /user/password`: returns whether the account has a password, to its owner. The reference
/// has no way to learn that, so that its pages offer a change of the password to people who have
/// none.
pub async fn password(signed_in: SignedIn) -> axum::Json<Value> {
    axum::Json(json!({ "is_set": signed_in.user.has_password() }))
}

/// `GET /user/email-change`: returns which address has confirmed the pending
/// change, where two have to. The user's JSON has `new_email` until the change is made, but not how
/// far it is.
pub async fn email_change(signed_in: SignedIn) -> axum::Json<Value> {
    let user = signed_in.user;
    let is_pending = !user.email_change.is_empty();
    // The token of the other address remains. None remains where a link was made for one address
    // alone; then it is not known which one that was
    let waits = |token: &str| !token.is_empty();
    let confirmed = match (waits(&user.email_change_token_new), waits(&user.email_change_token_current)) {
        _ if !is_pending || user.email_change_confirm_status == 0 => None,
        (false, true) => Some("new"),
        (true, false) => Some("current"),
        _ => None,
    };
    axum::Json(json!({ "new_email": is_pending.then_some(&user.email_change), "confirmed": confirmed }))
}

/// The body of `PUT /user`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Update {
    email: String,
    phone: String,
    channel: String,
    password: Option<String>,
    current_password: Option<String>,
    nonce: String,
    data: Option<JsonObject>,
    app_metadata: Option<JsonObject>,
    code_challenge: Option<String>,
    code_challenge_method: Option<String>,
}

/// `PUT /user`
pub async fn put(
    State(auth): State<Auth>,
    request: RequestInfo,
    signed_in: SignedIn,
    Json(body): Json<Update>,
) -> Result<Response, AuthError> {
    auth.limits().check(Limiter::UpdateUser, &request)?;
    let email = contact_of(ContactKind::Email, &body.email)?;
    let phone = contact_of(ContactKind::Phone, &body.phone)?;
    if phone.is_some() {
        check_channel(&auth, &body.channel)?;
    }
    if let Some(password) = &body.password {
        auth.passwords().check_strength(password).await?;
    }
    let challenge = Challenge::from_request(body.code_challenge.as_deref(), body.code_challenge_method.as_deref())?;
    let user = &signed_in.user;
    if body.app_metadata.is_some() && user.role != auth.settings().jwt.admin_group {
        return Err(ContractError::AppMetadataNeedsAdministrator.into());
    }
    let new_contacts: Vec<Contact> =
        [email, phone].into_iter().flatten().filter(|new| new.as_str() != new.kind().stored(user)).collect();
    check_allowed(&signed_in, &body, !new_contacts.is_empty())?;
    if let Some(email) = new_contacts.iter().find_map(Contact::email) {
        auth.recipients().check_domain(email).await?;
    }
    // Hashes are computed before the transaction: it holds a connection and a lock
    let password_change = match &body.password {
        Some(password) => {
            // Taken contacts and a wrong nonce are rejected first: the response then says nothing
            // about the password
            if !new_contacts.is_empty() {
                let tx = Tx::begin(auth.database()).await?;
                check_contacts(AccountOperation::new(&auth, &request, &tx), user, &new_contacts).await?;
            }
            let change = PasswordChange::new(&auth, &signed_in, &body.nonce)?;
            Some(change.prepare(&request, password, body.current_password.as_deref()).await?)
        }
        None => None,
    };
    let changes = RequestedChanges {
        signed_in: &signed_in,
        body: &body,
        contacts: &new_contacts,
        password: password_change.as_ref(),
        challenge: challenge.as_ref(),
    };
    let (updated, deliveries) = hooks::complete(auth.hooks(), &request, || changes.apply(&auth, &request)).await?;
    for delivery in deliveries {
        delivery.deliver(&auth).await?;
    }
    Ok(axum::Json(updated).into_response())
}

/// The changes of a request, checked as far as possible without a transaction.
struct RequestedChanges<'a> {
    signed_in: &'a SignedIn,
    body: &'a Update,
    contacts: &'a [Contact],
    password: Option<&'a PreparedChange<'a>>,
    challenge: Option<&'a Challenge>,
}

impl RequestedChanges<'_> {
    /// Applies them in one transaction. Returns the account and the messages to deliver.
    ///
    /// Hashes and hooks took their time: behind the lock the session must still be there, and a
    /// second factor that was verified meanwhile counts.
    async fn apply(&self, auth: &Auth, request: &RequestInfo) -> Result<(User, Vec<MessageDelivery>), AuthError> {
        let (changes, body) = (self, self.body);
        let tx = Tx::begin(auth.database()).await?;
        let op = AccountOperation::new(auth, request, &tx);
        let signed_in = changes.signed_in;
        let user = users::lock_complete(&tx, signed_in.user.id).await?.ok_or(ContractError::SubjectGone)?;
        let aal = assurance::lock(&tx, user.id, signed_in.session_id()).await?;
        check_assurance(&user, aal.as_deref(), body, !changes.contacts.is_empty())?;
        check_contacts(op, &user, changes.contacts).await?;
        if let Some(change) = changes.password {
            change.apply(op, &user).await?;
        }
        if let Some(data) = &body.data {
            let merged = metadata::merge(&user.user_metadata, data.clone());
            metadata::check_size(&merged)?;
            users::set_user_metadata(&tx, user.id, &merged, request.now).await.context(FAILED)?;
        }
        if let Some(data) = &body.app_metadata {
            let merged = metadata::merge(&user.app_metadata, data.clone());
            metadata::check_size(&merged)?;
            users::set_app_metadata(&tx, user.id, &merged, request.now).await.context(FAILED)?;
        }
        let options = MessageOptions { challenge: changes.challenge, channel: &body.channel };
        let mut deliveries = Vec::new();
        for new in changes.contacts {
            deliveries.push(contact::begin_change(op, &user, new, options).await?);
        }
        let (audit, updated) = tokio::join!(biased;
            op.record(&user, Action::UserModified, Traits::new()),
            users::complete(&tx, user.id),
        );
        audit?;
        let updated = updated?.ok_or(ContractError::SubjectGone)?;
        tx.commit().await?;
        Ok((updated, deliveries))
    }
}

/// Reads a field of the body; an empty one is absent.
fn contact_of(kind: ContactKind, text: &str) -> Result<Option<Contact>, AuthError> {
    if text.is_empty() { Ok(None) } else { Contact::parse(kind, text).map(Some) }
}

/// Checks that no other account has the new contacts.
async fn check_contacts(op: AccountOperation<'_>, user: &User, new: &[Contact]) -> Result<(), AuthError> {
    for contact in new {
        contact::check_free(op, user, contact).await?;
    }
    Ok(())
}

/// Checks that this kind of account, in this session, may make the changes.
fn check_allowed(signed_in: &SignedIn, body: &Update, changes_contact: bool) -> Result<(), AuthError> {
    let user = &signed_in.user;
    check_assurance(user, signed_in.aal(), body, changes_contact)?;
    if user.is_anonymous && body.password.is_some() && body.email.is_empty() && body.phone.is_empty() {
        return Err(ContractError::AnonymousPasswordNeedsContact.into());
    }
    if user.is_sso_user && (body.password.is_some() || changes_contact || !body.nonce.is_empty()) {
        return Err(ContractError::ManagedBySso.into());
    }
    Ok(())
}

/// Checks that a session of this level may change the password and the contacts, if the request
/// does.
fn check_assurance(user: &User, aal: Option<&str>, body: &Update, changes_contact: bool) -> Result<(), AuthError> {
    match body.password.is_some() || changes_contact {
        true => assurance::check(user, aal),
        false => Ok(()),
    }
}
