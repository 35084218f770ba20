//! The people of a test: a visitor without an account, a member with a session, and the operator of
//! the server.
//!
//! An action returns the server's response, so that a test can look at a rejection too.

use serde_json::{Map, Value, json};
use url::Url;

use crate::{GooglePerson, PeerServer, Pkce, Request, TestResponse, TestServer, claims_of, link_in};

/// A person without a session, who knows an email address or a phone number, and a password.
#[derive(Clone)]
pub struct Visitor<'a> {
    server: &'a TestServer,
    /// `email` or `phone`.
    contact_kind: &'static str,
    contact: String,
    password: String,
    headers: Vec<(String, String)>,
    /// The origin of the server that gets the requests of [`posts`](Self::posts).
    origin: String,
}

/// A person with a session.
#[derive(Clone)]
pub struct Member<'a> {
    visitor: Visitor<'a>,
    session: Value,
}

/// The person who runs the server, with access to its database.
#[derive(Clone, Copy)]
pub struct Operator<'a> {
    server: &'a TestServer,
}

impl TestServer {
    /// Returns a visitor with this email address.
    pub fn visitor(&self, email: &str) -> Visitor<'_> {
        Visitor::new(self, "email", email)
    }

    /// Returns a visitor with this phone number.
    pub fn visitor_with_phone(&self, phone: &str) -> Visitor<'_> {
        Visitor::new(self, "phone", phone)
    }

    /// Returns a member: a confirmed account that is signed in.
    ///
    /// # Panics
    /// When the account cannot be created.
    pub async fn member(&self, email: &str) -> Member<'_> {
        let visitor = self.visitor(email);
        let session = self.signed_in(&visitor.contact, &visitor.password).await;
        Member { visitor, session }
    }

    /// Returns a member with an anonymous account.
    ///
    /// # Panics
    /// When the server rejects it.
    pub async fn anonymous_member(&self) -> Member<'_> {
        let session = self.post("/auth/v1/signup").json(&json!({})).send().await.expect(200).json();
        self.member_with(session)
    }

    /// Returns the member of a session, which is known as JSON.
    pub fn member_with(&self, session: Value) -> Member<'_> {
        let contact = |kind: &str| session["user"][kind].as_str().unwrap_or_default().to_owned();
        let visitor = match (contact("email"), contact("phone")) {
            (email, phone) if email.is_empty() && !phone.is_empty() => self.visitor_with_phone(&phone),
            (email, _) => self.visitor(&email),
        };
        Member { visitor, session }
    }

    /// Returns the member whom a redirect has signed in.
    ///
    /// # Panics
    /// When the fragment of its target has no session.
    #[track_caller]
    pub fn member_of(&self, redirect: &TestResponse) -> Member<'_> {
        let target = redirect.location();
        let fields = form_urlencoded::parse(target.fragment().unwrap_or_default().as_bytes());
        let session: Map<String, Value> = fields.map(|(name, value)| (name.into_owned(), json!(value))).collect();
        assert!(session.contains_key("access_token"), "no session: {redirect:?}");
        self.member_with(Value::Object(session))
    }

    /// Refreshes a session: `POST /token?grant_type=refresh_token`.
    pub async fn refresh(&self, session: &Value) -> TestResponse {
        self.refresh_with(session["refresh_token"].as_str().expect("a session has a refresh token")).await
    }

    /// Refreshes a session with its refresh token.
    pub async fn refresh_with(&self, refresh_token: &str) -> TestResponse {
        let body = json!({ "refresh_token": refresh_token });
        self.post("/auth/v1/token?grant_type=refresh_token").json(&body).send().await
    }

    /// Exchanges the code that a redirect carries: `POST /token?grant_type=pkce`.
    ///
    /// # Panics
    /// When there is no code.
    pub async fn exchange(&self, redirect: &TestResponse, verifier: &str) -> TestResponse {
        let code = redirect.location_query("code").unwrap_or_else(|| panic!("no code: {redirect:?}"));
        let body = json!({ "auth_code": code, "code_verifier": verifier });
        self.post("/auth/v1/token?grant_type=pkce").json(&body).send().await
    }

    /// Returns the operator.
    pub fn operator(&self) -> Operator<'_> {
        Operator { server: self }
    }
}

