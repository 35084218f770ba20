//! The attributes of a custom provider, and their rules.

use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;

use crate::error::{AuthError, ContractError};
use crate::model::JsonObject;
use crate::oauth::protocol::reserved_parameters::is_reserved;
use crate::oauth::provider::custom::PREFIX;
use crate::sql::custom_providers::CustomProvider;

/// Claims that decide about the rights of an account.
const PROTECTED_FIELDS: [&str; 13] = [
    "id",
    "aud",
    "role",
    "app_metadata",
    "created_at",
    "updated_at",
    "confirmed_at",
    "email_confirmed_at",
    "phone_confirmed_at",
    "email_verified",
    "phone_verified",
    "banned_until",
    "is_super_admin",
];

/// The body of a request that creates or changes a provider. An empty text is an absent one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ProviderAttributes {
    provider_type: String,
    identifier: String,
    name: String,
    client_id: String,
    client_secret: String,
    acceptable_client_ids: Option<Vec<String>>,
    scopes: Option<Vec<String>>,
    pkce_enabled: Option<bool>,
    attribute_mapping: Option<JsonObject>,
    custom_claims_allowlist: Option<Vec<String>>,
    authorization_params: Option<JsonObject>,
    enabled: Option<bool>,
    email_optional: Option<bool>,
    issuer: String,
    discovery_url: String,
    skip_nonce_check: Option<bool>,
    authorization_url: String,
    token_url: String,
    userinfo_url: String,
    jwks_uri: String,
}

