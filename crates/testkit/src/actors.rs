//! The people of a test: a visitor without an account, a member with a session, and the operator of
//! the server.
//!
//! An action returns the server's response, so that a test can look at a rejection too.

use serde_json::{Value, json};

use crate::{Request, TestResponse, TestServer, claims_of, link_in};

/// A person without a session, who knows an email address and a password.
#[derive(Clone)]
pub struct Visitor<'a> {
    server: &'a TestServer,
    email: String,
    password: String,
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
        Visitor { server: self, email: email.to_owned(), password: "correct horse".to_owned() }
    }

    /// Returns a member: a confirmed account that is signed in.
    ///
    /// # Panics
    /// When the account cannot be created.
    pub async fn member(&self, email: &str) -> Member<'_> {
        let visitor = self.visitor(email);
        let session = self.signed_in(&visitor.email, &visitor.password).await;
        Member { visitor, session }
    }

    /// Refreshes a session: `POST /token?grant_type=refresh_token`.
    pub async fn refresh(&self, session: &Value) -> TestResponse {
        let body = json!({ "refresh_token": session["refresh_token"] });
        self.post("/auth/v1/token?grant_type=refresh_token").json(&body).send().await
    }

    /// Returns the operator.
    pub fn operator(&self) -> Operator<'_> {
        Operator { server: self }
    }
}

impl<'a> Visitor<'a> {
    /// Uses another password.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        password.clone_into(&mut self.password);
        self
    }

    /// Signs up: `POST /signup`.
    pub async fn signs_up(&self) -> TestResponse {
        self.server.post("/auth/v1/signup").json(&self.credentials()).send().await
    }

    /// Signs in with the password.
    pub async fn signs_in(&self) -> TestResponse {
        self.server.post("/auth/v1/token?grant_type=password").json(&self.credentials()).send().await
    }

    /// Opens the link of the newest email to the address. Waits for the email if there is none yet.
    pub async fn opens_link(&self) -> TestResponse {
        let mail = self.server.mail_to(&self.email).await;
        self.server.get(link_in(mail.html()).as_str()).send().await
    }

    /// Signs in and returns the member.
    ///
    /// # Panics
    /// When the sign-in is rejected.
    pub async fn signed_in(self) -> Member<'a> {
        let session = self.signs_in().await.expect(200).json();
        Member { visitor: self, session }
    }

    fn credentials(&self) -> Value {
        json!({ "email": self.email, "password": self.password })
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
        let claims = claims_of(self.access_token());
        claims["session_id"].as_str().expect("an access token names its session").to_owned()
    }

    /// Returns the same person with another session, as on another device.
    ///
    /// # Panics
    /// When the sign-in is rejected.
    pub async fn on_another_device(&self) -> Member<'a> {
        self.visitor.clone().signed_in().await
    }

    /// Returns the same person without the session.
    pub fn visitor(&self) -> &Visitor<'a> {
        &self.visitor
    }

    /// Adds the access token to a request.
    pub fn sends(&self, request: Request) -> Request {
        request.bearer(self.access_token())
    }

    /// Refreshes the session, and keeps the new tokens if the server returns them.
    pub async fn refreshes(&mut self) -> TestResponse {
        let answer = self.refreshes_with(self.refresh_token()).await;
        if answer.status == 200 {
            self.session = answer.json();
        }
        answer
    }

    /// Refreshes with this token. The member keeps the tokens that it has.
    pub async fn refreshes_with(&self, refresh_token: &str) -> TestResponse {
        self.visitor.server.refresh(&json!({ "refresh_token": refresh_token })).await
    }

    /// Reads the own account: `GET /user`.
    pub async fn reads_account(&self) -> TestResponse {
        self.sends(self.visitor.server.get("/auth/v1/user")).send().await
    }

    /// Changes the own account: `PUT /user`.
    pub async fn changes_account(&self, changes: &Value) -> TestResponse {
        self.sends(self.visitor.server.put("/auth/v1/user").json(changes)).send().await
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

    /// Calls with the secret key, which has the rights of the service.
    pub fn sends(&self, request: Request) -> Request {
        request.key(self.server.api_keys().secret())
    }
}
