//! The owner of an account, and its changes: the rules around linking, unlinking and sessions, one
//! by one.

use portico_auth::AuthSettings;
use portico_testkit::{GooglePerson, TestResponse, TestServer, google_page};
use serde_json::json;

use crate::id_token::id_token;
use crate::misbehaving::{Provider, begin, return_from_provider, server_and, server_with};
use crate::oauth::query_of;

const PASSWORD: &str = "correct horse";
const ADA: GooglePerson<'static> = GooglePerson::Verified { name: "Ada L", email: "ada@example.com" };
const UNVERIFIED_ADA: GooglePerson<'static> = GooglePerson::Unverified { name: "Ada L", email: "ada@example.com" };

/// Starts a server on which identities can be linked, also by anonymous accounts.
pub async fn linking(change: impl FnOnce(&mut AuthSettings)) -> TestServer {
    TestServer::with_auth(|auth| {
        auth.manual_linking = true;
        auth.anonymous_users = true;
        change(auth);
    })
    .await
}

#[track_caller]
fn reports(response: &TestResponse, error: &str, code: &str, text: &str) {
    for field in [TestResponse::location_query, TestResponse::location_fragment] {
        assert_eq!(field(response, "error").as_deref(), Some(error), "{response:?}");
        assert_eq!(field(response, "error_code").as_deref(), Some(code), "{response:?}");
        assert_eq!(field(response, "error_description").as_deref(), Some(text), "{response:?}");
    }
}

/// Adds an identity to the account with this address.
async fn identity(server: &TestServer, owner: &str, provider: &str, email: &str, verified: bool) -> String {
    let sql = format!(
        "insert into auth.identities (provider_id, user_id, identity_data, provider, created_at, updated_at)
         select id::text, id, '{{\"sub\": \"1\", \"email\": \"{email}\", \"email_verified\": {verified}}}', '{provider}', now(), now()
           from auth.users where email = '{owner}' returning id::text"
    );
    server.query(&sql).await[0].get(0)
}

#[tokio::test]
async fn linking_an_address_of_another_account_is_reported() {
    let server = linking(|_| {}).await;
    server.account("ada@example.com", PASSWORD).await;
    let guest = server.anonymous_member().await;
    let response = guest.links_google(ADA).await.expect(302);
    reports(&response, "invalid_request", "email_exists", "A user with this email address has already been registered");
    assert_eq!(guest.account().await["identities"], json!([]));
}

#[tokio::test]
async fn linking_an_unverified_address_requires_its_confirmation() {
    let server = linking(|_| {}).await;
    let guest = server.anonymous_member().await;
    let response = guest.links_google(UNVERIFIED_ADA).await.expect(302);
    let text = "Unverified email with google. A confirmation email has been sent to your google email";
    reports(&response, "server_error", "email_not_confirmed", text);
    assert_eq!(response.location_query("error_id"), None, "not an error of the server");
    let user = guest.account().await;
    assert_eq!(user["identities"][0]["provider"], "google", "kept");
    assert_eq!((&user["email"], &user["new_email"]), (&json!(""), &json!("ada@example.com")));
    server.mail_to("ada@example.com").await;
}

#[tokio::test]
async fn a_link_to_an_account_that_is_gone_ends_at_the_site() {
    let server = linking(|_| {}).await;
    let eve = server.member("eve@example.com").await;
    let url = google_page(&eve.begins_google_link(None).await.expect(200));
    server.execute("delete from auth.users").await;
    let response = server.google().answer(&url, ADA).await.expect(303);
    assert_eq!(response.location_query("error_code").as_deref(), Some("user_not_found"));
    assert_eq!(response.location_query("error_description").as_deref(), Some("Linking target user not found"));
    assert_eq!(response.location().fragment(), None);
    assert_eq!(server.count("select count(*) from auth.users").await, 0);
}

