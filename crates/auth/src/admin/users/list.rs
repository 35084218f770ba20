//! `GET /admin/users`

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::Auth;
use crate::admin::administrator::Administrator;
use crate::admin::page::{ListPage, PageHeaders};
use crate::error::{AuthError, ContractError};
use crate::http::extract::{Query, RequestInfo};
use crate::model::User;
use crate::sql::users::{self, UserList};

/// `GET /admin/users`
pub(crate) async fn list(
    State(auth): State<Auth>,
    _: Administrator,
    request: RequestInfo,
    page: ListPage,
    query: Query,
) -> Result<(PageHeaders, Json<Value>), AuthError> {
    let list = UserList {
        aud: &request.aud,
        filter: query.get("filter"),
        oldest_first: sorts_oldest_first(&query)?,
        limit: page.limit(),
        offset: page.offset(),
    };
    let client = auth.database().client().await?;
    let (total, found) = users::list(&client, &list).await?;
    drop(client);
    let users = found.iter().map(listed).collect::<Result<Vec<_>, _>>()?;
    Ok((page.headers(total), Json(json!({"users": users, "aud": request.aud}))))
}

/// Returns the JSON of a user in a list, whose identities are not loaded.
fn listed(user: &User) -> Result<Value, AuthError> {
    let mut user = serde_json::to_value(user).map_err(AuthError::internal)?;
    user["identities"] = Value::Null;
    Ok(user)
}

/// Reads the first `sort` parameter. All of them are checked.
fn sorts_oldest_first(query: &Query) -> Result<bool, AuthError> {
    let shortened = |text: &str| text.chars().take(64).collect::<String>();
    let mut first = None;
    for (_, sort) in query.pairs().iter().filter(|(name, _)| name == "sort") {
        let (field, direction) = sort.split_once(' ').unwrap_or((sort, "desc"));
        if field != "created_at" {
            let detail = format!("bad field for sort '{}'", shortened(field));
            return Err(ContractError::BadSort { detail }.into());
        }
        let ascending = match direction.to_ascii_lowercase().as_str() {
            "asc" => true,
            "desc" => false,
            _ => {
                let direction = shortened(direction);
                let detail = format!("bad direction for sort '{direction}', only 'asc' and 'desc' allowed");
                return Err(ContractError::BadSort { detail }.into());
            }
        };
        first.get_or_insert(ascending);
    }
    Ok(first.unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sort_counts_and_all_are_checked() {
        let sort = |query: &str| sorts_oldest_first(&Query::parse(query));
        assert!(!sort("").unwrap());
        assert!(!sort("sort=created_at").unwrap());
        assert!(sort("sort=created_at+ASC&sort=created_at+desc").unwrap());
        for (query, text) in [
            ("sort=email", "Bad Sort Parameters: bad field for sort 'email'"),
            ("sort=", "Bad Sort Parameters: bad field for sort ''"),
            (
                "sort=created_at+asc&sort=created_at+up",
                "Bad Sort Parameters: bad direction for sort 'up', only 'asc' and 'desc' allowed",
            ),
        ] {
            assert_eq!(sort(query).unwrap_err().to_string(), text);
        }
    }
}
