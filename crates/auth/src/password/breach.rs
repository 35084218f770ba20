//! The check for breached passwords, with the k-anonymity range API of Have I Been Pwned.
//!
//! Only the first five digits of the password's SHA-1 are sent. The responses are cached: a range
//! does not depend on the person.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{AuthError, ContractError};
use crate::settings::BreachCheckSettings;

/// Most ranges that are cached.
const MAX_RANGES: usize = 64;
/// The lifetime of a cached range.
const RANGE_AGE: Duration = Duration::from_secs(3600);
/// Largest response. The API responds with about 40 KB.
const MAX_RANGE_BYTES: usize = 1024 * 1024;

pub(super) struct BreachCheck {
    settings: BreachCheckSettings,
    client: OnceLock<Option<reqwest::Client>>,
    ranges: Mutex<HashMap<String, (Instant, Arc<str>)>>,
}

impl BreachCheck {
    pub(super) fn new(settings: BreachCheckSettings) -> Self {
        Self { settings, client: OnceLock::new(), ranges: Mutex::new(HashMap::new()) }
    }

    /// Returns true if the password is in a breach. When the API fails: false or an error, as
    /// configured.
    pub(super) async fn is_known(&self, password: &str) -> Result<bool, AuthError> {
        let digest = portico_base::hash::sha1_hex(password.as_bytes()).to_ascii_uppercase();
        let (prefix, suffix) = digest.split_at(5);
        match self.range(prefix).await {
            Ok(range) => Ok(range
                .lines()
                .filter_map(|line| line.trim().split_once(':'))
                .any(|(known, count)| known.eq_ignore_ascii_case(suffix) && count != "0")),
            Err(error) if self.settings.fail_closed => Err(AuthError::failed(ContractError::BreachCheckFailed, error)),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(error = %error, "the check for breached passwords failed, the password is accepted");
                Ok(false)
            }
        }
    }

    async fn range(&self, prefix: &str) -> anyhow::Result<Arc<str>> {
        if let Some(range) = self.cached(prefix) {
            return Ok(range);
        }
        let client = self.client.get_or_init(|| self.build_client()).clone();
        let client = client.ok_or_else(|| anyhow::anyhow!("no TLS client"))?;
        let url = format!("{}{prefix}", self.settings.url);
        let mut response = client.get(url).header("Add-Padding", "true").send().await?.error_for_status()?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            anyhow::ensure!(body.len() + chunk.len() <= MAX_RANGE_BYTES, "the response is too large");
            body.extend_from_slice(&chunk);
        }
        let range: Arc<str> = String::from_utf8(body)?.into();
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        if ranges.len() >= MAX_RANGES {
            ranges.retain(|_, (at, _)| at.elapsed() < RANGE_AGE);
            if ranges.len() >= MAX_RANGES {
                ranges.clear();
            }
        }
        ranges.insert(prefix.to_owned(), (Instant::now(), range.clone()));
        Ok(range)
    }

    fn cached(&self, prefix: &str) -> Option<Arc<str>> {
        let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.get(prefix).filter(|(at, _)| at.elapsed() < RANGE_AGE).map(|(_, range)| range.clone())
    }

    fn build_client(&self) -> Option<reqwest::Client> {
        // An error only means that a provider is installed already
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        reqwest::Client::builder()
            .timeout(self.settings.timeout)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(&self.settings.user_agent)
            .build()
            .inspect_err(|error| tracing::error!(error = %error, "no client for the check for breached passwords"))
            .ok()
    }
}
