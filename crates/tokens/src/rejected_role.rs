//! The rule for the database roles of requests: no request acts as the login.

/// The role that connections for requests log in with.
pub const LOGIN_ROLE: &str = "authenticator";

/// The reasons for which no request may act as a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectedRole {
    /// `none`: `set role none` would leave the request in the role that the server logs in with.
    NoRole,
    /// The role that the server logs in with. PostgreSQL would allow it, since every role may
    /// assume itself: a token could use privileges of the login that roles of requests lack.
    Login,
}

/// Checks that a request may act as a role, as far as that does not depend on grants. `login` is
/// the name of the role that the server logs in with, which on an external server may differ from
/// [`LOGIN_ROLE`].
///
/// # Errors
/// [`RejectedRole`]
pub fn check_request_role(role: &str, login: &str) -> Result<(), RejectedRole> {
    match role {
        "none" => Err(RejectedRole::NoRole),
        _ if role == LOGIN_ROLE || role == login => Err(RejectedRole::Login),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_acts_as_the_login() {
        assert_eq!(check_request_role("none", "portico_api"), Err(RejectedRole::NoRole));
        assert_eq!(check_request_role("authenticator", "portico_api"), Err(RejectedRole::Login));
        assert_eq!(check_request_role("portico_api", "portico_api"), Err(RejectedRole::Login));
        for role in ["anon", "authenticated", "service_role", "editor", "None", ""] {
            assert_eq!(check_request_role(role, "portico_api"), Ok(()), "{role}");
        }
    }
}