impl<'a> Visitor<'a> {
    fn new(server: &'a TestServer, contact_kind: &'static str, contact: &str) -> Self {
        Self {
            server,
            contact_kind,
            contact: contact.to_owned(),
            password: "correct horse".to_owned(),
            headers: Vec::new(),
            origin: server.base().to_owned(),
        }
    }

    /// Uses another password.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        password.clone_into(&mut self.password);
        self
    }

    /// Adds a header to every request.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends every request from this IP address.
    #[must_use]
    pub fn from_address(self, address: &str) -> Self {
        self.with_header("x-forwarded-for", address)
    }

    /// Posts to a second server.
    #[must_use]
    pub fn at(mut self, peer: &PeerServer) -> Self {
        self.origin = peer.url("");
        self
    }

    /// Names the newest API version in every request, as the official clients do.
    #[must_use]
    pub fn with_api_version(self) -> Self {
        self.with_header("x-supabase-api-version", "2024-01-01")
    }

    /// Signs up: `POST /signup`.
    pub async fn signs_up(&self) -> TestResponse {
        self.signs_up_with(&json!({})).await
    }

    /// Signs up with more fields, for example a proof key or `data`.
    pub async fn signs_up_with(&self, fields: &Value) -> TestResponse {
        self.posts("signup", &merged(json!({ "password": self.password }), fields)).await
    }

    /// Signs in with the password.
    pub async fn signs_in(&self) -> TestResponse {
        self.posts("token?grant_type=password", &json!({ "password": self.password })).await
    }

    /// Requests a code and a link to sign in: `POST /otp`.
    pub async fn requests_code(&self) -> TestResponse {
        self.posts("otp", &json!({})).await
    }

    /// Requests a mail to recover the account: `POST /recover`.
    pub async fn requests_recovery(&self) -> TestResponse {
        self.posts("recover", &json!({})).await
    }

    /// Requests a message of this type once more: `POST /resend`.
    pub async fn requests_again(&self, verify_type: &str) -> TestResponse {
        self.posts("resend", &json!({ "type": verify_type })).await
    }

    /// Types the code of a message: `POST /verify`.
    pub async fn verifies(&self, verify_type: &str, code: &str) -> TestResponse {
        self.posts("verify", &json!({ "type": verify_type, "token": code })).await
    }

    /// Posts fields to a path of the account service, together with the own address or number.
    pub async fn posts(&self, path: &str, fields: &Value) -> TestResponse {
        let body = merged(json!({ self.contact_kind: self.contact }), fields);
        self.sends(self.server.post(&format!("{}/auth/v1/{path}", self.origin)).json(&body)).send().await
    }

    /// Adds the own headers to a request.
    pub fn sends(&self, request: Request) -> Request {
        self.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    /// Opens the link of the newest email to the address. Waits for the email if there is none yet.
    pub async fn opens_link(&self) -> TestResponse {
        let mail = self.server.mail_to(&self.contact).await;
        self.sends(self.server.get(link_in(mail.html()).as_str())).send().await
    }

    /// Signs in and returns the member.
    ///
    /// # Panics
    /// When the sign-in is rejected.
    pub async fn signed_in(self) -> Member<'a> {
        let session = self.signs_in().await.expect(200).json();
        Member { visitor: self, session }
    }
}

impl<'a> Member<'a> {
    /// Returns the response of the latest sign-in or refresh.
    pub fn session(&self) -> &Value {
        &self.session
    }