#[tokio::test]
async fn an_address_of_another_account_is_not_promoted() {
    let server = linking(|_| {}).await;
    let eve = server.member("eve@example.com").await;
    let email = eve.identity("email").await;
    identity(&server, "eve@example.com", "github", "ada@example.com", true).await;
    server.account("bob@example.com", PASSWORD).await;
    server.execute("update auth.users set email = 'ada@example.com' where email = 'bob@example.com'").await;
    let refused = eve.unlinks(&email).await;
    assert_eq!(refused.rejection(), (422, "email_conflict_identity_not_deletable".into()));
    assert_eq!(refused.json()["msg"], "Unable to unlink identity due to email conflict");
    let user = eve.account().await;
    assert_eq!((&user["email"], user["identities"].as_array().unwrap().len()), (&json!("eve@example.com"), 2));
}

#[tokio::test]
async fn only_an_address_that_an_identity_proves_is_promoted() {
    for (verified, promoted) in [(false, ""), (true, "s@example.com")] {
        // Also where addresses need no confirmation: the person did not choose this one
        for autoconfirm in [false, true] {
            let server = linking(|auth| auth.email.autoconfirm = autoconfirm).await;
            let eve = match autoconfirm {
                true => server.member_with(server.visitor("eve@example.com").signs_up().await.expect(200).json()),
                false => server.member("eve@example.com").await,
            };
            let email = eve.identity("email").await;
            identity(&server, "eve@example.com", "spotify", "s@example.com", verified).await;
            eve.unlinks(&email).await.expect(200);
            let user = eve.account().await;
            assert_eq!(user["email"], promoted);
            assert_eq!(user["email_confirmed_at"].is_string(), verified);
            if !verified {
                assert_eq!(user["user_metadata"]["email_verified"], false);
            }
        }
    }
    let server = linking(|_| {}).await;

    // A number goes with its identity, and the address stays
    let bob = server.member("bob@example.com").await;
    server
        .execute(
            "update auth.users set phone = '15550001111', phone_confirmed_at = now() where email = 'bob@example.com'",
        )
        .await;
    let phone = identity(&server, "bob@example.com", "phone", "", true).await;
    let other = server.delete(&format!("/auth/v1/user/identities/{phone}")).header("x-jwt-aud", "other");
    assert_eq!(bob.sends(other).send().await.rejection(), (403, "unexpected_audience".into()));
    bob.unlinks(&phone).await.expect(200);
    let user = bob.account().await;
    assert_eq!((&user["phone"], user.get("phone_confirmed_at")), (&json!(""), None));
    assert!(user["email_confirmed_at"].is_string());
}

#[tokio::test]
async fn an_address_of_two_accounts_cannot_sign_in() {
    let server = linking(|_| {}).await;
    for owner in ["eve@example.com", "bob@example.com"] {
        server.account(owner, PASSWORD).await;
        identity(&server, owner, "github", "ada@example.com", true).await;
    }
    let text = "Multiple accounts with the same email address in the same linking domain detected: default";
    let response = server.google().sign_in(ADA).await.expect(302);
    reports(&response, "server_error", "unexpected_failure", text);
    for field in [TestResponse::location_query, TestResponse::location_fragment] {
        assert_eq!(field(&response, "error_id").as_deref(), response.header("x-request-id"));
        assert!(field(&response, "error_id").is_some());
    }
    assert_eq!(server.count("select count(*) from auth.sessions").await, 0);
}

#[tokio::test]
async fn providers_of_another_domain_have_accounts_of_their_own() {
    let server = linking(|auth| drop(auth.linking_domains.insert("google".into(), "social".into()))).await;
    let id = server.account("ada@example.com", PASSWORD).await;
    for _ in 0..2 {
        let response = server.google().sign_in(ADA).await.expect(302);
        let user = server.member_of(&response).account().await;
        assert_ne!(user["id"], id);
        assert_eq!(user["email"], "ada@example.com");
    }
    assert_eq!(server.count("select count(*) from auth.users where is_sso_user").await, 1);
    // By password only the other one is meant
    assert_eq!(server.sign_in("ada@example.com", PASSWORD).await["user"]["id"], id);
}

