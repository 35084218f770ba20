//! The administration of accounts without HTTP: for the command line, and for the people of a
//! development server.
//!
//! The caller has access to the server's files, so nothing is checked about the caller here.

use http::StatusCode;
use portico_base::Secret;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use uuid::Uuid;

use super::ban::Ban;
use super::users::create::{self, NewAccount};
use super::users::delete;
use super::users::update::{self, AccountChanges};
use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::RequestInfo;
use crate::model::ids::{EmailAddress, PhoneNumber, UserId};
use crate::model::metadata;
use crate::model::{JsonObject, User};
use crate::operation::AccountOperation;
use crate::sql::Tx;
use crate::sql::users::{self, UserFilter};

/// The value of `app_metadata.role` of an operator.
const OPERATOR_ROLE: &str = "operator";
/// The time of a ban without a duration: a hundred years.
const FOREVER: &str = "876000h";

/// An account to add.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountToAdd {
    /// The email address.
    pub email: Option<String>,
    /// The phone number.
    pub phone: Option<String>,
    /// The password; without one the person signs in by code, link or recovery.
    #[serde(serialize_with = "exposed")]
    pub password: Option<Secret>,
    /// Email address and phone number count as confirmed.
    pub confirmed: bool,
    /// The metadata that the person may change.
    pub user_metadata: JsonObject,
    /// The metadata that only administrators change.
    pub app_metadata: JsonObject,
}

/// An operation on accounts. `account` is an id, an email address or a phone number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum AccountCommand {
    /// Adds an account, whose password must keep the rules of the project.
    Add(AccountToAdd),
    /// Lists accounts, the newest first.
    List {
        /// Only accounts whose address or full name contains this.
        filter: Option<String>,
        /// The greatest number of accounts.
        limit: u32,
        /// The number of accounts before them.
        offset: u32,
    },
    /// Returns an account.
    Show {
        /// The account.
        account: String,
    },
    /// Sets the password, and ends all sessions.
    SetPassword {
        /// The account.
        account: String,
        /// The new password.
        #[serde(serialize_with = "exposed_text")]
        password: Secret,
    },
    /// Bans an account.
    Ban {
        /// The account.
        account: String,
        /// The duration, such as `24h`. Absent: until the ban is lifted.
        duration: Option<String>,
    },
    /// Lifts a ban.
    Unban {
        /// The account.
        account: String,
    },
    /// Deletes an account.
    Delete {
        /// The account.
        account: String,
        /// The row and its id stay, without personal data.
        soft: bool,
    },
    /// Makes an account that of an operator, or an ordinary one again.
    SetOperator {
        /// The account.
        account: String,
        /// True to make it an operator's.
        operator: bool,
    },
}

/// Writes the secret itself: the socket of the server is the only reader.
fn exposed_text<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

fn exposed<S: Serializer>(secret: &Option<Secret>, serializer: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(Secret::expose).serialize(serializer)
}

impl Auth {
    /// Runs a command. Returns the account or accounts as clients see them.
    ///
    /// # Errors
    /// The error of the corresponding request.
    pub async fn administer(&self, command: AccountCommand) -> Result<Value, AuthError> {
        let request = RequestInfo::of_service(self);
        let actor = actor("portico user", &request);
        match command {
            AccountCommand::Add(account) => {
                if let Some(password) = &account.password {
                    self.passwords().check_strength(password.expose()).await?;
                }
                shown(&add(self, &request, &actor, account).await?)
            }
            AccountCommand::List { filter, limit, offset } => {
                let filter = UserFilter { aud: &request.aud, part: filter.as_deref(), oldest_first: false };
                let client = self.database().client().await?;
                let (total, found) = users::list(&client, &filter, limit.into(), offset.into()).await?;
                let users = found.iter().map(shown).collect::<Result<Vec<_>, _>>()?;
                Ok(json!({"users": users, "total": total}))
            }
            AccountCommand::Show { account } => shown(&find(self, &request, &account).await?),
            AccountCommand::SetPassword { account, password } => {
                let user = find(self, &request, &account).await?;
                self.passwords().check_strength(password.expose()).await?;
                let hash = self.passwords().hash(password.expose()).await?;
                let stored = self.columns().encrypt(user.id.0, &hash);
                let changes = AccountChanges { password: Some(stored), ..AccountChanges::default() };
                change(self, &request, &actor, user.id, changes).await
            }
            AccountCommand::Ban { account, duration } => {
                let ban = Ban::parse(duration.as_deref().unwrap_or(FOREVER))?;
                let user = find(self, &request, &account).await?;
                change(self, &request, &actor, user.id, AccountChanges { ban, ..AccountChanges::default() }).await
            }
            AccountCommand::Unban { account } => {
                let user = find(self, &request, &account).await?;
                let changes = AccountChanges { ban: Some(Ban::Lift), ..AccountChanges::default() };
                change(self, &request, &actor, user.id, changes).await
            }
            AccountCommand::Delete { account, soft } => {
                let user = find(self, &request, &account).await?;
                let tx = Tx::begin(self.database()).await?;
                delete::apply(AccountOperation::new(self, &request, &tx), &actor, user.id, soft).await?;
                tx.commit().await?;
                self.announce_deletion(user.id);
                shown(&user)
            }
            AccountCommand::SetOperator { account, operator } => {
                let user = find(self, &request, &account).await?;
                let role = if operator { OPERATOR_ROLE.into() } else { Value::Null };
                let is_operator = user.app_metadata.get("role").is_some_and(|role| role == OPERATOR_ROLE);
                if !operator && !is_operator {
                    // Another role is not touched
                    return shown(&user);
                }
                let app_metadata = Some(JsonObject::from_iter([("role".to_owned(), role)]));
                change(self, &request, &actor, user.id, AccountChanges { app_metadata, ..AccountChanges::default() })
                    .await
            }
        }
    }

