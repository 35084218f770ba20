//! Sign-in with the emulated Google: `/authorize`, `/callback`, and the account that it leads to.

use futures_util::future::join_all;
use portico_testkit::{GooglePerson, Pkce, TestResponse, TestServer, claims_of, link_in};
use serde_json::{Value, json};
use time::Duration;
use url::Url;

pub const PASSWORD: &str = "correct horse";
pub const ADA: GooglePerson<'static> = GooglePerson::Verified { name: "Ada L", email: "ada@example.com" };
const UNVERIFIED_ADA: GooglePerson<'static> = GooglePerson::Unverified { name: "Ada L", email: "ada@example.com" };

pub async fn authorize(server: &TestServer, query: &str) -> Url {
    server.get(&format!("/auth/v1/authorize?provider=google{query}")).send().await.expect(302).location()
}

/// Signs in with Google and returns the account.
async fn google_user(server: &TestServer, person: GooglePerson<'_>) -> Value {
    server.google().signed_in(person).await.account().await
}

/// Returns a parameter of a URL.
pub fn query_of(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

pub fn error_of(response: &TestResponse) -> (String, Option<String>) {
    (
        response.location_query("error").unwrap_or_else(|| panic!("no error: {response:?}")),
        response.location_query("error_code"),
    )
}

pub async fn count(server: &TestServer, table: &str) -> i64 {
    server.count(&format!("select count(*) from auth.{table}")).await
}

#[tokio::test]
async fn the_implicit_flow_returns_the_session_in_the_fragment() {
    let server = TestServer::start().await;
    let url = authorize(&server, "").await;
    assert_eq!(query_of(&url, "response_type").as_deref(), Some("code"));
    assert_eq!(query_of(&url, "redirect_uri"), Some(format!("{}/auth/v1/callback", server.base())));
    let state = query_of(&url, "state").unwrap();
    assert_eq!(state.len(), 36);
    assert!(query_of(&url, "scope").unwrap().contains("email profile"));

    let response = server.google().answer(&url, ADA).await.expect(302);

    let target = response.location();
    assert_eq!(target.query(), None);
    assert!(target.as_str().starts_with("http://127.0.0.1:3000"));
    let names: Vec<String> =
        form_urlencoded::parse(target.fragment().unwrap().as_bytes()).map(|(name, _)| name.into_owned()).collect();
    assert!(names.is_sorted(), "{names:?}");
    for name in ["access_token", "expires_at", "expires_in", "provider_token", "refresh_token", "sb", "token_type"] {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
    assert!(!names.contains(&"type".to_owned()));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let token = response.location_fragment("access_token").unwrap();
    let claims = claims_of(&token);
    assert_eq!(claims["amr"][0]["method"], "oauth");
    assert_eq!(claims["app_metadata"], json!({"provider": "google", "providers": ["google"]}));
    let user = server.get("/auth/v1/user").bearer(&token).send().await.expect(200).json();
    assert_eq!(user["email"], "ada@example.com");
    assert!(user["email_confirmed_at"].is_string());
    assert_eq!(user["user_metadata"]["full_name"], "Ada L");
    assert_eq!(user["user_metadata"]["email_verified"], true);
    assert_eq!(user["identities"][0]["provider"], "google");
    assert_eq!(user["identities"][0]["id"], user["user_metadata"]["sub"]);
    assert_eq!(count(&server, "flow_state").await, 0);
    assert_eq!(count(&server, "oauth_client_states").await, 0);
    assert!(server.actions().await.contains(&"user_signedup".to_owned()));

    // The same callback again: the flow has been used
    let replayed = server.google().decide(&url, ADA).await;
    let replayed = server.get(replayed.as_str()).send().await.expect(303);
    assert_eq!(error_of(&replayed), ("invalid_request".into(), Some("bad_oauth_state".into())));
    assert_eq!(count(&server, "sessions").await, 1);
}

#[tokio::test]
async fn the_code_flow_returns_a_code_that_is_exchanged_once() {
    let server = TestServer::start().await;
    let pkce = Pkce::new();
    let query = format!(
        "&redirect_to={}&code_challenge={}&code_challenge_method=s256",
        "http%3A%2F%2F127.0.0.1%3A3000%2Fapp%3Fx%3D1", pkce.challenge
    );
    let url = authorize(&server, &query).await;
    let back = server.google().decide(&url, ADA).await;
    let response = server.get(back.as_str()).send().await.expect(302);
    let target = response.location();
    assert!(target.as_str().starts_with("http://127.0.0.1:3000/app?x=1&code="), "{target}");
    assert_eq!(target.fragment(), None);
    assert_eq!(count(&server, "sessions").await, 0, "no session before the exchange");

    // The state has been used
    let again = server.get(back.as_str()).send().await.expect(303);
    assert_eq!(error_of(&again), ("invalid_request".into(), Some("flow_state_already_used".into())));

    let code = response.location_query("code").unwrap();
    let exchange = async |verifier: &str| {
        let body = json!({"auth_code": code, "code_verifier": verifier});
        server.post("/auth/v1/token?grant_type=pkce").json(&body).send().await
    };
    assert_eq!(exchange(&Pkce::new().verifier).await.rejection().1, "bad_code_verifier");
    let session = exchange(&pkce.verifier).await.expect(200).json();
    assert!(session["provider_token"].is_string());
    assert_eq!(session["user"]["email"], "ada@example.com");
    assert_eq!(claims_of(session["access_token"].as_str().unwrap())["amr"][0]["method"], "oauth");
    assert_eq!(exchange(&pkce.verifier).await.rejection(), (404, "flow_state_not_found".into()));
    assert_eq!(count(&server, "flow_state").await, 0);
}

#[tokio::test]
async fn a_cancelled_sign_in_returns_the_error_of_the_provider() {
    let server = TestServer::start().await;
    for person in [GooglePerson::Cancels, GooglePerson::Breaks] {
        let response = server.google().sign_in(person).await.expect(302);
        let (error, code) = error_of(&response);
        assert_eq!(code, None);
        assert_eq!(response.location_fragment("error"), Some(error.clone()));
        assert_eq!(response.location_fragment("sb").as_deref(), Some(""));
        if matches!(person, GooglePerson::Cancels) {
            assert_eq!(error, "access_denied");
        }
    }
    assert_eq!(count(&server, "users").await, 0);
}

#[tokio::test]
async fn the_same_identity_signs_in_to_the_same_account_with_fresh_claims() {
    let server = TestServer::start().await;
    let first = google_user(&server, ADA).await;
    server
        .execute(
            "update auth.users set raw_user_meta_data = raw_user_meta_data || '{\"own\": 1, \"full_name\": \"Old\"}'",
        )
        .await;
    let second = google_user(&server, ADA).await;
    assert_eq!(first["id"], second["id"]);
    assert_eq!(second["user_metadata"]["full_name"], "Ada L");
    assert_eq!(second["user_metadata"]["own"], 1);
    assert_eq!(count(&server, "identities").await, 1);
    assert_eq!(count(&server, "sessions").await, 2);
}

#[tokio::test]
async fn a_verified_address_links_to_the_confirmed_account() {
    let server = TestServer::start().await;
    let id = server.account("ada@example.com", PASSWORD).await;
    let user = google_user(&server, ADA).await;
    assert_eq!(user["id"], id);
    assert_eq!(user["app_metadata"], json!({"provider": "email", "providers": ["email", "google"]}));
    assert!(server.actions().await.contains(&"identity_linked".to_owned()));
    server.sign_in("ada@example.com", PASSWORD).await;
}

#[tokio::test]
async fn the_owner_of_the_address_takes_over_an_unconfirmed_account() {
    let server = TestServer::start().await;
    let body = json!({"email": "ada@example.com", "password": PASSWORD, "data": {"evil": true}});
    server.post("/auth/v1/signup").json(&body).send().await.expect(200);
    let link = link_in(server.mail_to("ada@example.com").await.html());
    let factor =
        "insert into auth.mfa_factors (id, user_id, friendly_name, factor_type, status, created_at, updated_at, secret)
                  select gen_random_uuid(), id, '', 'totp', 'verified', now(), now(), 'secret' from auth.users";
    server.execute(factor).await;

    let user = google_user(&server, ADA).await;

    assert_eq!(user.get("factors"), None, "a second factor of the stranger would keep the owner out");
    assert_eq!(user["identities"].as_array().unwrap().len(), 1);
    assert_eq!(user["identities"][0]["provider"], "google");
    assert_eq!(user["user_metadata"].get("evil"), None);
    assert_eq!(user["app_metadata"]["providers"], json!(["google"]));
    let refused = server.visitor("ada@example.com").with_password(PASSWORD).signs_in().await;
    assert_eq!(refused.rejection().1, "invalid_credentials");
    let link = server.get(link.as_str()).send().await.expect(303);
    assert_eq!(link.location_fragment("error_code").as_deref(), Some("otp_expired"));
}

#[tokio::test]
async fn an_unverified_address_must_be_confirmed_first() {
    let server = TestServer::start().await;
    let response = server.google().sign_in(UNVERIFIED_ADA).await.expect(302);
    assert_eq!(error_of(&response), ("access_denied".into(), Some("provider_email_needs_verification".into())));
    assert_eq!(
        response.location_fragment("error_description").as_deref(),
        Some("Unverified email with google. A confirmation email has been sent to your google email")
    );
    assert_eq!(count(&server, "sessions").await, 0);

    let link = link_in(server.mail_to("ada@example.com").await.html());
    let confirmed = server.get(link.as_str()).send().await.expect(303);
    assert!(confirmed.location_fragment("access_token").is_some(), "{confirmed:?}");
}

#[tokio::test]
async fn the_app_gets_the_address_that_a_confirmation_was_sent_to() {
    let app = "https://app.example.com/cb";
    let own_scheme = "com.example.app://cb";
    let server = TestServer::with_auth(|auth| auth.redirect_allow_list = vec![app.into(), own_scheme.into()]).await;
    let at = async |target: &str, person: GooglePerson<'_>| {
        let url = authorize(&server, &format!("&redirect_to={target}")).await;
        let response = server.google().answer(&url, person).await.expect(302);
        assert_eq!(response.location_query("error_code").as_deref(), Some("provider_email_needs_verification"));
        response
    };
    let response = at(app, UNVERIFIED_ADA).await;
    assert!(response.location().as_str().starts_with(app), "{response:?}");
    assert_eq!(response.location_fragment("email").as_deref(), Some("ada@example.com"));
    assert_eq!(response.location_query("email"), None, "a query is logged by servers");
    // Another application of the device may have claimed the scheme
    let response = at(own_scheme, UNVERIFIED_ADA).await;
    assert!(!response.location().as_str().contains("ada"), "{response:?}");
    // No confirmation was sent: the address has an owner
    server.account("bea@example.com", PASSWORD).await;
    let response = at(app, GooglePerson::Unverified { name: "Bea", email: "bea@example.com" }).await;
    assert_eq!(response.location_fragment("email"), None, "{response:?}");
}

#[tokio::test]
async fn an_unverified_address_never_links() {
    let server = TestServer::start().await;
    let id = server.account("ada@example.com", PASSWORD).await;
    let response = server.google().sign_in(UNVERIFIED_ADA).await.expect(302);
    assert_eq!(error_of(&response).1.as_deref(), Some("provider_email_needs_verification"));
    assert_eq!(
        response.location_query("error_description").as_deref(),
        Some("Unverified email with google. Verify the email with google in order to sign in")
    );
    assert_eq!(count(&server, "users").await, 1, "nothing would ever confirm such an account");
    let providers: Value =
        server.query(&format!("select raw_app_meta_data->'providers' from auth.users where id = '{id}'")).await[0]
            .get(0);
    assert_eq!(providers, json!(["email"]));
}

#[tokio::test]
async fn an_unverified_address_of_an_identity_does_not_lead_its_owner_into_that_account() {
    let server = TestServer::start().await;
    // Another account has an identity with Ada's address, unverified
    let eve = server.account("eve@example.com", PASSWORD).await;
    server
        .execute(&format!(
            "insert into auth.identities (provider_id, user_id, identity_data, provider, created_at, updated_at)
             values ('1', '{eve}', '{{\"sub\": \"1\", \"email\": \"ada@example.com\", \"email_verified\": false}}', 'spotify', now(), now())"
        ))
        .await;
    let ada = google_user(&server, ADA).await;
    assert_ne!(ada["id"], eve);
}

#[tokio::test]
async fn disabled_sign_ups_and_bans_are_reported_to_the_app() {
    let server = TestServer::with_auth(|auth| auth.disable_signup = true).await;
    let response = server.google().sign_in(ADA).await.expect(302);
    assert_eq!(error_of(&response), ("access_denied".into(), Some("signup_disabled".into())));
    assert_eq!(count(&server, "users").await, 0);

    let server = TestServer::start().await;
    google_user(&server, ADA).await;
    server.execute("update auth.users set banned_until = now() + interval '1 day'").await;
    let response = server.google().sign_in(ADA).await.expect(302);
    assert_eq!(error_of(&response), ("access_denied".into(), Some("user_banned".into())));
    assert_eq!(count(&server, "sessions").await, 1);
}

#[tokio::test]
async fn without_confirmations_unverified_addresses_are_accepted() {
    let server = TestServer::with_auth(|auth| auth.email.autoconfirm = true).await;
    let user = google_user(&server, UNVERIFIED_ADA).await;
    assert!(user["email_confirmed_at"].is_string());
    assert!(server.mails().is_empty());
}

#[tokio::test]
async fn an_invalid_state_redirects_to_the_site() {
    let server = TestServer::start().await;
    let url = authorize(&server, "&redirect_to=http://127.0.0.1:3000/app").await;
    let back = server.google().decide(&url, ADA).await;
    let code = query_of(&back, "code").unwrap();
    let mail = Pkce::new();
    let body = json!({"email": "new@example.com", "password": PASSWORD, "code_challenge": mail.challenge, "code_challenge_method": "s256"});
    server.post("/auth/v1/signup").json(&body).send().await.expect(200);
    let of_mail: String =
        server.query("select id::text from auth.flow_state where authentication_method <> 'oauth'").await[0].get(0);

    for (query, code) in [
        (format!("code={code}"), "bad_oauth_callback"),
        (format!("code={code}&state="), "bad_oauth_callback"),
        (format!("code={code}&state=nonsense"), "bad_oauth_state"),
        (format!("code={code}&state=%00%ff"), "bad_oauth_callback"),
        (format!("code={code}&state=0f6b3f6e-8f0c-4f6b-9a53-0b8f1d4f7a10"), "bad_oauth_state"),
        (format!("code={code}&state={of_mail}"), "bad_oauth_state"),
        (format!("error=access_denied&state={of_mail}"), "bad_oauth_state"),
    ] {
        let response = server.get(&format!("/auth/v1/callback?{query}")).send().await.expect(303);
        assert_eq!(error_of(&response), ("invalid_request".into(), Some(code.to_owned())), "{query}");
        assert!(response.location().as_str().starts_with("http://127.0.0.1:3000/?"), "{response:?}");
        assert_eq!(response.location().fragment(), None);
    }
    let state = query_of(&url, "state").unwrap();
    let without_code = server.get(&format!("/auth/v1/callback?state={state}")).send().await.expect(302);
    assert_eq!(error_of(&without_code).1.as_deref(), Some("bad_oauth_callback"));

    let other = authorize(&server, "").await;
    let late = server.google().decide(&other, ADA).await;
    server.clock().advance(Duration::seconds(301));
    let response = server.get(late.as_str()).send().await.expect(303);
    assert_eq!(response.location_query("error_description").as_deref(), Some("OAuth state has expired"));
    assert_eq!(count(&server, "sessions").await, 0);
}

#[tokio::test]
async fn no_redirect_leads_outside_the_allow_list() {
    let server = TestServer::start().await;
    for target in [
        "https%3A%2F%2Fevil.example%2F",
        "%2F%2Fevil.example",
        "http%3A%2F%2F127.0.0.1%3A3000%40evil.example%2F",
        "http%3A%2F%2Flocalhost%3A3000%2Fapp%2F..%2F..%2Fother",
        "javascript%3Aalert(1)",
        "http%3A%2F%2F127.0.0.1%3A3000%2F%0d%0aset-cookie%3Aa%3Db",
        "http%3A%2F%2Fevil.example%5C%40127.0.0.1%3A3000",
    ] {
        let url = authorize(&server, &format!("&redirect_to={target}")).await;
        let response = server.google().answer(&url, GooglePerson::Cancels).await.expect(302);
        let target_url = response.location();
        assert_eq!(
            (target_url.host_str(), target_url.port(), target_url.path()),
            (Some("127.0.0.1"), Some(3000), "/"),
            "{target}"
        );
    }
    let allowed = authorize(&server, "&redirect_to=http%3A%2F%2Flocalhost%3A3000%2Fapp").await;
    let response = server.google().answer(&allowed, GooglePerson::Cancels).await.expect(302);
    assert!(response.location().as_str().starts_with("http://localhost:3000/app?error="));
}

#[tokio::test]
async fn callers_add_parameters_but_cannot_change_those_of_the_server() {
    let server = TestServer::start().await;
    let query = "&scopes=calendar.read,email&prompt=consent&client_id=evil&Redirect_URI=https%3A%2F%2Fevil.example&state=evil\
                 &response_type=token&code_verifier=x&redirect_to=http%3A%2F%2F127.0.0.1%3A3000%2Fapp&apikey=secret&login_hint=ada";
    let url = authorize(&server, query).await;
    assert_eq!(query_of(&url, "scope").as_deref(), Some("email profile openid calendar.read"));
    assert_eq!(query_of(&url, "prompt").as_deref(), Some("consent"));
    assert_eq!(query_of(&url, "login_hint").as_deref(), Some("ada"));
    assert_eq!(query_of(&url, "response_type").as_deref(), Some("code"));
    assert_eq!(query_of(&url, "redirect_uri"), Some(format!("{}/auth/v1/callback", server.base())));
    assert!(!url.as_str().contains("evil") && !url.as_str().contains("apikey"));
    for absent in ["code_verifier", "redirect_to", "provider", "scopes"] {
        assert_eq!(query_of(&url, absent), None, "{absent}");
    }
    let names: Vec<String> = url.query_pairs().map(|(name, _)| name.to_lowercase()).collect();
    let distinct: std::collections::HashSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
}

#[tokio::test]
async fn requests_that_cannot_start_a_flow_are_rejected() {
    let challenge = Pkce::new().challenge;
    let server = TestServer::with_auth(|auth| {
        auth.external
            .insert("github".into(), portico_auth::settings::ProviderSettings { enabled: true, ..Default::default() });
    })
    .await;
    for (query, text) in [
        ("provider=nobody", "Unsupported provider: Provider nobody could not be found"),
        ("", "Unsupported provider: Provider  could not be found"),
        ("provider=gitlab", "Unsupported provider: provider is not enabled"),
        ("provider=github", "Unsupported provider: missing OAuth client ID"),
        ("provider=custom:acme", "Unsupported provider: custom provider custom:acme not found"),
        ("provider=google&code_challenge=abc", "PKCE flow requires code_challenge_method and code_challenge"),
        (
            &format!("provider=google&code_challenge={challenge}&code_challenge_method=md5"),
            "Invalid code_challenge_method",
        ),
        (
            "provider=google&code_challenge=short&code_challenge_method=s256",
            "code challenge has to be between 43 and 128 characters",
        ),
    ] {
        let response = server.get(&format!("/auth/v1/authorize?{query}")).send().await;
        assert_eq!(response.rejection(), (400, "validation_failed".into()), "{query}");
        assert_eq!(response.json()["msg"], text);
    }
    let invite = server.get("/auth/v1/authorize?provider=google&invite_token=unknown").send().await;
    assert_eq!(invite.rejection(), (404, "user_not_found".into()));
    assert_eq!(count(&server, "flow_state").await, 0);
}

#[tokio::test]
async fn concurrent_first_sign_ins_create_one_account() {
    let server = TestServer::start().await;
    let mut ways_back = Vec::new();
    for _ in 0..6 {
        let url = authorize(&server, "").await;
        ways_back.push(server.google().decide(&url, ADA).await);
    }
    let responses = join_all(ways_back.iter().map(|back| server.get(back.as_str()).send())).await;
    for response in &responses {
        assert!(response.location_fragment("access_token").is_some(), "{response:?}");
    }
    assert_eq!(count(&server, "users").await, 1);
    assert_eq!(count(&server, "identities").await, 1);
    assert_eq!(count(&server, "sessions").await, 6);
}

#[tokio::test]
async fn concurrent_callbacks_of_one_flow_sign_in_once() {
    let server = TestServer::start().await;
    let url = authorize(&server, "").await;
    let back = server.google().decide(&url, ADA).await;
    let responses = join_all((0..4).map(|_| server.get(back.as_str()).send())).await;
    let sessions = responses.iter().filter(|response| response.location_fragment("access_token").is_some()).count();
    assert_eq!(sessions, 1);
    assert_eq!(count(&server, "sessions").await, 1);
}

#[tokio::test]
async fn an_invitation_is_accepted_by_a_sign_in() {
    let server = TestServer::start().await;
    server
        .execute(
            "insert into auth.users (id, instance_id, aud, role, email, encrypted_password, confirmation_token, confirmation_sent_at,
                 invited_at, raw_app_meta_data, raw_user_meta_data, created_at, updated_at)
             values ('0f6b3f6e-8f0c-4f6b-9a53-0b8f1d4f7a10', '00000000-0000-0000-0000-000000000000', 'authenticated', 'authenticated',
                 'ada@example.com', '', 'hash-of-the-invitation', now(), now(), '{}', '{}', now(), now());
             insert into auth.one_time_tokens (id, user_id, token_type, token_hash, relates_to)
             values (gen_random_uuid(), '0f6b3f6e-8f0c-4f6b-9a53-0b8f1d4f7a10', 'confirmation_token', 'hash-of-the-invitation', 'ada@example.com')",
        )
        .await;
    let wrong = authorize(&server, "&invite_token=hash-of-the-invitation").await;
    assert!(!wrong.as_str().contains("hash-of-the-invitation"), "an invitation is a secret");
    let eve = GooglePerson::Verified { name: "Eve", email: "eve@example.com" };
    let refused = server.google().answer(&wrong, eve).await.expect(302);
    assert_eq!(
        refused.location_query("error_description").as_deref(),
        Some("Invited email does not match emails from external provider")
    );
    assert_eq!(count(&server, "identities").await, 0);

    let url = authorize(&server, "&invite_token=hash-of-the-invitation").await;
    let accepted = server.google().answer(&url, ADA).await.expect(302);
    let token = accepted.location_fragment("access_token").unwrap();
    assert_eq!(claims_of(&token)["sub"], "0f6b3f6e-8f0c-4f6b-9a53-0b8f1d4f7a10");
    assert!(server.actions().await.contains(&"invite_accepted".to_owned()));
    let again = server.get("/auth/v1/authorize?provider=google&invite_token=hash-of-the-invitation").send().await;
    assert_eq!(again.rejection(), (404, "user_not_found".into()));
}

#[tokio::test]
async fn a_target_may_contain_any_characters() {
    let server = TestServer::start().await;
    let target = "http%3A%2F%2F127.0.0.1%3A3000%2Fgr%C3%BC%C3%9Fe%3Fname%3D%C3%A9";
    for person in [ADA, GooglePerson::Cancels] {
        let url = authorize(&server, &format!("&redirect_to={target}")).await;
        let response = server.google().answer(&url, person).await.expect(302);
        let location = response.location();
        assert_eq!(location.path(), "/gr%C3%BC%C3%9Fe", "{location}");
        assert!(location.query().unwrap().starts_with("name=%C3%A9"), "{location}");
    }
}
