use portico_base::Clock;
use portico_emulators::{
    Development, GOOGLE_CLIENT_ID, GOOGLE_CLIENT_SECRET, IdentityProvider, IdentityProviderError,
    IdentityProviderSettings,
};
use portico_tokens::KeyRing;
use reqwest::{Response, Url};
use serde_json::{Value, json};

use crate::support::{CALLBACK, Provider, client, provider};

pub const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
pub const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// Returns an authorization request, with more parameters or others.
pub fn request(changes: &[(&str, &str)]) -> String {
    let mut pairs = vec![
        ("client_id", GOOGLE_CLIENT_ID),
        ("redirect_uri", CALLBACK),
        ("response_type", "code"),
        ("scope", "openid email profile"),
        ("state", "the state & more"),
        ("nonce", "the-nonce"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
    ];
    for (name, value) in changes {
        pairs.retain(|(known, _)| known != name);
        if !value.is_empty() {
            pairs.push((name, value));
        }
    }
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

impl Provider {
    pub async fn decide(&self, request: &str, fields: &[(&str, &str)]) -> Response {
        let form: Vec<(&str, &str)> = [("request", request)].into_iter().chain(fields.iter().copied()).collect();
        self.client.post(format!("{}/authorize/decision", self.issuer)).form(&form).send().await.unwrap()
    }

    /// Returns the code that a decision leads to.
    pub async fn code(&self, request: &str, fields: &[(&str, &str)]) -> String {
        query(&location(&self.decide(request, fields).await), "code").unwrap()
    }

    pub async fn token(&self, fields: &[(&str, &str)]) -> Response {
        let mut form = vec![("client_id", GOOGLE_CLIENT_ID), ("client_secret", GOOGLE_CLIENT_SECRET)];
        form.extend_from_slice(fields);
        self.client.post(format!("{}/token", self.issuer)).form(&form).send().await.unwrap()
    }

    pub async fn exchange(&self, code: &str) -> Response {
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", CALLBACK),
            ("code_verifier", VERIFIER),
        ];
        self.token(&fields).await
    }

    pub async fn userinfo(&self, token: &str) -> Response {
        self.client.get(format!("{}/userinfo", self.issuer)).bearer_auth(token).send().await.unwrap()
    }

    /// Returns the claims of an `id_token` whose signature and times hold.
    async fn claims(&self, id_token: &str) -> Value {
        let jwks: Value = self.client.get(format!("{}/jwks", self.issuer)).send().await.unwrap().json().await.unwrap();
        let ring = KeyRing::foreign(&jwks).unwrap();
        let claims = ring.verify(id_token, self.clock.now()).unwrap();
        serde_json::from_str(claims.text()).unwrap()
    }
}

pub fn location(response: &Response) -> Url {
    assert_eq!(response.status(), 303);
    Url::parse(response.headers()["location"].to_str().unwrap()).unwrap()
}

pub fn query(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
}

#[tokio::test]
async fn a_person_signs_in_with_a_new_account() {
    let provider = provider(None).await;
    let discovery: Value = provider
        .client
        .get(format!("{}/.well-known/openid-configuration", provider.issuer))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(discovery["issuer"], provider.issuer);
    assert_eq!(discovery["token_endpoint"], format!("{}/token", provider.issuer));

    let request = request(&[("access_type", "offline")]);
    let page = provider.client.get(format!("{}/authorize?{request}", provider.issuer)).send().await.unwrap();
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let html = page.text().await.unwrap();
    assert!(
        html.contains("Development stand-in") && html.contains("test.user@example.com") && !html.contains("<script")
    );

    let add = [("action", "add"), ("name", "Ann <b> Smith"), ("email", "Ann@Example.com")];
    let back = location(&provider.decide(&request, &add).await);
    assert!(back.as_str().starts_with(CALLBACK));
    assert_eq!(query(&back, "state").as_deref(), Some("the state & more"));
    assert_eq!(query(&back, "iss"), Some(provider.issuer.clone()));

    let answer = provider.exchange(&query(&back, "code").unwrap()).await;
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let tokens: Value = answer.json().await.unwrap();
    assert_eq!((&tokens["token_type"], &tokens["expires_in"]), (&json!("Bearer"), &json!(3599)));
    let claims = provider.claims(tokens["id_token"].as_str().unwrap()).await;
    let expected = json!({
        "iss": provider.issuer, "aud": GOOGLE_CLIENT_ID, "azp": GOOGLE_CLIENT_ID, "email": "ann@example.com",
        "email_verified": true, "name": "Ann <b> Smith", "given_name": "Ann", "family_name": "<b> Smith", "nonce": "the-nonce",
        "locale": "en", "iat": 1_800_000_000, "exp": 1_800_003_600,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&claims[name], value, "{name}");
    }
    assert_eq!(claims["sub"].as_str().unwrap().len(), 21);
    assert_eq!(claims["at_hash"].as_str().unwrap().len(), 22);

    let access = tokens["access_token"].as_str().unwrap();
    let person: Value = provider.userinfo(access).await.json().await.unwrap();
    assert_eq!((&person["sub"], &person["email"]), (&claims["sub"], &claims["email"]));
    let picture = provider.client.get(person["picture"].as_str().unwrap()).send().await.unwrap();
    assert_eq!(picture.headers()["content-type"], "image/svg+xml");
    assert!(picture.text().await.unwrap().contains(">AS<"));

    let refresh = tokens["refresh_token"].as_str().unwrap();
    let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh)];
    let renewed: Value = provider.token(&fields).await.json().await.unwrap();
    assert_ne!(renewed["access_token"], tokens["access_token"]);
    assert!(provider.claims(renewed["id_token"].as_str().unwrap()).await["nonce"].is_null());

    for token in [access, refresh] {
        let revoked =
            provider.client.post(format!("{}/revoke", provider.issuer)).form(&[("token", token)]).send().await.unwrap();
        assert_eq!(revoked.status(), 200);
    }
    assert_eq!(provider.userinfo(access).await.status(), 401);
    assert_eq!(provider.token(&fields).await.status(), 400);
}

