//! The registration of an account with an email address or a phone number.
//!
//! One flow serves sign-up by password, sign-in links and codes. A contact that another account has
//! gets the response of a new one, so that a sign-up does not reveal who has an account.

use serde_json::json;

use crate::Auth;
use crate::account::contact::{self, ContactSettings};
use crate::account::unconfirmed_email;
use crate::error::{AuthError, ContractError, ErrorCode, SqlResultExt as _};
use crate::hooks;
use crate::http::extract::RequestInfo;
use crate::model::contact::{Contact, ContactKind};
use crate::model::ids::UserId;
use crate::model::metadata;
use crate::model::{JsonObject, User};
use crate::oauth::pkce::Challenge;
use crate::one_time::message::{self, MessageDelivery, MessageOptions, RecoveryMail};
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, Traits, provider_trait};
use crate::session::{self, AuthenticationMethod};
use crate::sql::users::NewUser;
use crate::sql::{Tx, users};

/// The number of attempts at a registration when other requests make the same account at the same
/// time: the next attempt finds that account.
pub(crate) const ATTEMPTS: usize = 3;

/// A person who wants an account with a contact.
pub(crate) struct Applicant<'a> {
    pub(crate) contact: Contact,
    /// `None` for sign-in by code or link: `hash` is empty then.
    pub(crate) password: Option<&'a str>,
    pub(crate) hash: String,
    pub(crate) data: JsonObject,
    /// The challenge of an app with a proof key; for addresses only.
    pub(crate) challenge: Option<Challenge>,
    /// The channel of text messages; empty is `sms`.
    pub(crate) channel: &'a str,
}

impl<'a> Applicant<'a> {
    /// Returns an applicant without a password: a new account belongs to the person who gets the
    /// message, and to no one who chose a password earlier.
    pub(crate) fn without_password(
        contact: Contact,
        data: JsonObject,
        challenge: Option<Challenge>,
        channel: &'a str,
    ) -> Self {
        Self { contact, password: None, hash: String::new(), data, challenge, channel }
    }

    fn kind(&self) -> ContactKind {
        self.contact.kind()
    }

    fn options(&self) -> MessageOptions<'_> {
        MessageOptions { challenge: self.challenge.as_ref(), channel: self.channel }
    }

    /// Returns the metadata of the account.
    fn metadata(&self, id: UserId) -> JsonObject {
        metadata::of_contact(self.data.clone(), id, self.contact.email().map(|email| email.as_str()))
    }

    /// Returns the claims of the identity that stands for the contact.
    fn identity_data(&self, metadata: &JsonObject) -> JsonObject {
        let mut claims = metadata.clone();
        if let Contact::Phone(phone) = &self.contact {
            claims.insert("phone".into(), phone.as_str().into());
            // The person may write any address into `data`, and that of an identity is read as a
            // claim to it
            claims.shift_remove("email");
        }
        claims
    }

    /// Returns the traits of the audit entry for a confirmed registration.
    fn sign_up_traits(&self) -> Traits {
        let mut traits = provider_trait(self.kind().provider());
        if self.kind() == ContactKind::Phone {
            traits.insert("channel".into(), if self.channel.is_empty() { "sms" } else { self.channel }.into());
        }
        traits
    }

    /// Returns an account that looks new and does not exist, for a contact that has one.
    fn invented_user(&self, request: &RequestInfo) -> User {
        let mut user = User::without_facts(&request.aud, request.now);
        match &self.contact {
            Contact::Email(email) => user.email = email.to_string(),
            Contact::Phone(phone) => user.phone = phone.to_string(),
        }
        user.app_metadata = provider_metadata(self.kind().provider());
        user.user_metadata = self.data.clone();
        user.confirmation_sent_at = Some(request.now);
        user
    }
}

/// Returns `{"provider": p, "providers": [p]}`.
fn provider_metadata(provider: &str) -> JsonObject {
    JsonObject::from_iter([("provider".to_owned(), provider.into()), ("providers".to_owned(), json!([provider]))])
}

