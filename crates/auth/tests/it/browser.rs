//! Implicit flows: only the browser that started one can finish it, with a response of its
//! provider.

use portico_auth::AuthSettings;
use portico_testkit::{GooglePerson, Pkce, TestResponse, TestServer};
use serde_json::{Value, json};
use url::Url;

use crate::misbehaving::{Provider, begin, server_and, server_with};
use crate::oauth::query_of;

const ADA: GooglePerson<'static> = GooglePerson::Verified { name: "Ada L", email: "ada@example.com" };
const AUTHORIZE: &str = "/auth/v1/authorize?provider=google";

#[track_caller]
fn assert_rejected(response: &TestResponse) {
    assert_eq!(response.status, 303, "{response:?}");
    assert_eq!(response.location_query("error_code").as_deref(), Some("bad_oauth_state"), "{response:?}");
    let text = "The sign-in must be finished in the browser in which it began";
    assert_eq!(response.location_query("error_description").as_deref(), Some(text));
    assert_eq!(response.location().fragment(), None);
}

fn is_signed_in(response: &TestResponse) -> bool {
    response.status == 302 && response.location_fragment("access_token").is_some()
}

/// Starts a server with the public URL `url`.
async fn at(url: &str, change: impl FnOnce(&mut AuthSettings)) -> TestServer {
    let provider = Provider::start().await;
    let url = url.to_owned();
    server_and("google", &provider, |auth| {
        auth.external_url = url;
        change(auth);
    })
    .await
}

fn cookie(response: &TestResponse) -> String {
    response.header("set-cookie").unwrap_or_else(|| panic!("no cookie: {response:?}")).to_owned()
}

#[tokio::test]
async fn a_flow_cannot_be_finished_by_another_browser() {
    let t = TestServer::start().await;
    // Eve signs in as herself and gives the callback URL to Ada, who would be signed in to Eve's
    // account
    let url = t.get(AUTHORIZE).send().await.expect(302).location();
    let back = t.google().decide(&url, ADA).await;
    assert_rejected(&t.get(back.as_str()).from_another_browser().send().await);
    // Another browser, which has a key
    let own = t.get(AUTHORIZE).from_another_browser().send().await.expect(302);
    let own = cookie(&own).split(';').next().unwrap().to_owned();
    assert_rejected(&t.get(back.as_str()).from_another_browser().header("cookie", &own).send().await);
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
    // The flow can still be finished by its browser
    assert!(is_signed_in(&t.get(back.as_str()).send().await));
}

#[tokio::test]
async fn several_tabs_and_several_cookies_work() {
    let t = TestServer::start().await;
    let first = t.get(AUTHORIZE).send().await.expect(302).location();
    let second = t.get(AUTHORIZE).header("cookie", "a=b; c").send().await.expect(302).location();
    for url in [second, first] {
        assert!(is_signed_in(&t.google().answer(&url, ADA).await));
    }
}

#[tokio::test]
async fn a_flow_with_pkce_needs_no_cookie() {
    let t = TestServer::start().await;
    let pkce = Pkce::new();
    let target = format!("{AUTHORIZE}&code_challenge={}&code_challenge_method=s256", pkce.challenge);
    let started = t.get(&target).from_another_browser().send().await.expect(302);
    assert_eq!(started.header("set-cookie"), None);
    let back = t.google().decide(&started.location(), ADA).await;
    let code = t.get(back.as_str()).from_another_browser().send().await.expect(302).location_query("code").unwrap();
    let body = json!({"auth_code": code, "code_verifier": pkce.verifier});
    t.post("/auth/v1/token?grant_type=pkce").json(&body).send().await.expect(200);
}

#[tokio::test]
async fn a_flow_without_a_binding_cannot_be_finished() {
    let t = TestServer::start().await;
    let url = t.get(AUTHORIZE).send().await.expect(302).location();
    // As another program on the same database stores them
    t.execute("update auth.flow_state set code_challenge = null").await;
    assert_rejected(&t.google().answer(&url, ADA).await);
}

