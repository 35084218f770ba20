//! The validation of settings at start.

use std::time::Duration;

use portico_mail::{Address, Email, HeaderLine, MailKind, Sender, Template};

use super::AuthSettings;
use super::error::{SettingsError, absolute_url};

impl AuthSettings {
    /// Checks the settings as far as possible without a database.
    ///
    /// # Errors
    /// The first setting that is not valid.
    pub fn validate(&self) -> Result<(), SettingsError> {
        absolute_url("site_url", &self.site_url)?;
        if let Some(url) = &self.error_url {
            absolute_url("error_url", url)?;
        }
        absolute_url("external_url", &self.external_url)?;
        if self.third_party.as_ref().is_some_and(|third_party| third_party.issuer.is_named(&self.jwt.issuer)) {
            return Err(SettingsError::Value {
                name: "third_party",
                reason: "must not be the issuer of this server's own tokens".to_owned(),
            });
        }
        if let Some(url) = &self.custom_providers.external_url {
            absolute_url("custom_providers.external_url", url)?;
        }
        if let Some(url) = &self.external_redirect_url {
            absolute_url("external_redirect_url", url)?;
        }
        if let Some(check) = &self.password.breach_check {
            absolute_url("password.breach_check.url", &check.url)?;
        }
        if let Some(name) = &self.rate_limits.header
            && http::HeaderName::from_bytes(name.as_bytes()).is_err()
        {
            // No request would ever be limited
            let reason = format!("{name:?} is not the name of a header");
            return Err(SettingsError::Value { name: "rate_limits.header", reason });
        }
        if let Err(error) = Template::parse(&self.sms.template) {
            return Err(SettingsError::Value { name: "sms.template", reason: error.to_string() });
        }
        if let Err(error) = Template::parse(&self.factors.phone.template) {
            return Err(SettingsError::Value { name: "factors.phone.template", reason: error.to_string() });
        }
        let within = |name: &'static str, fits: bool, reason: &str| {
            if fits { Ok(()) } else { Err(SettingsError::Value { name, reason: reason.to_owned() }) }
        };
        within("jwt.expiry", self.jwt.expiry >= Duration::from_secs(1), "must be at least one second")?;
        within("jwt.audience", !self.jwt.audience.is_empty(), "must not be empty: tokens would be useless")?;
        within("jwt.default_role", !self.jwt.default_role.is_empty(), "must not be empty: tokens would be useless")?;
        within("password.min_length", (6..=72).contains(&self.password.min_length), "must be 6 to 72")?;
        within("password.bcrypt_cost", (4..=14).contains(&self.password.bcrypt_cost), "must be 4 to 14")?;
        within("password.hashing_threads", self.password.hashing_threads != Some(0), "must be at least 1")?;
        within("email.otp_length", (6..=10).contains(&self.email.otp_length), "must be 6 to 10")?;
        within("sms.otp_length", (6..=10).contains(&self.sms.otp_length), "must be 6 to 10")?;
        within("factors.phone.otp_length", (6..=10).contains(&self.factors.phone.otp_length), "must be 6 to 10")?;
        let shortest = Duration::from_secs(300);
        for (name, expiry) in [
            ("factors.challenge_expiry", self.factors.challenge_expiry),
            ("factors.unverified_expiry", self.factors.unverified_expiry),
        ] {
            within(name, (shortest..=Duration::from_secs(86_400)).contains(&expiry), "must be 300 seconds to one day")?;
        }
        within(
            "email.otp_expiry",
            self.email.otp_expiry <= Duration::from_secs(86_400),
            "must be at most 86400 seconds (one day)",
        )?;
        within(
            "flow_state_expiry",
            self.flow_state_expiry >= Duration::from_secs(300),
            "must be at least 300 seconds",
        )?;
        within(
            "email.allow_unverified_sign_ins",
            !(self.email.autoconfirm && self.email.allow_unverified_sign_ins),
            "cannot be combined with email.autoconfirm",
        )?;
        within("refresh.algorithm_version", self.refresh.algorithm_version <= 2, "must be 0, 1 or 2")?;
        within("refresh.upgrade_percentage", self.refresh.upgrade_percentage <= 100, "must be 0 to 100")?;
        for (name, duration) in [
            ("sessions.timebox", self.sessions.timebox),
            ("sessions.inactivity_timeout", self.sessions.inactivity_timeout),
            ("sessions.allow_low_aal", self.sessions.allow_low_aal),
        ] {
            within(name, duration != Some(Duration::ZERO), "must be positive")?;
        }
        let at_most = |name, duration: Duration, longest: u64, reason| {
            within(name, !duration.is_zero() && duration <= Duration::from_secs(longest), reason)
        };
        at_most("http_timeout", self.http_timeout, 60, "must be positive and at most one minute")?;
        at_most("web3.max_validity", self.web3.max_validity, 86_400, "must be positive and at most one day")?;
        at_most(
            "email.template_max_age",
            self.email.template_max_age,
            7 * 86_400,
            "must be positive and at most 7 days",
        )?;
        at_most("email.template_retry", self.email.template_retry, 7 * 86_400, "must be positive and at most 7 days")?;
        if let Some(captcha) = &self.captcha {
            at_most("captcha.timeout", captcha.timeout, 60, "must be positive and at most one minute")?;
        }
        at_most(
            "passkeys.challenge_expiry",
            self.passkeys.challenge_expiry,
            3600,
            "must be positive and at most one hour",
        )?;
        within("passkeys.max_per_user", (1..=100).contains(&self.passkeys.max_per_user), "must be 1 to 100")?;
        if let Some(relying_party) = &self.relying_party {
            relying_party.validate()?;
        }
        within(
            "oidc_cache_ttl",
            self.oidc_cache_ttl <= Duration::from_secs(7 * 86_400),
            "must be at most 7 days: providers replace their keys",
        )?;
        within(
            "max_request_duration",
            self.max_request_duration.is_zero() || self.max_request_duration >= Duration::from_secs(1),
            "must be at least one second, or 0 for no limit",
        )?;
        within("email.name_servers", self.email.name_servers.len() <= 8, "there can be eight at most")?;
        let blocked = &self.email.blocked_mail_servers;
        within("email.blocked_mail_servers", blocked.len() <= 1000, "there can be a thousand at most")?;
        within(
            "email.blocked_mail_servers",
            blocked.is_empty() || self.email.extended_validation,
            "needs email.extended_validation, without which mail servers are not looked up",
        )?;
        let is_name = |name: &String| {
            let name = name.trim().trim_end_matches('.');
            (1..=253).contains(&name.len()) && !name.contains(['@', '*', '/', ' '])
        };
        within("email.blocked_mail_servers", blocked.iter().all(is_name), "expected names such as \"mx.example.com\"")?;
        for kind in self.email.templates.keys() {
            self.template_url(*kind)?;
        }
        let sender = Address::parse(&self.email.sender_address)
            .map_err(|error| SettingsError::Value { name: "email.sender_address", reason: error.to_string() })?;
        headers(&self.email.headers, &sender)
    }
}

