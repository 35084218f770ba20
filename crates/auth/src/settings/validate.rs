//! The validation of settings at start.

use std::time::Duration;

use portico_mail::{Address, Email, HeaderLine, MailKind, Sender, Template};

use super::AuthSettings;
use super::error::{SettingsError, absolute_url};

const ONE_DAY: Duration = Duration::from_secs(86_400);
const ONE_WEEK: Duration = Duration::from_secs(7 * 86_400);

impl AuthSettings {
    /// Checks the settings as far as possible without a database.
    ///
    /// # Errors
    /// The first setting that is not valid.
    pub fn validate(&self) -> Result<(), SettingsError> {
        self.validate_addresses()?;
        self.validate_tokens()?;
        self.validate_codes()?;
        self.validate_passwords()?;
        self.validate_limits()?;
        self.validate_email()?;
        self.validate_mail_domains()
    }

    fn validate_addresses(&self) -> Result<(), SettingsError> {
        absolute_url("site_url", &self.site_url)?;
        absolute_url("external_url", &self.external_url)?;
        let breach_check = self.password.breach_check.as_ref();
        for (name, url) in [
            ("error_url", self.error_url.as_ref()),
            ("custom_providers.external_url", self.custom_providers.external_url.as_ref()),
            ("external_redirect_url", self.external_redirect_url.as_ref()),
            ("password.breach_check.url", breach_check.map(|check| &check.url)),
        ] {
            if let Some(url) = url {
                absolute_url(name, url)?;
            }
        }
        if let Some(relying_party) = &self.relying_party {
            relying_party.validate()?;
        }
        Ok(())
    }

    fn validate_tokens(&self) -> Result<(), SettingsError> {
        let is_own = self.third_party.as_ref().is_some_and(|other| other.issuer.is_named(&self.jwt.issuer));
        check("third_party", !is_own, "must not be the issuer of this server's own tokens")?;
        check("jwt.expiry", self.jwt.expiry >= Duration::from_secs(1), "must be at least one second")?;
        check("jwt.audience", !self.jwt.audience.is_empty(), "must not be empty: tokens would be useless")?;
        check("jwt.default_role", !self.jwt.default_role.is_empty(), "must not be empty: tokens would be useless")?;
        check("refresh.algorithm_version", self.refresh.algorithm_version <= 2, "must be 0, 1 or 2")?;
        check("refresh.upgrade_percentage", self.refresh.upgrade_percentage <= 100, "must be 0 to 100")?;
        for (name, duration) in [
            ("sessions.timebox", self.sessions.timebox),
            ("sessions.inactivity_timeout", self.sessions.inactivity_timeout),
            ("sessions.allow_low_aal", self.sessions.allow_low_aal),
        ] {
            check(name, duration != Some(Duration::ZERO), "must be positive")?;
        }
        Ok(())
    }

    /// Checks the settings of one-time codes, second factors and passkeys.
    fn validate_codes(&self) -> Result<(), SettingsError> {
        let factors = &self.factors;
        for (name, template) in
            [("sms.template", &self.sms.template), ("factors.phone.template", &factors.phone.template)]
        {
            Template::parse(template).map_err(|error| SettingsError::Value { name, reason: error.to_string() })?;
        }
        for (name, length) in [
            ("email.otp_length", self.email.otp_length),
            ("sms.otp_length", self.sms.otp_length),
            ("factors.phone.otp_length", factors.phone.otp_length),
        ] {
            check(name, (6..=10).contains(&length), "must be 6 to 10")?;
        }
        for (name, expiry) in [
            ("factors.challenge_expiry", factors.challenge_expiry),
            ("factors.unverified_expiry", factors.unverified_expiry),
        ] {
            let shortest = Duration::from_secs(300);
            check(name, (shortest..=ONE_DAY).contains(&expiry), "must be 300 seconds to one day")?;
        }
        let one_hour = Duration::from_secs(3600);
        let expiry = self.passkeys.challenge_expiry;
        check_duration("passkeys.challenge_expiry", expiry, one_hour, "must be positive and at most one hour")?;
        check("passkeys.max_per_user", (1..=100).contains(&self.passkeys.max_per_user), "must be 1 to 100")?;
        check("flow_state_expiry", self.flow_state_expiry >= Duration::from_secs(300), "must be at least 300 seconds")
    }