    /// Returns the access token.
    ///
    /// # Panics
    /// When the session has none.
    pub fn access_token(&self) -> &str {
        self.session["access_token"].as_str().expect("a session has an access token")
    }

    /// Returns the refresh token.
    ///
    /// # Panics
    /// When the session has none.
    pub fn refresh_token(&self) -> &str {
        self.session["refresh_token"].as_str().expect("a session has a refresh token")
    }

    /// Returns the id of the account.
    ///
    /// # Panics
    /// When the session names none.
    pub fn id(&self) -> &str {
        self.session["user"]["id"].as_str().expect("a session names its user")
    }

    /// Returns the id of the session.
    ///
    /// # Panics
    /// When the access token names none.
    pub fn session_id(&self) -> String {
        let claims = self.claims();
        claims["session_id"].as_str().expect("an access token names its session").to_owned()
    }

    /// Returns the same person with another session, as on another device.
    ///
    /// # Panics
    /// When the sign-in is rejected.
    pub async fn on_another_device(&self) -> Member<'a> {
        self.visitor.clone().signed_in().await
    }

    /// Sends every request from this IP address.
    #[must_use]
    pub fn from_address(mut self, address: &str) -> Self {
        self.visitor = self.visitor.from_address(address);
        self
    }

    /// Names the newest API version in every request, as the official clients do.
    #[must_use]
    pub fn with_api_version(mut self) -> Self {
        self.visitor = self.visitor.with_api_version();
        self
    }

    /// Returns the same person with the session of a response, such as that of a second factor.
    ///
    /// # Panics
    /// When the response is a rejection.
    #[must_use]
    #[track_caller]
    pub fn with_session_of(&self, response: TestResponse) -> Member<'a> {
        Member { visitor: self.visitor.clone(), session: response.expect(200).json() }
    }

    /// Returns the server that knows the person.
    pub fn server(&self) -> &'a TestServer {
        self.visitor.server
    }

    /// Returns the claims of the access token.
    pub fn claims(&self) -> Value {
        claims_of(self.access_token())
    }

    /// Returns the same person without the session.
    pub fn visitor(&self) -> &Visitor<'a> {
        &self.visitor
    }

    /// Adds the access token to a request.
    pub fn sends(&self, request: Request) -> Request {
        self.visitor.sends(request).bearer(self.access_token())
    }

    /// Posts to a path of the account service.
    pub async fn posts(&self, path: &str, body: &Value) -> TestResponse {
        self.sends(self.visitor.server.post(&format!("/auth/v1/{path}")).json(body)).send().await
    }

    /// Refreshes the session, and keeps the new tokens if the server returns them.
    pub async fn refreshes(&mut self) -> TestResponse {
        let response = self.refreshes_with(self.refresh_token()).await;
        if response.status == 200 {
            self.session = response.json();
        }
        response
    }

    /// Returns the same person with a refreshed session. This member keeps the tokens that it has.
    ///
    /// # Panics
    /// When the refresh is rejected.
    pub async fn refreshed(&self) -> Member<'a> {
        self.with_session_of(self.refreshes_with(self.refresh_token()).await)
    }

    /// Refreshes with this token. The member keeps the tokens that it has.
    pub async fn refreshes_with(&self, refresh_token: &str) -> TestResponse {
        self.visitor.server.refresh_with(refresh_token).await
    }

    /// Reads the own account: `GET /user`.
    pub async fn reads_account(&self) -> TestResponse {
        self.sends(self.visitor.server.get("/auth/v1/user")).send().await
    }

    /// Returns the own account.
    ///
    /// # Panics
    /// When the server rejects the request.
    pub async fn account(&self) -> Value {
        self.reads_account().await.expect(200).json()
    }

    /// Returns the id of the own identity at a provider.
    ///
    /// # Panics
    /// When there is none.
    pub async fn identity(&self, provider: &str) -> String {
        let account = self.account().await;
        let identities = account["identities"].as_array().expect("an account has identities");
        let found = identities.iter().find(|identity| identity["provider"] == provider);
        found.and_then(|identity| identity["identity_id"].as_str()).expect("there is such an identity").to_owned()
    }

    /// Changes the own account: `PUT /user`.
    pub async fn changes_account(&self, changes: &Value) -> TestResponse {
        self.sends(self.visitor.server.put("/auth/v1/user").json(changes)).send().await
    }

    /// Requests the code for a change of the password: `GET /reauthenticate`.
    pub async fn reauthenticates(&self) -> TestResponse {
        self.sends(self.visitor.server.get("/auth/v1/reauthenticate")).send().await
    }

    /// Begins to link an account at Google, with a proof key if there is one.
    pub async fn begins_google_link(&self, pkce: Option<&Pkce>) -> TestResponse {
        let mut target = "/auth/v1/user/identities/authorize?provider=google&skip_http_redirect=true".to_owned();
        if let Some(pkce) = pkce {
            target.push_str(&format!("&code_challenge={}&code_challenge_method=s256", pkce.challenge));
        }
        self.sends(self.visitor.server.get(&target)).send().await
    }

    /// Links an account at Google, whose page this person answers. Returns the response of
    /// `/callback`.
    ///
    /// # Panics
    /// When the server does not begin.
    pub async fn links_google(&self, person: GooglePerson<'_>) -> TestResponse {
        let begun = self.begins_google_link(None).await.expect(200);
        self.visitor.server.google().answer(&google_page(&begun), person).await
    }

    /// Removes an identity: `DELETE /user/identities/{id}`.
    pub async fn unlinks(&self, identity: &str) -> TestResponse {
        self.sends(self.visitor.server.delete(&format!("/auth/v1/user/identities/{identity}"))).send().await
    }

    /// Signs out the sessions of a scope: `global`, `local` or `others`.
    pub async fn signs_out(&self, scope: &str) -> TestResponse {
        self.sends(self.visitor.server.post(&format!("/auth/v1/logout?scope={scope}"))).send().await
    }
}

