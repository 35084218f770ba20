//! The addresses that email may be sent to.

use portico_mail::Address;

use crate::error::{AuthError, ContractError};
use crate::model::ids::EmailAddress;
use crate::protection::mail_domain::MailDomains;
use crate::settings::EmailSettings;

/// The rules for the addresses that email may be sent to.
pub(crate) struct Recipients {
    extended_validation: bool,
    authorized_addresses: Vec<String>,
    domains: MailDomains,
}

impl Recipients {
    pub(crate) fn new(settings: &EmailSettings) -> Self {
        Self {
            extended_validation: settings.extended_validation,
            authorized_addresses: settings.authorized_addresses.clone(),
            domains: MailDomains::new(settings.name_servers.clone(), &settings.blocked_mail_servers),
        }
    }

    /// Checks that an address may be sent email.
    ///
    /// # Errors
    /// 400 `email_address_not_authorized`, `email_address_invalid`, or `validation_failed` for one
    /// that no mail server accepts.
    pub(crate) fn check(&self, to: &EmailAddress) -> Result<(), AuthError> {
        if Address::parse(to.as_str()).is_err() {
            return Err(ContractError::EmailMalformed.into());
        }
        if self.extended_validation && (is_invented(to) || self.domains.is_known_to_reject(to.domain())) {
            return Err(invalid_address(to));
        }
        if !self.authorized_addresses.is_empty() {
            let plain = without_label(to.as_str());
            if !self.authorized_addresses.iter().any(|known| without_label(&known.trim().to_lowercase()) == plain) {
                return Err(ContractError::EmailNotAuthorized { address: to.to_string() }.into());
            }
        }
        Ok(())
    }

    /// Checks that the domain of an address accepts email, if extended validation is enabled. To be
    /// called before a transaction, since name servers may be slow. [`check`](Self::check) uses the
    /// cached result.
    ///
    /// # Errors
    /// 400 `email_address_invalid`.
    pub(crate) async fn check_domain(&self, to: &EmailAddress) -> Result<(), AuthError> {
        // An address that `check` rejects needs no lookup
        if !self.extended_validation || is_invented(to) || self.domains.accepts_mail(to.domain()).await {
            return Ok(());
        }
        Err(invalid_address(to))
    }

    /// Like [`check_domain`](Self::check_domain), but for an address that may not be sent any
    /// email: [`check`](Self::check) decides when one is due.
    pub(crate) async fn look_up_domain(&self, to: &EmailAddress) {
        let _ = self.check_domain(to).await;
    }
}

fn invalid_address(to: &EmailAddress) -> AuthError {
    ContractError::EmailInvalid { address: to.to_string() }.into()
}

/// Removes the label of an address: `ada+list@example.com` becomes `ada@example.com`.
fn without_label(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((local, domain)) => format!("{}@{domain}", local.split('+').next().unwrap_or_default()),
        None => address.to_owned(),
    }
}

/// Returns true for domains that cannot receive email, and for well-known fake addresses.
fn is_invented(address: &EmailAddress) -> bool {
    let domain = address.domain();
    let reserved = ["test", "example", "invalid", "local", "localhost"];
    let known = ["example.com", "example.net", "example.org", "test.com", "test.net", "test.org"];
    let last = domain.rsplit('.').next().unwrap_or_default();
    let name = address.as_str().split('@').next().unwrap_or_default();
    !domain.contains('.')
        || reserved.contains(&last)
        || known.iter().any(|known| domain == *known || domain.ends_with(&format!(".{known}")))
        || (domain == "gmail.com" && name.split('+').next().unwrap_or_default().len() < 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_make_another_address() {
        assert_eq!(without_label("ada+x+y@example.com"), "ada@example.com");
        assert_eq!(without_label("ada@example.com"), "ada@example.com");
    }

    #[test]
    fn addresses_that_cannot_exist_are_invented() {
        for (address, invented) in [
            ("ada@example.com", true),
            ("ada@mail.example.org", true),
            ("ada@host", true),
            ("ada@x.test", true),
            ("abc@gmail.com", true),
            ("ada.lovelace@gmail.com", false),
            ("ada@portico.dev", false),
        ] {
            assert_eq!(is_invented(&EmailAddress::parse(address).unwrap()), invented, "{address}");
        }
    }
}
