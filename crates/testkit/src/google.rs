//! The emulated Google, driven as a browser would.

use url::Url;

use crate::{Member, TestResponse, TestServer};

/// The answer of a person on the provider's page.
#[derive(Debug, Clone, Copy)]
pub enum GooglePerson<'a> {
    /// Signs in with an address that Google has verified.
    Verified {
        /// Their name.
        name: &'a str,
        /// Their address.
        email: &'a str,
    },
    /// Signs in with an address that Google has not verified.
    Unverified {
        /// Their name.
        name: &'a str,
        /// Their address.
        email: &'a str,
    },
    /// Declines.
    Cancels,
    /// The provider fails.
    Breaks,
}

/// The emulated Google of a server under test.
pub struct Google<'a> {
    server: &'a TestServer,
}

impl TestServer {
    /// Returns the emulated Google, driven as a browser would.
    pub fn google(&self) -> Google<'_> {
        Google { server: self }
    }
}

impl<'a> Google<'a> {
    /// Begins a sign-in with Google and answers its page. Returns the response of `/callback`.
    ///
    /// # Panics
    /// When the server or the provider does not redirect.
    pub async fn sign_in(&self, person: GooglePerson<'_>) -> TestResponse {
        let page = self.server.get("/auth/v1/authorize?provider=google").send().await.expect(302).location();
        self.answer(&page, person).await
    }

    /// Begins a sign-in with Google and answers its page. Returns the member who is signed in then.
    ///
    /// # Panics
    /// When the sign-in is rejected.
    pub async fn signed_in(&self, person: GooglePerson<'_>) -> Member<'a> {
        self.server.member_of(&self.sign_in(person).await.expect(302))
    }

    /// Answers the provider's page that `authorize` (the redirect of `/authorize`) leads to, and
    /// follows the redirect to the server. Returns the response of `/callback`.
    ///
    /// # Panics
    /// When the provider does not redirect back.
    pub async fn answer(&self, authorize: &Url, person: GooglePerson<'_>) -> TestResponse {
        let back = self.decide(authorize, person).await;
        self.server.get(back.as_str()).send().await
    }

    /// Answers the provider's page. Returns the address of the redirect back.
    ///
    /// # Panics
    /// When the provider does not redirect back.
    pub async fn decide(&self, authorize: &Url, person: GooglePerson<'_>) -> Url {
        let mut decision = authorize.clone();
        decision.set_query(None);
        let decision = format!("{decision}/decision");
        let mut fields = vec![("request", authorize.query().unwrap_or_default())];
        match person {
            GooglePerson::Verified { name, email } => {
                fields.extend([("action", "add"), ("name", name), ("email", email)])
            }
            GooglePerson::Unverified { name, email } => {
                fields.extend([("action", "add"), ("name", name), ("email", email), ("unverified", "on")]);
            }
            GooglePerson::Cancels => fields.push(("action", "cancel")),
            GooglePerson::Breaks => fields.push(("action", "fail")),
        }
        self.server.post(&decision).form(&fields).send().await.expect(303).location()
    }
}
