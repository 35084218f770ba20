//! `[auth.users]`: accounts that a development server adds at its start.

use serde_json::{Map, Value as Json};

use portico_base::Secret;

use crate::section::Section;

/// An account of `[auth.users."ada@example.com"]`.
#[derive(Debug, Clone, Default)]
pub struct DevelopmentUser {
    /// The email address, in lower case.
    pub email: String,
    /// The password. Without one the person signs in by code, link or provider.
    pub password: Option<Secret>,
    /// The phone number.
    pub phone: Option<String>,
    /// The full name, for `user_metadata` and the emulated Google.
    pub name: Option<String>,
    /// True if the contacts count as confirmed.
    pub confirmed: bool,
    /// `user_metadata`
    pub user_metadata: Map<String, Json>,
    /// `app_metadata`
    pub app_metadata: Map<String, Json>,
}

impl DevelopmentUser {
    /// Reads the accounts of the table `[auth.users]`.
    pub(super) fn read_all(mut users: Section<'_, '_, '_>) -> Vec<Self> {
        users.sections().into_iter().map(|(email, user)| Self::read(email, user)).collect()
    }

    fn read(email: &str, mut user: Section<'_, '_, '_>) -> Self {
        if !email.contains('@') {
            user.fail("", format!("{}: expected an email address as the name of the table", user.key("")));
        }
        let name = user.text("name").filter(|name| !name.is_empty());
        let mut user_metadata = json_object(&mut user, "user_metadata");
        if let Some(name) = &name {
            user_metadata.entry("full_name").or_insert_with(|| name.as_str().into());
        }
        Self {
            email: email.to_owned(),
            password: user.secret("password"),
            phone: user.text("phone").filter(|phone| !phone.is_empty()),
            name,
            confirmed: user.flag_or("confirmed", true),
            user_metadata,
            app_metadata: json_object(&mut user, "app_metadata"),
        }
    }
}

/// Reads a JSON object from a text: names of TOML tables are read in lower case here.
fn json_object(user: &mut Section<'_, '_, '_>, name: &'static str) -> Map<String, Json> {
    let Some(text) = user.text(name) else { return Map::new() };
    serde_json::from_str(&text).unwrap_or_else(|error| {
        user.fail(name, format!("{}: expected a JSON object in quotes: {error}", user.key(name)));
        Map::new()
    })
}