impl ProviderAttributes {
    /// Checks the attributes of a new provider, except for its URLs.
    ///
    /// # Errors
    /// 400 `validation_failed`.
    pub(super) fn check_creation(&self) -> Result<(), AuthError> {
        let is_oidc = match self.provider_type.as_str() {
            "oidc" => true,
            "oauth2" => false,
            _ => return Err(ContractError::ProviderTypeUnknown.into()),
        };
        let required = |text: &str, name: &'static str| match text {
            "" => Err(ContractError::ProviderFieldRequired { name }),
            _ => Ok(()),
        };
        required(&self.identifier, "identifier")?;
        if !self.identifier.starts_with(PREFIX) {
            return Err(ContractError::ProviderIdentifierPrefix.into());
        }
        required(&self.name, "name")?;
        required(&self.client_id, "client_id")?;
        required(&self.client_secret, "client_secret")?;
        if is_oidc {
            if self.issuer.is_empty() {
                return Err(ContractError::ProviderIssuerRequired.into());
            }
        } else {
            for (text, name) in [
                (&self.authorization_url, "authorization_url"),
                (&self.token_url, "token_url"),
                (&self.userinfo_url, "userinfo_url"),
            ] {
                if text.is_empty() {
                    return Err(ContractError::ProviderUrlRequired { name }.into());
                }
            }
        }
        self.check_change()
    }

    /// Checks the attributes of a change, except for its URLs.
    ///
    /// # Errors
    /// 400 `validation_failed`.
    pub(super) fn check_change(&self) -> Result<(), AuthError> {
        for (name, value) in self.authorization_params.iter().flatten() {
            let shown: String = name.chars().take(64).collect();
            if is_reserved(name) || name.eq_ignore_ascii_case("nonce") {
                return Err(ContractError::ProviderParameterReserved { name: shown }.into());
            }
            if !matches!(value, Value::String(_)) {
                return Err(ContractError::ProviderParameterNotText { name: shown }.into());
            }
        }
        if let Some(field) =
            self.attribute_mapping.iter().flatten().map(|(field, _)| field).find(|field| is_protected(field))
        {
            return Err(ContractError::ProviderMappingProtected { field: field.clone() }.into());
        }
        if self.custom_claims_allowlist.iter().flatten().any(|claim| claim.is_empty()) {
            return Err(ContractError::ProviderClaimEmpty.into());
        }
        Ok(())
    }

    /// Returns the given URLs.
    pub(super) fn urls(&self) -> Vec<&str> {
        let all = [
            &self.issuer,
            &self.discovery_url,
            &self.authorization_url,
            &self.token_url,
            &self.userinfo_url,
            &self.jwks_uri,
        ];
        all.into_iter().map(String::as_str).filter(|url| !url.is_empty()).collect()
    }

    /// Returns true if the discovery document must be read again.
    pub(super) fn changes_issuer(&self) -> bool {
        !self.issuer.is_empty() || !self.discovery_url.is_empty()
    }

    /// Returns the new client secret, if there is one.
    pub(super) fn new_secret(&self) -> Option<&str> {
        Some(self.client_secret.as_str()).filter(|secret| !secret.is_empty())
    }

    /// Returns the row of a new provider. Its secret is not encrypted yet.
    pub(super) fn into_provider(self, now: OffsetDateTime) -> CustomProvider {
        let mut provider = CustomProvider {
            id: portico_base::random::uuid(),
            is_oidc: self.provider_type == "oidc",
            identifier: self.identifier.clone(),
            name: String::new(),
            client_id: String::new(),
            client_secret: self.client_secret.clone(),
            acceptable_client_ids: Vec::new(),
            scopes: Vec::new(),
            pkce_enabled: true,
            attribute_mapping: JsonObject::new(),
            authorization_params: JsonObject::new(),
            enabled: true,
            email_optional: false,
            issuer: None,
            discovery_url: None,
            skip_nonce_check: false,
            cached_discovery: None,
            discovery_cached_at: None,
            authorization_url: None,
            token_url: None,
            userinfo_url: None,
            jwks_uri: None,
            custom_claims_allowlist: Vec::new(),
            created_at: now,
            updated_at: now,
        };
        self.apply(&mut provider);
        if provider.is_oidc && provider.scopes.is_empty() {
            provider.scopes.push("openid".to_owned());
        }
        provider
    }

    /// Changes a row by the given attributes, except for its secret. Type and identifier are fixed.
    pub(super) fn apply(&self, provider: &mut CustomProvider) {
        let text = |field: &mut String, given: &String| {
            if !given.is_empty() {
                field.clone_from(given);
            }
        };
        text(&mut provider.name, &self.name);
        text(&mut provider.client_id, &self.client_id);
        let url = |field: &mut Option<String>, given: &String| {
            if !given.is_empty() {
                *field = Some(given.clone());
            }
        };
        if provider.is_oidc {
            url(&mut provider.issuer, &self.issuer);
            url(&mut provider.discovery_url, &self.discovery_url);
            set(&mut provider.skip_nonce_check, self.skip_nonce_check);
        } else {
            url(&mut provider.authorization_url, &self.authorization_url);
            url(&mut provider.token_url, &self.token_url);
            url(&mut provider.userinfo_url, &self.userinfo_url);
            url(&mut provider.jwks_uri, &self.jwks_uri);
        }
        set(&mut provider.acceptable_client_ids, self.acceptable_client_ids.clone());
        if let Some(mut scopes) = self.scopes.clone() {
            if provider.is_oidc && !scopes.iter().any(|scope| scope == "openid") {
                scopes.insert(0, "openid".to_owned());
            }
            provider.scopes = scopes;
        }
        set(&mut provider.pkce_enabled, self.pkce_enabled);
        set(&mut provider.attribute_mapping, self.attribute_mapping.clone());
        set(&mut provider.custom_claims_allowlist, self.custom_claims_allowlist.clone());
        set(&mut provider.authorization_params, self.authorization_params.clone());
        set(&mut provider.enabled, self.enabled);
        set(&mut provider.email_optional, self.email_optional);
    }
}

fn set<T>(field: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *field = given;
    }
}

fn is_protected(field: &str) -> bool {
    PROTECTED_FIELDS.iter().any(|known| known.eq_ignore_ascii_case(field))
}