/// The result of a registration.
pub(crate) enum Registration {
    /// The person is signed in.
    SignedIn(Box<session::TokenResponse>),
    /// The contact must be confirmed, or is another account's.
    AwaitsConfirmation {
        /// The account as the applicant may see it.
        user: Box<User>,
        /// The message that carries the confirmation.
        delivery: MessageDelivery,
    },
}

/// Makes an account, or continues one whose contact was not confirmed.
///
/// # Errors
/// 422 `user_already_exists` when contacts need no confirmation, 429 when a confirmation was sent
/// just before.
pub(crate) async fn register(
    auth: &Auth,
    request: &RequestInfo,
    applicant: &Applicant<'_>,
) -> Result<Registration, AuthError> {
    for _ in 0..ATTEMPTS {
        let registered = hooks::complete(auth.hooks(), request, || async {
            let tx = Tx::begin(auth.database()).await?;
            let registration = try_register(AccountOperation::new(auth, request, &tx), applicant).await?;
            if registration.is_some() {
                tx.commit().await?;
            }
            Ok(registration)
        });
        if let Some(registration) = registered.await? {
            return Ok(registration);
        }
    }
    // Usually the contact is taken in another audience, which the response must not reveal
    if ContactSettings::of(auth.settings(), applicant.kind()).autoconfirm {
        return Err(ContractError::UserExists.into());
    }
    let user = Box::new(applicant.invented_user(request));
    Ok(Registration::AwaitsConfirmation { user, delivery: MessageDelivery::Complete })
}

/// Returns `None` when another request made the account at the same time.
async fn try_register(op: AccountOperation<'_>, applicant: &Applicant<'_>) -> Result<Option<Registration>, AuthError> {
    let kind = applicant.kind();
    let autoconfirm = ContactSettings::of(op.auth.settings(), kind).autoconfirm;
    let mut existing = contact::lock_owner(op, &applicant.contact).await?;
    if let Some(claimant) = existing.take_if(|user| {
        let merely_claims =
            kind == ContactKind::Email && !user.is_email_confirmed() && user.email == applicant.contact.as_str();
        merely_claims && user.is_phone_confirmed() && !autoconfirm
    }) {
        // The account stays that of the number, and the address is free for the person who proves
        // it
        unconfirmed_email::withdraw(op.tx, &claimant, op.now()).await?;
    }
    let Some(existing) = existing else {
        let Some(user) = insert(op, applicant).await? else { return Ok(None) };
        if autoconfirm {
            return sign_in_confirmed(op, applicant, &user).await.map(Some);
        }
        let (user, delivery) = send_confirmation(op, applicant, &user).await?;
        let delivery = delivery.of_new_account();
        return Ok(Some(Registration::AwaitsConfirmation { user, delivery }));
    };
    // An address that is another account's by the word of a provider is taken as well
    let is_taken = kind.is_confirmed(&existing) || kind.stored(&existing) != applicant.contact.as_str();
    match (is_taken, autoconfirm) {
        // Only the confirmation of this kind of contact hides that an account exists
        (true, true) => Err(ContractError::UserExists.into()),
        (true, false) => repeat(op, applicant, &existing).await.map(Some),
        (false, true) => claim_unconfirmed(op, applicant, &existing).await.map(Some),
        (false, false) => continue_unconfirmed(op, applicant, &existing).await.map(Some),
    }
}

