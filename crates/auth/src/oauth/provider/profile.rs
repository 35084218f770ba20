//! What a provider tells about a person, in the one form that the rest of the service reads.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A JSON object.
pub type Object = Map<String, Value>;

/// The provider's answer lacks what an account needs, or has it in another type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the provider's answer has no usable {0}")]
pub struct Unreadable(pub &'static str);

/// One address of a person at a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderEmail {
    /// As the provider wrote it.
    pub address: String,
    /// The provider vouches that the person reads mail sent to it.
    pub verified: bool,
    /// The one that the person prefers.
    pub primary: bool,
}

/// A person as a provider describes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The person's lasting identifier at the provider. Never empty.
    pub subject: String,
    /// Every address known, in the provider's order.
    pub emails: Vec<ProviderEmail>,
    /// `identity_data` but for `email` and `email_verified`, which follow from [`Self::emails`].
    pub claims: Object,
}

impl Profile {
    /// The address that counts for the account (auth-core 10.3): the primary one, lower-cased.
    #[must_use]
    pub fn candidate(&self) -> Option<ProviderEmail> {
        self.emails.iter().find(|email| email.primary && !email.address.is_empty()).map(lower_cased)
    }

    /// The addresses that the provider vouches for, lower-cased.
    #[must_use]
    pub fn verified(&self) -> Vec<String> {
        let mut addresses: Vec<String> = self
            .emails
            .iter()
            .filter(|email| email.verified && !email.address.is_empty())
            .map(|email| email.address.to_lowercase())
            .collect();
        addresses.dedup();
        addresses
    }

    /// What `identities.identity_data` stores.
    #[must_use]
    pub fn identity_data(&self) -> Object {
        let mut data = self.claims.clone();
        let shown = self.candidate().or_else(|| self.emails.last().map(lower_cased));
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
    claims: Object,
    custom: Object,
}

impl ProfileBuilder {
    /// Starts a profile of `subject` as told by `issuer`.
    pub fn new(issuer: &str, subject: &str) -> Result<Self, Unreadable> {
        // Bounded: it becomes part of an index
        if subject.is_empty() || subject.len() > 1024 || subject.contains('\0') {
            return Err(Unreadable("subject"));
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

    /// Name under its two keys.
    pub fn name(self, value: Option<&str>) -> Self {
        self.text(&["name", "full_name"], value)
    }

    /// Picture under its two keys.
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

    /// The finished profile.
    pub fn build(mut self) -> Profile {
        if !self.custom.is_empty() {
            self.claims.insert("custom_claims".into(), Value::Object(self.custom));
        }
        let subject = self.claims.get("sub").and_then(Value::as_str).unwrap_or_default().to_owned();
        Profile { subject, emails: self.emails, claims: self.claims }
    }
}

/// A text member.
pub fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// An identifier that some providers write as a number and others as a text.
pub fn identifier(value: &Value, key: &str) -> Result<String, Unreadable> {
    match value.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(Value::Number(number)) if number.is_u64() || number.is_i64() => Ok(number.to_string()),
        _ => Err(Unreadable("subject")),
    }
}

/// A truth that some providers write as a text or a number.
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
    fn the_primary_address_counts_and_the_last_is_shown_without_one() {
        let profile = ProfileBuilder::new("https://issuer", "1")
            .unwrap()
            .email(Some("Old@Example.com"), true, false)
            .email(Some("Ada@Example.com"), false, true)
            .email(Some("late@example.com"), true, false)
            .build();
        assert_eq!(profile.candidate().unwrap().address, "ada@example.com");
        assert_eq!(profile.verified(), ["old@example.com", "late@example.com"]);
        assert_eq!(profile.identity_data()["email"], "ada@example.com");
        assert_eq!(profile.identity_data()["email_verified"], false);

        let profile = ProfileBuilder::new("https://issuer", "1").unwrap().email(Some("A@b.c"), true, false).build();
        assert_eq!(profile.candidate(), None);
        assert_eq!(profile.identity_data()["email"], "a@b.c");
        assert_eq!(profile.identity_data()["phone_verified"], false);
    }

    #[test]
    fn a_profile_without_subject_is_refused() {
        assert!(ProfileBuilder::new("https://issuer", "").is_err());
        assert!(ProfileBuilder::new("https://issuer", &"x".repeat(2000)).is_err());
        assert!(identifier(&json!({"id": null}), "id").is_err());
        assert!(identifier(&json!({"id": 1.5}), "id").is_err());
        assert_eq!(identifier(&json!({"id": 42}), "id").unwrap(), "42");
    }
}