#[tokio::test]
async fn the_cookie_is_restricted_to_this_host_and_purpose() {
    let t = at("https://id.example.com/auth/v1", |_| {}).await;
    let secure = cookie(&t.get(AUTHORIZE).header("host", "id.example.com").send().await.expect(302));
    let (pair, attributes) = secure.split_once("; ").unwrap();
    assert!(pair.starts_with("__Host-portico-flow="), "{secure}");
    assert_eq!(attributes, "Path=/; Max-Age=300; HttpOnly; SameSite=Lax; Secure");
    // A form comes from another site, which requires another cookie
    let form = t.get(&format!("{AUTHORIZE}&response_mode=form_post")).header("host", "id.example.com");
    let form = cookie(&form.send().await.expect(302));
    assert!(form.starts_with("__Host-portico-flow-form="), "{form}");
    assert!(form.ends_with("; Path=/; Max-Age=300; HttpOnly; SameSite=None; Secure"), "{form}");
    // A cookie that any host of the domain could have set is not accepted
    let started = begin_at(&t, "id.example.com").await;
    let key = started.1.split(';').next().unwrap().split_once('=').unwrap().1.to_owned();
    let back = format!("/auth/v1/callback?code=the-code&state={}", started.0);
    let tossed = t.get(&back).from_another_browser().header("cookie", &format!("portico-flow={key}"));
    assert_rejected(&tossed.send().await);

    let t = TestServer::start().await;
    let plain = cookie(&t.get(AUTHORIZE).send().await.expect(302));
    assert!(plain.starts_with("portico-flow="), "{plain}");
    assert!(plain.ends_with("; Path=/; Max-Age=300; HttpOnly; SameSite=Lax"), "{plain}");
}

/// Starts a flow at `host`. Returns its state and cookie.
async fn begin_at(t: &TestServer, host: &str) -> (String, String) {
    let started = t.get(AUTHORIZE).header("host", host).send().await.expect(302);
    (state_of(&started.location()), cookie(&started))
}

fn state_of(url: &Url) -> String {
    query_of(url, "state").unwrap()
}

#[tokio::test]
async fn a_browser_at_another_host_name_is_redirected_once_to_that_of_the_callback() {
    let t = TestServer::start().await;
    let port = Url::parse(t.base()).unwrap().port().unwrap();
    let target = format!("{AUTHORIZE}&redirect_to=http://127.0.0.1:3000/app&prompt=a%20b");
    let sent = t.get(&target).header("host", &format!("localhost:{port}")).send().await.expect(302);
    assert_eq!(sent.header("set-cookie"), None);
    assert_eq!(t.count("select count(*) from auth.flow_state").await, 0);
    let there = sent.location();
    assert!(there.as_str().starts_with(&format!("{}/auth/v1/authorize?provider=google&", t.base())), "{there}");
    let url = t.get(there.as_str()).send().await.expect(302).location();
    assert!(url.query_pairs().any(|(name, value)| name == "prompt" && value == "a b"), "{url}");
    assert!(!url.as_str().contains("portico_arrived"), "{url}");
    let response = t.google().answer(&url, ADA).await;
    assert!(is_signed_in(&response) && response.location().path() == "/app", "{response:?}");

    // A proxy that sends its own host name does not cause a loop of redirects
    let started = t.get(there.as_str()).header("host", "upstream:8000").send().await.expect(302);
    assert!(is_signed_in(&t.google().answer(&started.location(), ADA).await));
}

#[tokio::test]
async fn without_a_cookie_the_flow_is_bound_to_the_network() {
    let t = at("http://127.0.0.1:1/auth/v1", |auth| {
        auth.external.get_mut("google").unwrap().redirect_uri = "https://app.example.com/back".into();
    })
    .await;
    let from = |target: &str, ip: &str| t.get(target).from_another_browser().header("x-forwarded-for", ip);
    let started = from(AUTHORIZE, "192.0.2.66").send().await.expect(302);
    assert_eq!(started.header("set-cookie"), None);
    let back = format!("/auth/v1/callback?error=access_denied&state={}", state_of(&started.location()));
    assert_rejected(&from(&back, "198.51.100.7").send().await);
    let response = from(&back, "192.0.2.66").send().await.expect(302);
    assert_eq!(response.location_query("error").as_deref(), Some("access_denied"));
}

