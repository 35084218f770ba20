//! The variables of email templates.

use serde::Serialize;
use serde_json::Value;

/// The variables of an email template. One that is absent renders as nothing.
///
/// The fields serialize under the names that templates use: `{{ .SiteURL }}`, `{{ .Data.name }}`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Variables {
    /// The address of the application: `{{ .SiteURL }}`.
    #[serde(rename = "SiteURL")]
    pub site_url: String,
    /// The name of the product: `{{ .BrandName }}`.
    pub brand_name: String,
    /// The link to follow: `{{ .ConfirmationURL }}`.
    #[serde(rename = "ConfirmationURL", skip_serializing_if = "Option::is_none")]
    pub confirmation_url: Option<String>,
    /// The digits of the one-time code: `{{ .Token }}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Hash of the one-time code: `{{ .TokenHash }}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_hash: Option<String>,
    /// The person's current address: `{{ .Email }}`.
    pub email: String,
    /// The address that is to become the person's: `{{ .NewEmail }}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_email: Option<String>,
    /// Address that this copy goes to: `{{ .SendingTo }}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sending_to: Option<String>,
    /// The final redirect target of the link: `{{ .RedirectTo }}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_to: Option<String>,
    /// The person's `user_metadata`: `{{ .Data.name }}`.
    pub data: Value,
    /// The address before a change: `{{ .OldEmail }}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_email: Option<String>,
    /// The phone number after a change: `{{ .Phone }}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone: Option<String>,
    /// The phone number before a change: `{{ .OldPhone }}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_phone: Option<String>,
    /// The sign-in method that was added or removed: `{{ .Provider }}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The kind of second factor that was added or removed: `{{ .FactorType }}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor_type: Option<String>,
    /// The name of the passkey that was added or removed: `{{ .PasskeyName }}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passkey_name: Option<String>,
    /// The number of recovery codes that can still be used: `{{ .RecoveryCodesLeft }}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_codes_left: Option<String>,
    /// The page where the person can undo a change that was not theirs: `{{ .SecurityURL }}`.
    #[serde(rename = "SecurityURL", skip_serializing_if = "Option::is_none")]
    pub security_url: Option<String>,
    /// The page where people sign in: `{{ .SignInURL }}`.
    #[serde(rename = "SignInURL", skip_serializing_if = "Option::is_none")]
    pub sign_in_url: Option<String>,
}