/// Inserts the rows of a new account. Returns `None` when another request was faster.
async fn insert(op: AccountOperation<'_>, applicant: &Applicant<'_>) -> Result<Option<User>, AuthError> {
    const FAILED: ContractError = ContractError::SavingUserFailed;
    let AccountOperation { auth, request, tx } = op;
    let (id, now) = (UserId(request.hooks.uuid("user")), op.now());
    let password = auth.columns().encrypt(id.0, &applicant.hash);
    let provider = applicant.kind().provider();
    let (email, phone, constraint) = match &applicant.contact {
        Contact::Email(email) => (email.as_str(), "", "users_email_partial_key"),
        Contact::Phone(phone) => ("", phone.as_str(), "users_phone_key"),
    };
    let new = NewUser {
        id,
        aud: &request.aud,
        email,
        phone,
        encrypted_password: &password,
        app_metadata: provider_metadata(provider),
        user_metadata: applicant.data.clone(),
        is_sso_user: false,
        is_anonymous: false,
    };
    Box::pin(hooks::before_user_created(op, &new)).await?;
    let metadata = applicant.metadata(id);
    let claims = applicant.identity_data(&metadata);
    let provider_id = id.to_string();
    // The order that triggers of applications know, in one round trip
    let (inserted, role, identity, metadata, user) = tokio::join!(biased;
        users::insert(tx, &new, now),
        users::set_role(tx, id, &auth.settings().jwt.default_role, now),
        op.insert_identity(id, provider, &provider_id, &claims),
        users::set_user_metadata(tx, id, &metadata, now),
        users::complete(tx, id),
    );
    match inserted.on_constraint(constraint, ContractError::UserExists).context(FAILED) {
        Err(error) if error.code() == ErrorCode::UserAlreadyExists => return Ok(None),
        inserted => inserted?,
    }
    role.context(FAILED)?;
    identity.context(FAILED)?;
    metadata.context(FAILED)?;
    let user = user.context(FAILED)?;
    user.map(Some).ok_or_else(|| AuthError::internal(anyhow::anyhow!("a trigger removed the new user")))
}

/// Confirms the contact and signs the person in: contacts need no confirmation.
async fn sign_in_confirmed(
    op: AccountOperation<'_>,
    applicant: &Applicant<'_>,
    user: &User,
) -> Result<Registration, AuthError> {
    let (audit, confirmed, reread) = tokio::join!(biased;
        op.record(user, Action::UserSignedUp, applicant.sign_up_traits()),
        contact::confirm(op, user, applicant.kind()),
        users::complete(op.tx, user.id),
    );
    audit?;
    confirmed?;
    let mut user = reread?.ok_or_else(|| AuthError::internal(anyhow::anyhow!("the new user is gone")))?;
    // Clients expect the response to a sign-up without it
    user.confirmed_at = None;
    let tokens = session::issue(op, &user, AuthenticationMethod::Password).await?;
    Ok(Registration::SignedIn(Box::new(tokens)))
}

/// Sends the confirmation of a contact, and returns the account.
async fn send_confirmation(
    op: AccountOperation<'_>,
    applicant: &Applicant<'_>,
    user: &User,
) -> Result<(Box<User>, MessageDelivery), AuthError> {
    let kind = applicant.kind();
    let (audit, sent, user) = tokio::join!(biased;
        op.record(user, Action::UserConfirmationRequested, provider_trait(kind.provider())),
        message::send_confirmation(op, user, kind, applicant.options()),
        users::complete(op.tx, user.id),
    );
    audit?;
    let delivery = sent?;
    let user = user?.ok_or_else(|| AuthError::internal(anyhow::anyhow!("the new user is gone")))?;
    Ok((Box::new(user), delivery))
}

/// Responds to a sign-up for a contact that has an account.
async fn repeat(op: AccountOperation<'_>, applicant: &Applicant<'_>, owner: &User) -> Result<Registration, AuthError> {
    op.record(owner, Action::UserRepeatedSignUp, provider_trait(applicant.kind().provider())).await?;
    if let Contact::Email(email) = &applicant.contact {
        message::send_account_exists(op, owner, email).await?;
    }
    let user = Box::new(applicant.invented_user(op.request));
    Ok(Registration::AwaitsConfirmation { user, delivery: MessageDelivery::Complete })
}