impl Operator<'_> {
    /// Bans a member for an hour.
    pub async fn bans(&self, member: &Member<'_>) {
        let until = self.server.clock().now() + time::Duration::HOUR;
        let id: uuid::Uuid = member.id().parse().expect("the id of an account is a UUID");
        let ban = "update auth.users set banned_until = $1 where id = $2";
        self.server.admin().execute(ban, &[&until, &id]).await.expect("the ban is stored");
    }

    /// Lifts the ban of a member.
    pub async fn unbans(&self, member: &Member<'_>) {
        self.server.execute(&format!("update auth.users set banned_until = null where id = '{}'", member.id())).await;
    }

    /// Calls a path of the account service with the secret key. `null` is no body.
    ///
    /// # Panics
    /// When the method is none.
    pub async fn calls(self, method: &str, path: &str, body: &Value) -> TestResponse {
        let method = method.parse().expect("an HTTP method");
        let request = self.sends(self.server.request(method, &format!("/auth/v1/{path}")));
        if body.is_null() { request.send().await } else { request.json(body).send().await }
    }

    /// Calls with the secret key, which has the rights of the service.
    pub fn sends(&self, request: Request) -> Request {
        request.key(self.server.api_keys().secret())
    }
}

/// Returns the address of Google's page, to which the response of
/// [`begins_google_link`](Member::begins_google_link) leads.
///
/// # Panics
/// When it names none.
#[must_use]
#[track_caller]
pub fn google_page(begun: &TestResponse) -> Url {
    begun.json()["url"].as_str().and_then(|url| url.parse().ok()).unwrap_or_else(|| panic!("no URL: {begun:?}"))
}

/// Returns an object with the fields of both; those of `fields` win.
fn merged(mut object: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().expect("the fields are an object") {
        object[name] = value.clone();
    }
    object
}
