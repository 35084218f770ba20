//! `GET /admin/users`

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use crate::Auth;
use crate::admin::administrator::Administrator;
use crate::admin::cursor::{CursorPage, UserPage};
use crate::admin::page::ListPage;
use crate::error::{AuthError, ContractError};
use crate::http::extract::{Query, RequestInfo};
use crate::model::User;
use crate::sql::users::{self, UserFilter};

/// `GET /admin/users`
pub(crate) async fn list(
    State(auth): State<Auth>,
    _: Administrator,
    request: RequestInfo,
    page: UserPage,
    query: Query,
) -> Result<Response, AuthError> {
    let filter = UserFilter { aud: &request.aud, part: query.get("filter"), oldest_first: sorts_oldest_first(&query)? };
    match page {
        UserPage::Numbered(page) => list_numbered(&auth, &filter, &page).await,
        UserPage::Cursor(page) => list_after_cursor(&auth, &filter, &page).await,
    }
}

async fn list_numbered(auth: &Auth, filter: &UserFilter<'_>, page: &ListPage) -> Result<Response, AuthError> {
    let client = auth.database().client().await?;
    let (total, found) = users::list(&client, filter, page.limit(), page.offset()).await?;
    drop(client);
    let body = json!({"users": listed(&found)?, "aud": filter.aud});
    Ok((page.headers(total), Json(body)).into_response())
}

async fn list_after_cursor(auth: &Auth, filter: &UserFilter<'_>, page: &CursorPage) -> Result<Response, AuthError> {
    let client = auth.database().client().await?;
    let mut found = users::list_after(&client, filter, page.after(), page.rows()).await?;
    drop(client);
    let next = page.cut(&mut found);
    let body = json!({"users": listed(&found)?, "aud": filter.aud, "pagination": next.json()});
    Ok((next, Json(body)).into_response())
}

/// Returns the JSON of users in a list, whose identities are not loaded.
fn listed(users: &[User]) -> Result<Vec<Value>, AuthError> {
    let listed = |user: &User| {
        let mut user = serde_json::to_value(user).map_err(AuthError::internal)?;
        user["identities"] = Value::Null;
        Ok(user)
    };
    users.iter().map(listed).collect()
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