/// Checks that every kind of mail can have these headers, so that a wrong one is found at start and
/// not when a mail is sent.
fn headers(headers: &[(String, String)], sender: &Address) -> Result<(), SettingsError> {
    for kind in MailKind::ALL {
        let from = Sender::new("", sender.clone());
        let mut email = Email::new(from, sender.clone(), HeaderLine::default(), "");
        for (name, value) in headers {
            email = email.with_header(name, &kind.in_header(value)).map_err(|error| SettingsError::Value {
                name: "email.headers",
                reason: format!("{:?}: {error}", name.chars().take(76).collect::<String>()),
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use portico_tokens::ThirdPartyIssuer;

    use super::*;
    use crate::settings::ThirdPartySettings;

    #[test]
    fn the_defaults_are_valid() {
        AuthSettings::default().validate().unwrap();
    }

    #[test]
    fn errors_name_the_setting() {
        let mut settings = AuthSettings { site_url: "example.com".into(), ..AuthSettings::default() };
        assert!(settings.validate().unwrap_err().to_string().starts_with("site_url"));
        settings = AuthSettings::default();
        settings.password.min_length = 3;
        assert_eq!(settings.validate().unwrap_err().to_string(), "password.min_length: must be 6 to 72");
        settings = AuthSettings::default();
        settings.email.autoconfirm = true;
        settings.email.allow_unverified_sign_ins = true;
        assert!(settings.validate().is_err());
    }

    #[test]
    fn settings_that_would_fail_later_are_rejected_at_start() {
        let refused = |change: fn(&mut AuthSettings)| {
            let mut settings = AuthSettings::default();
            change(&mut settings);
            settings.validate().unwrap_err().to_string()
        };
        let third_party = refused(|settings| {
            let issuer = ThirdPartyIssuer {
                url: "https://login.example.com".into(),
                other_names: vec![format!("{}/", settings.jwt.issuer)],
                audience: None,
            };
            settings.third_party = Some(ThirdPartySettings { issuer, discovery_url: None });
        });
        assert_eq!(third_party, "third_party: must not be the issuer of this server's own tokens");
        let header = refused(|settings| settings.rate_limits.header = Some("x real ip".into()));
        assert_eq!(header, "rate_limits.header: \"x real ip\" is not the name of a header");
        assert!(refused(|settings| settings.sms.template = "{{ if }}".into()).starts_with("sms.template: "));
        let redirect = refused(|settings| settings.external_redirect_url = Some("/callback".into()));
        assert!(redirect.starts_with("external_redirect_url: "), "{redirect}");
        let blocked = refused(|settings| settings.email.blocked_mail_servers = vec!["mx.example.com".into()]);
        assert!(blocked.starts_with("email.blocked_mail_servers: needs email.extended_validation"), "{blocked}");
        let blocked = refused(|settings| {
            settings.email.extended_validation = true;
            settings.email.blocked_mail_servers = vec!["ada@example.com".into()];
        });
        assert!(blocked.starts_with("email.blocked_mail_servers: expected names"), "{blocked}");
        assert!(refused(|settings| settings.http_timeout = Duration::ZERO).starts_with("http_timeout: "));
        assert!(refused(|settings| settings.http_timeout = Duration::from_secs(61)).starts_with("http_timeout: "));
        let short = refused(|settings| settings.max_request_duration = Duration::from_millis(10));
        assert_eq!(short, "max_request_duration: must be at least one second, or 0 for no limit");
        assert!(refused(|settings| settings.oidc_cache_ttl = Duration::MAX).starts_with("oidc_cache_ttl: "));
        assert!(refused(|settings| settings.email.template_retry = Duration::ZERO).contains("template_retry"));
    }

    #[test]
    fn a_header_that_no_mail_can_have_is_named() {
        let refused = |name: &str, value: &str| {
            let mut settings = AuthSettings::default();
            settings.email.headers = vec![("X-Kind".into(), "$messageType".into()), (name.into(), value.into())];
            settings.validate().map_err(|error| error.to_string())
        };
        assert_eq!(refused("X-Campaign", "a b"), Ok(()));
        assert_eq!(
            refused("Bcc", "eve@example.com").unwrap_err(),
            "email.headers: \"Bcc\": the header \"Bcc\" cannot be set"
        );
        for (name, value) in
            [("X Y", "z"), ("", "z"), ("X-Evil", "a\r\nBcc: eve@example.com"), ("X-Long", &"$messageType".repeat(80))]
        {
            let error = refused(name, value).unwrap_err();
            assert!(error.starts_with(&format!("email.headers: {name:?}: ")), "{error}");
        }
    }
}