    /// Adds an account of a development server, unless its email address has one. The password need
    /// not keep the rules. Returns true if the account was added.
    ///
    /// # Errors
    /// 400 for an account that cannot exist; nothing of it is written.
    pub async fn add_development_account(&self, account: AccountToAdd) -> Result<bool, AuthError> {
        let request = RequestInfo::of_service(self);
        let email = EmailAddress::parse(account.email.as_deref().unwrap_or_default())?;
        let client = self.database().client().await?;
        let existing = users::by_email(&client, &email, &request.aud).await?;
        drop(client);
        if existing.is_some() {
            return Ok(false);
        }
        match add(self, &request, &actor("portico dev", &request), account).await {
            // Another account has the number, or the address by a provider
            Err(error) if error.status() == StatusCode::UNPROCESSABLE_ENTITY => {
                tracing::warn!(email = %email, error = %error, "a development account was not added");
                Ok(false)
            }
            added => added.map(|_| true),
        }
    }
}

/// Returns the actor of audit entries.
fn actor(name: &str, request: &RequestInfo) -> User {
    User { id: UserId(Uuid::nil()), email: name.to_owned(), ..User::without_facts(&request.aud, request.now) }
}

fn shown(user: &User) -> Result<Value, AuthError> {
    serde_json::to_value(user).map_err(AuthError::internal)
}

async fn add(auth: &Auth, request: &RequestInfo, actor: &User, account: AccountToAdd) -> Result<User, AuthError> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let email = given(account.email).map(|text| EmailAddress::parse(&text)).transpose()?;
    let phone = given(account.phone).map(|text| PhoneNumber::parse(&text)).transpose()?;
    if email.is_none() && phone.is_none() {
        return Err(ContractError::CreationNeedsContact.into());
    }
    metadata::check_size(&account.user_metadata)?;
    metadata::check_size(&account.app_metadata)?;
    if let Some(email) = &email {
        create::check_email_free(auth, email, &request.aud).await?;
    }
    let hash = match &account.password {
        Some(password) if password.expose().len() > crate::password::MAX_BYTES => {
            return Err(ContractError::PasswordTooLong.into());
        }
        Some(password) => auth.passwords().hash(password.expose()).await?,
        None => String::new(),
    };
    let new = NewAccount {
        id: UserId::random(),
        aud: request.aud.clone(),
        role: auth.settings().jwt.default_role.clone(),
        confirms_email: account.confirmed && email.is_some(),
        confirms_phone: account.confirmed && phone.is_some(),
        email,
        phone,
        hash,
        user_metadata: account.user_metadata,
        app_metadata: account.app_metadata,
        ban: None,
    };
    let tx = Tx::begin(auth.database()).await?;
    let user = create::insert(AccountOperation::new(auth, request, &tx), actor, &new).await?;
    tx.commit().await?;
    Ok(user)
}

/// Finds an account by its id, email address or phone number.
async fn find(auth: &Auth, request: &RequestInfo, account: &str) -> Result<User, AuthError> {
    let client = auth.database().client().await?;
    let id = match UserId::parse(account) {
        Some(id) => Some(id),
        None if account.contains('@') => {
            let email = EmailAddress::parse(account)?;
            users::by_email(&client, &email, &request.aud).await?.map(|user| user.id)
        }
        None => {
            let phone = PhoneNumber::parse(account)?;
            users::by_phone(&client, &phone, &request.aud).await?.map(|user| user.id)
        }
    };
    let user = match id {
        Some(id) => users::complete(&client, id).await?,
        None => None,
    };
    user.ok_or_else(|| ContractError::UserUnknown.into())
}

async fn change(
    auth: &Auth,
    request: &RequestInfo,
    actor: &User,
    id: UserId,
    changes: AccountChanges,
) -> Result<Value, AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    let user = update::apply(AccountOperation::new(auth, request, &tx), actor, id, changes).await?;
    tx.commit().await?;
    shown(&user)
}