#[tokio::test]
async fn unverified_addresses_may_be_let_in() {
    let server = linking(|auth| auth.email.allow_unverified_sign_ins = true).await;
    let response = server.google().sign_in(UNVERIFIED_ADA).await.expect(302);
    assert_eq!(server.member_of(&response).account().await.get("email_confirmed_at"), None);
    server.mail_to("ada@example.com").await;
}

#[tokio::test]
async fn people_without_an_address_need_a_provider_that_may_do_without() {
    for optional in [false, true] {
        let provider = Provider::start().await;
        let server = server_and("google", &provider, |auth| {
            auth.external.get_mut("google").unwrap().email_optional = optional;
        })
        .await;
        let started = begin(&server, "google").await;
        let mut claims = provider.claims(&server, started.nonce.as_deref());
        claims.as_object_mut().unwrap().remove("email");
        provider.gives(provider.key.sign(&claims));
        let response = return_from_provider(&server, &started).await;
        if optional {
            assert_eq!(server.member_of(&response).account().await["email"], "");
        } else {
            let text = "Error getting user email from external provider";
            reports(&response, "server_error", "unexpected_failure", text);
        }
        assert_eq!(server.count("select count(*) from auth.users").await, i64::from(optional));
    }
}

#[tokio::test]
async fn a_fixed_target_takes_the_place_of_the_flows() {
    let server = linking(|auth| auth.external_redirect_url = Some("http://127.0.0.1:3000/fixed".into())).await;
    let url = server.get("/auth/v1/authorize?provider=google&redirect_to=http://127.0.0.1:3000/app").send().await;
    let response = server.google().answer(&url.location(), ADA).await.expect(302);
    assert!(response.location().as_str().starts_with("http://127.0.0.1:3000/fixed#access_token="), "{response:?}");
}

#[tokio::test]
async fn a_provider_that_was_turned_off_meanwhile_is_reported_to_the_app() {
    let server = linking(|_| {}).await;
    let url = server.get("/auth/v1/authorize?provider=google").send().await.expect(302).location();
    let back = server.google().decide(&url, ADA).await;
    server.execute("update auth.flow_state set provider_type = 'gitlab'").await;
    let response = server.get(back.as_str()).send().await.expect(302);
    assert_eq!(response.location_query("error_code").as_deref(), Some("oauth_provider_not_supported"), "{response:?}");
}

#[tokio::test]
async fn workos_learns_which_provider_is_meant() {
    let provider = Provider::start().await;
    let server = server_with("workos", &provider).await;
    let query = "provider=workos&workos_provider=GoogleOAuth&connection=conn_1&scopes=more";
    let url = server.get(&format!("/auth/v1/authorize?{query}")).send().await.expect(302).location();
    let field = |name| query_of(&url, name);
    assert!(url.as_str().starts_with(&format!("{}/sso/authorize?", provider.base)), "{url}");
    assert_eq!(field("provider").as_deref(), Some("GoogleOAuth"));
    assert_eq!(field("connection").as_deref(), Some("conn_1"));
    assert_eq!((field("scope"), field("scopes")), (None, None));
}

#[tokio::test]
async fn id_tokens_are_those_of_the_providers_that_the_contract_names() {
    let provider = Provider::start().await;
    let server = server_with("linkedin_oidc", &provider).await;
    let token = provider.key.sign(&provider.claims(&server, None));
    let refused = id_token(&server, &json!({"provider": "linkedin_oidc", "id_token": token})).await;
    assert_eq!(refused.rejection(), (400, "validation_failed".into()));
    assert_eq!(refused.json()["msg"], "Custom OIDC provider \"linkedin_oidc\" not allowed");

    // An error without a code of its own gets one of OAuth
    let server = server_with("google", &provider).await;
    server
        .execute(
            "create function public.refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$;
             create trigger refuse before insert on auth.sessions for each row execute function public.refuse()",
        )
        .await;
    let failed = id_token(&server, &json!({"provider": "google", "id_token": token})).await.expect(400);
    assert_eq!(failed.json(), json!({"error": "server_error", "error_description": "Internal Server Error"}));
    assert_eq!(server.count("select count(*) from auth.users").await, 0);
}