#[tokio::test]
async fn an_account_is_chosen_by_address_or_silently() {
    let provider = provider(None).await;
    let request_text = request(&[]);
    let chosen = provider.code(&request_text, &[("account", "test.user@example.com")]).await;
    let first: Value = provider.exchange(&chosen).await.json().await.unwrap();
    assert!(first["refresh_token"].is_null(), "only offline access gives one");

    let silent = request(&[("prompt", "none"), ("login_hint", "test.user@example.com")]);
    let response = provider.client.get(format!("{}/authorize?{silent}", provider.issuer)).send().await.unwrap();
    let second: Value = provider.exchange(&query(&location(&response), "code").unwrap()).await.json().await.unwrap();
    let sub = |tokens: &Value| tokens["id_token"].as_str().unwrap().to_owned();
    assert_eq!(provider.claims(&sub(&first)).await["sub"], provider.claims(&sub(&second)).await["sub"]);

    let unknown = request(&[("prompt", "none")]);
    let response = provider.client.get(format!("{}/authorize?{unknown}", provider.issuer)).send().await.unwrap();
    assert_eq!(query(&location(&response), "error").as_deref(), Some("login_required"));

    let hinted = request(&[("login_hint", "new@example.com")]);
    let html = provider
        .client
        .get(format!("{}/authorize?{hinted}", provider.issuer))
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(html.contains("value=\"new@example.com\""));
}

#[tokio::test]
async fn the_scope_decides_what_the_client_learns() {
    let provider = provider(None).await;
    for (scope, has_email, has_name, has_token) in [
        ("openid", false, false, true),
        ("email profile", true, true, true),
        ("https://www.googleapis.com/auth/userinfo.email", true, false, false),
        ("calendar", false, false, false),
    ] {
        let code = provider.code(&request(&[("scope", scope)]), &[("account", "test.user@example.com")]).await;
        let tokens: Value = provider.exchange(&code).await.json().await.unwrap();
        let person: Value = provider.userinfo(tokens["access_token"].as_str().unwrap()).await.json().await.unwrap();
        assert_eq!(person.get("email").is_some(), has_email, "{scope}");
        assert_eq!(person.get("name").is_some(), has_name, "{scope}");
        assert_eq!(tokens.get("id_token").is_some(), has_token || has_email, "{scope}");
    }
}

#[tokio::test]
async fn accounts_outlive_the_program_in_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state").join("accounts.json");
    let first = provider(Some(file.clone())).await;
    first
        .code(&request(&[]), &[("action", "add"), ("name", "Ann"), ("email", "ann@example.com"), ("unverified", "on")])
        .await;
    for (path, mode) in [(file.as_path(), 0o600), (file.parent().unwrap(), 0o700)] {
        let found = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path).unwrap());
        assert_eq!(found & 0o777, mode, "{}", path.display());
    }

    let second = provider(Some(file.clone())).await;
    let code = second.code(&request(&[]), &[("account", "ann@example.com")]).await;
    let tokens: Value = second.exchange(&code).await.json().await.unwrap();
    let claims = second.claims(tokens["id_token"].as_str().unwrap()).await;
    assert_eq!((&claims["name"], &claims["email_verified"]), (&json!("Ann"), &json!(false)));
    let shown = second.decide(&request(&[]), &[("forget", claims["sub"].as_str().unwrap())]).await;
    assert!(!shown.text().await.unwrap().contains("ann@example.com"));

    std::fs::write(&file, "{").unwrap();
    let settings =
        IdentityProviderSettings { accounts: Some(file), ..IdentityProviderSettings::google("http://x/y", CALLBACK) };
    let error = IdentityProvider::new(Development::confirm(), settings, Clock::system()).err().unwrap();
    assert!(error.to_string().contains("accounts.json"), "{error}");
    for issuer in ["", "ftp://x", "http://x/?y", "nonsense"] {
        let settings = IdentityProviderSettings::google(issuer, CALLBACK);
        let made = IdentityProvider::new(Development::confirm(), settings, Clock::system());
        assert!(matches!(made, Err(IdentityProviderError::Issuer(_))), "{issuer}");
    }
    drop(client());
}
