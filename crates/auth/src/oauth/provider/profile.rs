//! The profile of a person at a provider, in the one form that the rest of the service reads.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::model::JsonObject;

/// A provider's response lacks what an account needs, or has it in another type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the provider's response has no usable {0}")]
pub struct UnreadableProfile(pub &'static str);

/// One address of a person at a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderEmail {
    /// The address as the provider wrote it.
    pub address: String,
    /// The provider states that the person receives email at it.
    pub verified: bool,
    /// The one that the person prefers.
    pub primary: bool,
}

/// A person as a provider describes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The person's permanent identifier at the provider. Never empty.
    pub subject: String,
    /// Every address known, in the provider's order.
    pub emails: Vec<ProviderEmail>,
    /// `identity_data` except for `email` and `email_verified`, which follow from [`Self::emails`].
    pub claims: JsonObject,
}

impl Profile {
    /// Returns the address that may become the account's: the primary one, lower-cased.
    #[must_use]
    pub fn primary_email(&self) -> Option<ProviderEmail> {
        self.emails.iter().find(|email| email.primary && !email.address.is_empty()).map(lower_cased)
    }

    /// Returns the addresses that the provider has verified, lower-cased.
    #[must_use]
    pub fn verified_emails(&self) -> Vec<String> {
        let mut addresses: Vec<String> = self
            .emails
            .iter()
            .filter(|email| email.verified && !email.address.is_empty())
            .map(|email| email.address.to_lowercase())
            .collect();
        addresses.dedup();
        addresses
    }

    /// Returns the value of the column `identities.identity_data`.
    #[must_use]
    pub fn identity_data(&self) -> JsonObject {
        let mut data = self.claims.clone();
        let shown = self.primary_email().or_else(|| self.emails.last().map(lower_cased));
        match shown {
            Some(email) => {
                data.insert("email".into(), json!(email.address));
                data.insert("email_verified".into(), json!(email.verified));
            }
            None => {
                data.insert("email_verified".into(), json!(false));
            }
        }
        data.insert("phone_verified".into(), json!(false));
        data
    }
}

fn lower_cased(email: &ProviderEmail) -> ProviderEmail {
    ProviderEmail { address: email.address.to_lowercase(), ..email.clone() }
}

/// Collects the claims of a [`Profile`]. Empty values are left out.
#[derive(Debug, Default)]
pub struct ProfileBuilder {
    emails: Vec<ProviderEmail>,
    claims: JsonObject,
    custom: JsonObject,
}

impl ProfileBuilder {
    /// Starts the profile of `subject` at `issuer`.
    ///
    /// # Errors
    /// When the subject cannot identify a person.
    pub fn new(issuer: &str, subject: &str) -> Result<Self, UnreadableProfile> {
        // Bounded: it becomes part of an index
        if subject.is_empty() || subject.len() > 1024 || subject.contains('\0') {
            return Err(UnreadableProfile("subject"));
        }
        let mut builder = Self::default();
        builder.claims.insert("iss".into(), json!(issuer));
        builder.claims.insert("sub".into(), json!(subject));
        builder.claims.insert("provider_id".into(), json!(subject));
        Ok(builder)
    }

    /// Sets each of `keys` to `value` unless it is empty.
    pub fn text(mut self, keys: &[&str], value: Option<&str>) -> Self {
        if let Some(value) = value.map(str::trim).filter(|value| !value.is_empty()) {
            for key in keys {
                self.claims.insert((*key).into(), json!(value));
            }
        }
        self
    }

    /// Sets the name under its two keys.
    pub fn name(self, value: Option<&str>) -> Self {
        self.text(&["name", "full_name"], value)
    }

    /// Sets the picture under its two keys.
    pub fn picture(self, value: Option<&str>) -> Self {
        self.text(&["picture", "avatar_url"], value)
    }

    /// Copies `value` into `custom_claims` unless it is null or an empty text.
    pub fn custom(mut self, key: &str, value: Option<&Value>) -> Self {
        if let Some(value) = value.filter(|value| !value.is_null() && value.as_str() != Some("")) {
            self.custom.insert(key.into(), value.clone());
        }
        self
    }

    /// Adds an address unless it is empty.
    pub fn email(mut self, address: Option<&str>, verified: bool, primary: bool) -> Self {
        if let Some(address) = address.map(str::trim).filter(|address| !address.is_empty()) {
            self.emails.push(ProviderEmail { address: address.to_owned(), verified, primary });
        }
        self
    }

    /// Returns the profile.
    pub fn build(mut self) -> Profile {
        if !self.custom.is_empty() {
            self.claims.insert("custom_claims".into(), Value::Object(self.custom));
        }
        let subject = self.claims.get("sub").and_then(Value::as_str).unwrap_or_default().to_owned();
        Profile { subject, emails: self.emails, claims: self.claims }
    }
}

/// Returns a member that is a text.
pub fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// Returns an identifier, which some providers write as a number and others as a text.
///
/// # Errors
/// When it is missing or of another type.
pub fn identifier(value: &Value, key: &str) -> Result<String, UnreadableProfile> {
    match value.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(Value::Number(number)) if number.is_u64() || number.is_i64() => Ok(number.to_string()),
        _ => Err(UnreadableProfile("subject")),
    }
}

/// Returns a truth, which some providers write as a text or a number.
pub fn truth(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Bool(truth)) => *truth,
        Some(Value::String(text)) => text == "true" || text == "1",
        Some(Value::Number(number)) => number.as_i64() == Some(1),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn identity_data_has_the_primary_address_or_the_last_one_without_a_primary() {
        let profile = ProfileBuilder::new("https://issuer", "1")
            .unwrap()
            .email(Some("Old@Example.com"), true, false)
            .email(Some("Ada@Example.com"), false, true)
            .email(Some("late@example.com"), true, false)
            .build();
        assert_eq!(profile.primary_email().unwrap().address, "ada@example.com");
        assert_eq!(profile.verified_emails(), ["old@example.com", "late@example.com"]);
        assert_eq!(profile.identity_data()["email"], "ada@example.com");
        assert_eq!(profile.identity_data()["email_verified"], false);

        let profile = ProfileBuilder::new("https://issuer", "1").unwrap().email(Some("A@b.c"), true, false).build();
        assert_eq!(profile.primary_email(), None);
        assert_eq!(profile.identity_data()["email"], "a@b.c");
        assert_eq!(profile.identity_data()["phone_verified"], false);
    }

    #[test]
    fn a_profile_without_a_usable_subject_is_rejected() {
        assert!(ProfileBuilder::new("https://issuer", "").is_err());
        assert!(ProfileBuilder::new("https://issuer", &"x".repeat(2000)).is_err());
        assert!(identifier(&json!({"id": null}), "id").is_err());
        assert!(identifier(&json!({"id": 1.5}), "id").is_err());
        assert_eq!(identifier(&json!({"id": 42}), "id").unwrap(), "42");
    }
}
