//! Roles of an external server: which role plays which part, and as whom a connection logs in to
//! act as it.
//!
//! On the embedded cluster every role has the name that the hosted service gives it, and the socket
//! admits a login as any of them. A server of others may have roles of these names that belong to
//! others, `postgres` above all, which is usually its superuser. There another role plays the part,
//! under a name of its own.
//!
//! A session that has logged in as a superuser and acts as another role returns to the superuser
//! login at `reset role`, which any function can run. Therefore [`Logins`](logins::Logins) has
//! login roles of its own, one for each part that runs SQL of a project. Such a login has no right
//! but that of acting in its part.

pub(crate) mod detected;
pub(crate) mod logins;
pub(crate) mod names;

use std::sync::Arc;

use crate::connection;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;
use crate::pooler::detection;
use names::Names;

/// Returns the names of an endpoint's server, and asks it for them the first time.
pub(crate) async fn names_of(endpoint: &Endpoint) -> Result<Arc<Names>, DatabaseError> {
    if endpoint.trusts_any_role() {
        return Ok(Arc::default());
    }
    if let Some(names) = endpoint.detected().names() {
        return Ok(names);
    }
    detection::detect(endpoint).await?;
    let client = connection::connect_guarded(endpoint).await?;
    Ok(endpoint.detected().set_names(Names::choose(&client).await?))
}
