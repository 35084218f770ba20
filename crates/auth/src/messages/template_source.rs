//! Email bodies that are fetched from a URL, in the background, so that no email waits for them.
//!
//! The built-in body is used until the first one has been fetched, and afterwards the last valid
//! one. The URL may point anywhere, so its calls are as guarded as those of custom providers.

use std::sync::Arc;
use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use portico_mail::{MailKind, Templates};
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

use crate::http_client::{HttpClient, UrlTrust};
use crate::settings::AuthSettings;

/// Longest duration of a fetch.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Fetches bodies until it is dropped.
pub(crate) struct FetchedBodies {
    templates: Templates,
    sources: Vec<(MailKind, Url)>,
    client: Arc<HttpClient>,
    max_age: Duration,
    retry: Duration,
    ending: CancellationToken,
    /// Cancels the tasks when it is dropped.
    _end: DropGuard,
}

impl FetchedBodies {
    /// Makes the bodies that are fetched. `templates` must expect a body of each kind in `sources`.
    pub(crate) fn new(settings: &AuthSettings, templates: Templates, sources: Vec<(MailKind, Url)>) -> Self {
        let ending = CancellationToken::new();
        Self {
            templates,
            sources,
            client: Arc::new(HttpClient::new(TIMEOUT, settings.allow_insecure_loopback_providers)),
            max_age: settings.email.template_max_age,
            retry: settings.email.template_retry,
            _end: ending.clone().drop_guard(),
            ending,
        }
    }

    /// Starts a task for each body.
    pub(crate) fn start(&self, runtime: &Handle) {
        for (kind, url) in &self.sources {
            let source = BodySource {
                templates: self.templates.clone(),
                client: Arc::clone(&self.client),
                kind: *kind,
                url: url.clone(),
                max_age: self.max_age,
                retry: self.retry,
            };
            let ending = self.ending.clone();
            runtime.spawn(async move { ending.run_until_cancelled(source.fetch_forever()).await });
        }
    }
}

struct BodySource {
    templates: Templates,
    client: Arc<HttpClient>,
    kind: MailKind,
    url: Url,
    max_age: Duration,
    retry: Duration,
}

impl BodySource {
    async fn fetch_forever(self) {
        let mut failures = 0;
        loop {
            let pause = match self.fetch().await {
                Ok(()) => {
                    failures = 0;
                    self.max_age
                }
                Err(error) => {
                    let kind = self.kind.key();
                    // Without the query, which may contain a token
                    let host = self.url.host_str().unwrap_or_default();
                    tracing::warn!(mail.kind = kind, host, error = %error, "the template of an email could not be fetched, the previous one stays in use");
                    failures += 1;
                    pause_after(failures, self.retry, self.max_age)
                }
            };
            tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
        }
    }

    async fn fetch(&self) -> anyhow::Result<()> {
        let accepted = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/html, text/plain, */*;q=0.5"))]);
        let text = self.client.get_text(UrlTrust::Guarded, self.url.as_str(), accepted).await?;
        self.templates.put_body(self.kind, &text)?;
        Ok(())
    }
}

/// Returns the first pause, doubled by each further failure.
fn pause_after(failures: u32, first: Duration, longest: Duration) -> Duration {
    first.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1).min(16))).min(longest.max(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let (first, longest) = (Duration::from_secs(10), Duration::from_secs(600));
        assert_eq!(pause_after(1, first, longest), first);
        assert_eq!(pause_after(3, first, longest), Duration::from_secs(40));
        assert_eq!(pause_after(u32::MAX, first, longest), longest);
        assert_eq!(pause_after(1, longest, first), longest);
    }
}