#[tokio::test]
async fn a_token_without_a_session_signs_out_everywhere() {
    let server = linking(|_| {}).await;
    let eve = server.member("eve@example.com").await;
    eve.on_another_device().await;
    let mut claims = eve.claims();
    claims.as_object_mut().unwrap().remove("session_id");
    let token = server.keys().ring.sign(&claims).unwrap();
    server.post("/auth/v1/logout?scope=local").bearer(&token).send().await.expect(204);
    assert_eq!(server.count("select count(*) from auth.sessions").await, 0);
}

#[tokio::test]
async fn classes_of_sessions_do_not_end_each_other() {
    let server = linking(|auth| {
        auth.sessions.single_per_user = true;
        auth.sessions.tags = vec!["web".into(), "app".into()];
    })
    .await;
    let mut first = server.member("eve@example.com").await;
    assert_eq!(server.count("select count(*) from auth.sessions where tag = 'web'").await, 1);
    server.clock().advance(time::Duration::seconds(5));
    let second = first.on_another_device().await.session_id();
    assert_eq!(first.refreshes().await.rejection(), (400, "session_expired".into()));
    server.execute(&format!("update auth.sessions set tag = 'app' where id = '{second}'")).await;
    first.refreshes().await.expect(200);
}

#[tokio::test]
async fn a_target_is_that_of_the_header_the_parameter_or_the_page() {
    let server = linking(|_| {}).await;
    let app = |path: &str| format!("http://127.0.0.1:3000/{path}");
    for (header, parameter, referer, expected) in [
        (Some(app("a")), Some(app("b")), Some(app("c")), app("a")),
        (None, Some(app("b")), Some(app("c")), app("b")),
        (None, None, Some(app("c")), app("c")),
        // The first address of the request counts, even if it is rejected
        (Some("https://evil.example/".into()), Some(app("b")), Some(app("c")), app("c")),
        (None, Some("https://evil.example/".into()), None, "http://127.0.0.1:3000".into()),
        (None, None, Some("https://evil.example/".into()), "http://127.0.0.1:3000".into()),
    ] {
        let query = parameter.map(|target| format!("&redirect_to={target}")).unwrap_or_default();
        let mut request = server.get(&format!("/auth/v1/authorize?provider=google{query}"));
        for (name, value) in [("redirect_to", &header), ("referer", &referer)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        request.send().await.expect(302);
        let referrer: String = server.query("delete from auth.flow_state returning referrer").await[0].get(0);
        assert_eq!(referrer, expected);
    }
}

#[tokio::test]
async fn two_people_who_link_one_identity_at_once_do_not_both_get_it() {
    let server = linking(|_| {}).await;
    let mut ways_back = Vec::new();
    for email in ["eve@example.com", "bob@example.com"] {
        let begun = server.member(email).await.begins_google_link(None).await.expect(200);
        ways_back.push(server.google().decide(&google_page(&begun), ADA).await);
    }
    let responses = futures_util::future::join_all(ways_back.iter().map(|back| server.get(back.as_str()).send())).await;
    let (linked, refused): (Vec<_>, Vec<_>) =
        responses.iter().partition(|response| response.location_fragment("access_token").is_some());
    assert_eq!(linked.len(), 1);
    let text = "Identity is already linked to another user";
    reports(refused[0], "server_error", "identity_already_exists", text);
    assert_eq!(server.count("select count(*) from auth.identities where provider = 'google'").await, 1);
}