#[tokio::test]
async fn a_link_is_finished_by_its_browser_from_any_network() {
    let t = TestServer::with_auth(|auth| auth.manual_linking = true).await;
    let session = t.signed_in("eve@example.com", "correct horse").await;
    let token = session["access_token"].as_str().unwrap();
    let target = "/auth/v1/user/identities/authorize?provider=google&skip_http_redirect=true";
    let started = t.get(target).bearer(token).header("x-forwarded-for", "192.0.2.66").send().await.expect(200);
    let url: Url = started.json()["url"].as_str().unwrap().parse().unwrap();
    let back = t.google().decide(&url, ADA).await;
    let elsewhere = t.get(back.as_str()).from_another_browser().header("x-forwarded-for", "198.51.100.7");
    let refused = elsewhere.send().await.expect(303);
    assert_eq!(refused.location_query("error_code").as_deref(), Some("bad_oauth_state"));
    assert_eq!(t.count("select count(*) from auth.identities where provider = 'google'").await, 0);
    let response = t.get(back.as_str()).header("x-forwarded-for", "203.0.113.9").send().await;
    assert!(is_signed_in(&response), "{response:?}");
}

#[tokio::test]
async fn a_form_of_another_site_is_repeated_as_a_navigation() {
    let provider = Provider::start().await;
    let t = server_with("google", &provider).await;
    let started = begin(&t, "google").await;
    provider.gives(provider.key.sign(&provider.claims(&t, started.nonce.as_deref())));
    let form = [("code", "the-code"), ("state", started.state.as_str()), ("user", "{\"name\": \"A & B\"}")];
    let again = t.post("/auth/v1/callback").from_another_browser().form(&form).send().await.expect(303);
    assert!(provider.calls("/token").is_empty());
    let location = again.header("location").unwrap().to_owned();
    assert!(location.starts_with('?'), "{location}");
    // Once only: another browser is rejected
    assert_rejected(&t.get(&format!("/auth/v1/callback{location}")).from_another_browser().send().await);
    assert!(is_signed_in(&t.get(&format!("/auth/v1/callback{location}")).send().await));

    // With its cookie, the form is not repeated
    let started = begin(&t, "google").await;
    provider.gives(provider.key.sign(&provider.claims(&t, started.nonce.as_deref())));
    let form = [("code", "the-code"), ("state", started.state.as_str())];
    assert!(is_signed_in(&t.post("/auth/v1/callback").form(&form).send().await));
}

fn discovery(base: &str, promises: bool) -> Value {
    json!({
        "issuer": base, "authorization_endpoint": format!("{base}/authorize"), "token_endpoint": format!("{base}/token"),
        "jwks_uri": format!("{base}/jwks"), "authorization_response_iss_parameter_supported": promises,
    })
}

#[tokio::test]
async fn a_response_of_another_issuer_is_rejected() {
    for promises in [false, true] {
        let provider = Provider::start().await;
        provider.says("/.well-known/openid-configuration", discovery(&provider.base, promises));
        let t = server_with("google", &provider).await;
        let other = "https://accounts.google.com";
        for (iss, is_right) in [(Some(provider.base.as_str()), true), (Some(other), false), (None, !promises)] {
            for outcome in ["code=the-code", "error=access_denied"] {
                let started = begin(&t, "google").await;
                provider.gives(provider.key.sign(&provider.claims(&t, started.nonce.as_deref())));
                let calls = provider.calls("/token").len();
                let iss: String = iss.map(|iss| format!("&iss={iss}")).unwrap_or_default();
                let back = format!("/auth/v1/callback?{outcome}&state={}{iss}", started.state);
                let response = t.get(&back).send().await;
                if is_right {
                    let came =
                        is_signed_in(&response) || response.location_query("error").as_deref() == Some("access_denied");
                    assert!(came, "{promises} {iss} {response:?}");
                } else {
                    assert_eq!(response.status, 303, "{promises} {iss} {response:?}");
                    assert_eq!(response.location_query("error_code").as_deref(), Some("bad_oauth_callback"));
                    assert_eq!(provider.calls("/token").len(), calls, "the code is sent nowhere");
                }
            }
        }
    }
}