/// Continues a sign-up whose contact was not confirmed. Password and data of this sign-up replace
/// those of the earlier one, together with the confirmation: the person who confirms gets the
/// password and data of the sign-up that the message belongs to, never those of an earlier
/// stranger.
async fn continue_unconfirmed(
    op: AccountOperation<'_>,
    applicant: &Applicant<'_>,
    existing: &User,
) -> Result<Registration, AuthError> {
    let data = applicant.metadata(existing.id);
    let password = op.auth.columns().encrypt(existing.id.0, &applicant.hash);
    let replace = users::replace_credentials(op.tx, existing.id, &password, &data, op.now());
    let is_email = applicant.kind() == ContactKind::Email;
    if is_email {
        let (replaced, identity, providers) = tokio::join!(biased;
            replace,
            op.upsert_contact_identity(existing.id, "email", &data),
            users::refresh_providers(op.tx, existing.id, op.now()),
        );
        replaced.context(ContractError::UpdatingUserFailed)?;
        identity?;
        providers?;
    } else {
        replace.await?;
    }
    let (mut user, delivery) = send_confirmation(op, applicant, existing).await?;
    if is_email && existing.invited_at.is_some() {
        // The data of an invitation is not for everyone who types the address
        user.user_metadata = JsonObject::new();
        user.identities = Vec::new();
    }
    Ok(Registration::AwaitsConfirmation { user, delivery })
}

/// Signs in to an account whose contact was not confirmed, where contacts need no confirmation. The
/// account is the applicant's only if the password is.
async fn claim_unconfirmed(
    op: AccountOperation<'_>,
    applicant: &Applicant<'_>,
    existing: &User,
) -> Result<Registration, AuthError> {
    let is_owner = match applicant.password {
        Some(password) => op.auth.passwords().is_password_of(op.auth.columns(), existing, password).await?,
        None => false,
    };
    if !is_owner {
        return Err(ContractError::UserExists.into());
    }
    sign_in_confirmed(op, applicant, existing).await
}

/// Registers a person who signs in by link. An address that needs no confirmation gets a sign-in
/// link, and no session before the link was followed.
///
/// # Errors
/// Those of [`register`].
pub(crate) async fn register_for_link(
    auth: &Auth,
    request: &RequestInfo,
    applicant: &Applicant<'_>,
) -> Result<(), AuthError> {
    if !auth.settings().email.autoconfirm {
        return register(auth, request, applicant).await.map(drop);
    }
    for _ in 0..ATTEMPTS {
        if hooks::complete(auth.hooks(), request, || try_register_for_link(auth, request, applicant)).await? {
            return Ok(());
        }
    }
    Err(ContractError::ConcurrentSignUps.into())
}

/// Returns false when another request made the account at the same time.
async fn try_register_for_link(
    auth: &Auth,
    request: &RequestInfo,
    applicant: &Applicant<'_>,
) -> Result<bool, AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(auth, request, &tx);
    let user = match users::lock_by_contact(&tx, &applicant.contact, &request.aud).await? {
        Some(user) => user,
        None => {
            let Some(user) = insert(op, applicant).await? else { return Ok(false) };
            let (audit, confirmed) = tokio::join!(biased;
                op.record(&user, Action::UserSignedUp, applicant.sign_up_traits()),
                contact::confirm(op, &user, applicant.kind()),
            );
            audit?;
            confirmed?;
            user
        }
    };
    message::send_recovery(op, &user, RecoveryMail::MagicLink, applicant.challenge.as_ref()).await?;
    tx.commit().await?;
    Ok(true)
}

/// Registers a person who signs in by a code, or continues a registration that was not confirmed.
/// Returns `None` when another request made the account at the same time.
pub(crate) async fn register_for_code(
    op: AccountOperation<'_>,
    applicant: &Applicant<'_>,
    existing: Option<User>,
) -> Result<Option<MessageDelivery>, AuthError> {
    let (kind, options) = (applicant.kind(), applicant.options());
    if let Some(user) = existing {
        let data = applicant.metadata(user.id);
        users::replace_credentials(op.tx, user.id, "", &data, op.now()).await?;
        return message::send_confirmation(op, &user, kind, options).await.map(Some);
    }
    let Some(user) = insert(op, applicant).await? else { return Ok(None) };
    let delivery = message::send_confirmation(op, &user, kind, options).await?;
    Ok(Some(delivery.of_new_account()))
}
