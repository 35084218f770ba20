//! `/admin/users`: the accounts.

mod attributes;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod factors;
pub(crate) mod list;
pub(crate) mod update;

use axum::Json;
use axum::extract::{FromRequestParts, Path};
use http::request::Parts;

use crate::Auth;
use crate::admin::administrator::Administrator;
use crate::error::{AuthError, ContractError};
use crate::model::User;
use crate::model::ids::UserId;
use crate::sql::users;

/// The account that the path of a request names, with identities and factors.
pub(crate) struct NamedUser(pub(crate) User);

impl FromRequestParts<Auth> for NamedUser {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        let Path(names) = Path::<Vec<(String, String)>>::from_request_parts(parts, auth)
            .await
            .map_err(|_| ContractError::UserIdNotUuid)?;
        let named = names.iter().find(|(name, _)| name == "user_id");
        let id = named.and_then(|(_, id)| UserId::parse(id)).ok_or(ContractError::UserIdNotUuid)?;
        let client = auth.database().client().await?;
        users::complete(&client, id).await?.map(Self).ok_or_else(|| ContractError::UserUnknown.into())
    }
}

/// `GET /admin/users/{user_id}`
pub(crate) async fn get(_: Administrator, NamedUser(user): NamedUser) -> Json<User> {
    Json(user)
}