    fn validate_passwords(&self) -> Result<(), SettingsError> {
        check("password.min_length", (6..=72).contains(&self.password.min_length), "must be 6 to 72")?;
        check("password.bcrypt_cost", (4..=14).contains(&self.password.bcrypt_cost), "must be 4 to 14")?;
        check("password.hashing_threads", self.password.hashing_threads != Some(0), "must be at least 1")
    }

    /// Checks the settings of rate limits, and of the time that calls and requests may take.
    fn validate_limits(&self) -> Result<(), SettingsError> {
        if let Some(name) = &self.rate_limits.header
            && http::HeaderName::from_bytes(name.as_bytes()).is_err()
        {
            // No request would ever be limited
            let reason = format!("{name:?} is not the name of a header");
            return Err(SettingsError::Value { name: "rate_limits.header", reason });
        }
        let one_minute = Duration::from_secs(60);
        check_duration("http_timeout", self.http_timeout, one_minute, "must be positive and at most one minute")?;
        if let Some(captcha) = &self.captcha {
            let reason = "must be positive and at most one minute";
            check_duration("captcha.timeout", captcha.timeout, one_minute, reason)?;
        }
        let reason = "must be positive and at most one day";
        check_duration("web3.max_validity", self.web3.max_validity, ONE_DAY, reason)?;
        let reason = "must be at most 7 days: providers replace their keys";
        check("oidc_cache_ttl", self.oidc_cache_ttl <= ONE_WEEK, reason)?;
        let longest = self.max_request_duration;
        check(
            "max_request_duration",
            longest.is_zero() || longest >= Duration::from_secs(1),
            "must be at least one second, or 0 for no limit",
        )
    }

    fn validate_email(&self) -> Result<(), SettingsError> {
        let email = &self.email;
        check("email.otp_expiry", email.otp_expiry <= ONE_DAY, "must be at most 86400 seconds (one day)")?;
        check(
            "email.allow_unverified_sign_ins",
            !(email.autoconfirm && email.allow_unverified_sign_ins),
            "cannot be combined with email.autoconfirm",
        )?;
        for (name, duration) in
            [("email.template_max_age", email.template_max_age), ("email.template_retry", email.template_retry)]
        {
            check_duration(name, duration, ONE_WEEK, "must be positive and at most 7 days")?;
        }
        for kind in email.templates.keys() {
            self.template_url(*kind)?;
        }
        let sender = Address::parse(&email.sender_address)
            .map_err(|error| SettingsError::Value { name: "email.sender_address", reason: error.to_string() })?;
        headers(&email.headers, &sender)
    }

    fn validate_mail_domains(&self) -> Result<(), SettingsError> {
        let blocked = &self.email.blocked_mail_servers;
        check("email.name_servers", self.email.name_servers.len() <= 8, "there can be eight at most")?;
        check("email.blocked_mail_servers", blocked.len() <= 1000, "there can be a thousand at most")?;
        check(
            "email.blocked_mail_servers",
            blocked.is_empty() || self.email.extended_validation,
            "needs email.extended_validation, without which mail servers are not looked up",
        )?;
        let is_name = |name: &String| {
            let name = name.trim().trim_end_matches('.');
            (1..=253).contains(&name.len()) && !name.contains(['@', '*', '/', ' '])
        };
        check("email.blocked_mail_servers", blocked.iter().all(is_name), "expected names such as \"mx.example.com\"")
    }
}

/// Returns an error with the reason unless the setting is valid.
fn check(name: &'static str, is_valid: bool, reason: &str) -> Result<(), SettingsError> {
    if is_valid { Ok(()) } else { Err(SettingsError::Value { name, reason: reason.to_owned() }) }
}

/// Checks that a duration is positive and at most `longest`.
fn check_duration(
    name: &'static str,
    duration: Duration,
    longest: Duration,
    reason: &str,
) -> Result<(), SettingsError> {
    check(name, !duration.is_zero() && duration <= longest, reason)
}

/// Checks that every kind of email can have these headers, so that a wrong one is found at start
/// and not when an email is sent.
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
