//! `POST /signup`

use portico_auth::AuthSettings;
use portico_testkit::{Pkce, TestServer, Visitor, claims_of, code_in, link_in};
use serde_json::json;

pub const ADA: &str = "ada@example.com";

fn with_autoconfirm(settings: &mut AuthSettings) {
    settings.email.autoconfirm = true;
}

/// Returns Ada, whose app sends the API version of the official clients.
pub fn ada(t: &TestServer) -> Visitor<'_> {
    t.visitor(ADA).with_api_version()
}

#[tokio::test]
async fn a_new_account_must_be_confirmed() {
    let t = TestServer::start().await;
    let fields = json!({"data": {"name": "Ada"}, "gotrue_meta_security": {},
                        "code_challenge": null, "code_challenge_method": null});
    let response = t.visitor(" Ada@Example.com").with_api_version().signs_up_with(&fields).await.expect(200);
    let user = response.json();
    let id = user["id"].as_str().unwrap();
    assert_eq!(user["email"], ADA);
    assert_eq!(user["role"], "authenticated");
    assert_eq!(user["phone"], "");
    assert_eq!(user["app_metadata"], json!({"provider": "email", "providers": ["email"]}));
    let metadata = json!({"name": "Ada", "sub": id, "email": ADA, "email_verified": false, "phone_verified": false});
    assert_eq!(user["user_metadata"], metadata);
    assert_eq!(user["identities"][0]["id"], id);
    assert_eq!(user["identities"][0]["identity_data"], metadata);
    assert_eq!(user["identities"][0]["email"], ADA);
    assert!(user["confirmation_sent_at"].is_string());
    assert!(user.get("access_token").is_none() && user.get("confirmed_at").is_none() && user.get("factors").is_none());
    assert_eq!(user["is_anonymous"], false);

    let refused = t.visitor(ADA).signs_in().await;
    assert_eq!(refused.rejection(), (400, "email_not_confirmed".into()));

    // Nothing that was stored reveals the code
    let mail = t.mail_to(ADA).await;
    let code = code_in(mail.html());
    let stored = t.count(&format!("select count(*) from auth.one_time_tokens where token_hash like '%{code}%'")).await;
    assert_eq!(stored, 0);
    assert_eq!(t.actions().await, ["user_confirmation_requested"]);

    let link = link_in(mail.html());
    let landed = t.get(link.as_str()).send().await.expect(303);
    assert_eq!(landed.location_fragment("type").as_deref(), Some("signup"));
    let owner = t.member_of(&landed);
    assert_eq!(owner.claims()["user_metadata"]["email_verified"], true);
    let again = t.get(link.as_str()).send().await.expect(303);
    assert_eq!(again.location_fragment("error_code").as_deref(), Some("otp_expired"));
    let confirmed = owner.account().await;
    assert!(confirmed["confirmed_at"].is_string());
    assert_eq!(confirmed["identities"][0]["identity_data"]["email_verified"], true);
    t.sign_in(ADA, "correct horse").await;
}

#[tokio::test]
async fn a_sign_up_without_confirmation_returns_a_session() {
    let t = TestServer::with_auth(with_autoconfirm).await;
    let tokens = ada(&t).signs_up().await.expect(200).json();
    assert_eq!(tokens["token_type"], "bearer");
    assert_eq!(tokens["user"]["email"], ADA);
    assert!(tokens["user"]["email_confirmed_at"].is_string());
    assert!(tokens["user"].get("confirmed_at").is_none(), "the contract's answer lacks it");
    let claims = claims_of(tokens["access_token"].as_str().unwrap());
    assert_eq!(claims["amr"][0]["method"], "password");
    assert_eq!(ada(&t).signs_up().await.rejection(), (422, "user_already_exists".into()));
    assert!(t.mails().is_empty());
}

#[tokio::test]
async fn a_sign_up_does_not_reveal_a_taken_address() {
    let sign_in = "https://app.example/sign-in";
    let t = TestServer::with_auth(|settings| settings.email.sign_in_page = Some(sign_in.into())).await;
    let id = t.account(ADA, "correct horse").await;
    let before = t.mails_to(ADA).len();
    let stranger = ada(&t).with_password("another-one");
    let user = stranger.signs_up_with(&json!({"data": {"a": 1}})).await.expect(200).json();
    assert_ne!(user["id"], id);
    assert_eq!(user["role"], "");
    assert_eq!(user["identities"], json!([]));
    assert_eq!(user["user_metadata"], json!({"a": 1}));
    assert!(user["confirmation_sent_at"].is_string());
    assert!(user.get("last_sign_in_at").is_none() && user.get("email_confirmed_at").is_none());
    assert!(t.actions().await.contains(&"user_repeated_signup".to_owned()));
    // Its owner learns of it, and gets no code and no link with a token that a stranger could ask
    // for
    let mail = t.nth_mail_to(ADA, before).await;
    assert_eq!(mail.subject().as_str(), "You already have an account");
    let links: Vec<_> = mail.html().split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(links, [sign_in], "{}", mail.html());
    assert!(mail.html().contains(ADA), "{}", mail.html());
    assert_eq!(t.count("select count(*) from auth.one_time_tokens").await, 0);
    t.sign_in(ADA, "correct horse").await;
}

#[tokio::test]
async fn the_confirmation_belongs_to_the_latest_password() {
    let t = TestServer::start().await;
    let mallory = ada(&t).with_password("of-a-stranger");
    let first = mallory.signs_up_with(&json!({"data": {"name": "Mallory"}})).await.expect(200).json();
    let old_link = link_in(t.nth_mail_to(ADA, 0).await.html());
    let owner = ada(&t).with_password("her-own-one");
    let second = owner.signs_up_with(&json!({"data": {"name": "Ada"}})).await.expect(200).json();
    assert_eq!(first["id"], second["id"]);
    assert_eq!(second["user_metadata"]["name"], "Ada");
    let new_link = link_in(t.nth_mail_to(ADA, 1).await.html());

    let dead = t.get(old_link.as_str()).send().await.expect(303);
    assert_eq!(dead.location_fragment("error_code").as_deref(), Some("otp_expired"));
    t.get(new_link.as_str()).send().await.expect(303).location_fragment("access_token").unwrap();
    t.sign_in(ADA, "her-own-one").await;
    let refused = t.visitor(ADA).with_password("of-a-stranger").signs_in().await;
    assert_eq!(refused.rejection(), (400, "invalid_credentials".into()));
}

#[tokio::test]
async fn an_unconfirmed_account_needs_its_password_when_confirmations_are_off() {
    let t = TestServer::with_auth(with_autoconfirm).await;
    ada(&t).signs_up().await.expect(200);
    t.execute("update auth.users set email_confirmed_at = null").await;
    let stranger = ada(&t).with_password("of-a-stranger").signs_up().await;
    assert_eq!(stranger.rejection(), (422, "user_already_exists".into()));
    let owner = ada(&t).signs_up().await.expect(200).json();
    assert!(owner["access_token"].is_string());
}

#[tokio::test]
async fn an_unverified_provider_identity_does_not_survive_a_confirmation_by_mail() {
    let t = TestServer::start().await;
    // A stranger signed in with a provider that does not verify addresses; the account is not
    // confirmed
    t.execute(
        "with stranger as (
           insert into auth.users (instance_id, id, aud, role, email, raw_app_meta_data, raw_user_meta_data,
                                   confirmation_token, recovery_token, created_at, updated_at)
           values ('00000000-0000-0000-0000-000000000000', gen_random_uuid(), 'authenticated', 'authenticated',
                   'ada@example.com', '{\"provider\":\"github\",\"providers\":[\"github\"]}', '{}', '', '', now(), now())
           returning id)
         insert into auth.identities (provider_id, user_id, identity_data, provider, created_at, updated_at)
         select 'stranger', id, '{\"sub\":\"stranger\",\"email\":\"ada@example.com\",\"email_verified\":false}', 'github',
                now(), now()
           from stranger",
    )
    .await;
    ada(&t).with_password("her-own-one").signs_up().await.expect(200);
    let link = link_in(t.mail_to(ADA).await.html());
    t.get(link.as_str()).send().await.expect(303).location_fragment("access_token").unwrap();
    let providers = t.query("select provider from auth.identities").await;
    let providers: Vec<String> = providers.iter().map(|row| row.get(0)).collect();
    assert_eq!(providers, ["email"]);
    let user = t.sign_in(ADA, "her-own-one").await;
    assert_eq!(user["user"]["app_metadata"]["providers"], json!(["email"]));
}

#[tokio::test]
async fn a_sign_up_is_rejected_in_the_order_of_the_contract() {
    let t = TestServer::start().await;
    for (body, status, code, message) in [
        (json!({"email": ADA}), 400, "validation_failed", "Signup requires a valid password"),
        (json!({"email": ADA, "password": "short"}), 422, "weak_password", "Password should be at least 6 characters."),
        (
            json!({"email": ADA, "password": "x".repeat(73)}),
            400,
            "validation_failed",
            "Password cannot be longer than 72 characters",
        ),
        (
            json!({"email": ADA, "phone": "15550001111", "password": "correct horse"}),
            400,
            "validation_failed",
            "Only an email address or phone number should be provided on signup.",
        ),
        (
            json!({"email": ADA, "password": "correct horse", "code_challenge": "x".repeat(43)}),
            400,
            "validation_failed",
            "PKCE flow requires code_challenge_method and code_challenge",
        ),
        (
            json!({"phone": "15550001111", "password": "correct horse"}),
            400,
            "phone_provider_disabled",
            "Phone signups are disabled",
        ),
        (
            json!({"email": "not an address", "password": "correct horse"}),
            400,
            "validation_failed",
            "Unable to validate email address: invalid format",
        ),
        (json!({}), 422, "anonymous_provider_disabled", "Anonymous sign-ins are disabled"),
        (
            json!({"email": ADA, "password": "correct horse", "data": {"a": "x".repeat(900_000)}}),
            422,
            "validation_failed",
            "User metadata is too large (max 40960 bytes)",
        ),
    ] {
        let response = ada(&t).sends(t.post("/auth/v1/signup").json(&body)).send().await;
        assert_eq!(response.rejection(), (status, code.to_owned()), "{response:?}");
        assert_eq!(response.json()["message"], message);
        assert_eq!(response.header("x-supabase-api-version"), Some("2024-01-01"));
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
    assert!(t.mails().is_empty());

    let closed = TestServer::with_auth(|settings| settings.disable_signup = true).await;
    let response = ada(&closed).signs_up().await;
    assert_eq!(response.rejection(), (422, "signup_disabled".into()));
    let off = TestServer::with_auth(|settings| settings.email.enabled = false).await;
    let response = ada(&off).signs_up().await;
    assert_eq!(response.rejection(), (400, "email_provider_disabled".into()));
}

#[tokio::test]
async fn a_weak_password_is_rejected_with_its_reasons_in_both_versions() {
    let t = TestServer::start().await;
    let new = ada(&t).with_password("abc").signs_up().await.expect(422);
    assert_eq!(new.json()["weak_password"], json!({"reasons": ["length"]}));
    let old = t.visitor(ADA).with_password("abc").signs_up().await.expect(422);
    assert_eq!(old.json()["code"], 422);
    assert_eq!(old.json()["error_code"], "weak_password");
    assert_eq!(old.json()["weak_password"], json!({"reasons": ["length"]}));
}

#[tokio::test]
async fn ten_concurrent_sign_ups_make_one_account() {
    let t = TestServer::start().await;
    let all = (0..10).map(|number| {
        let ada = ada(&t).with_password(&format!("correct-horse-{number}"));
        async move { ada.signs_up().await.expect(200) }
    });
    futures_util::future::join_all(all).await;
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
    assert_eq!(t.count("select count(*) from auth.identities").await, 1);
    assert_eq!(t.count("select count(*) from auth.one_time_tokens").await, 1);
}

#[tokio::test]
async fn a_failing_trigger_stops_the_sign_up_and_its_message_reaches_old_clients() {
    let t = TestServer::start().await;
    t.execute(
        "create function public.refuse() returns trigger language plpgsql as $$
           begin raise exception 'not today' using hint = 'come back tomorrow'; end $$;
         create trigger refuse before insert on auth.users for each row execute function public.refuse();",
    )
    .await;
    let new = ada(&t).signs_up().await.expect(500);
    assert_eq!(new.json(), json!({"code": "unexpected_failure", "message": "Database error saving new user"}));
    let old = t.visitor(ADA).signs_up().await.expect(500);
    let shown = json!({"code": "P0001", "message": "not today", "hint": "come back tomorrow", "detail": ""});
    assert_eq!(old.json(), shown);
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
    assert_eq!(t.count("select count(*) from portico.mail_outbox").await, 0);
}

#[tokio::test]
async fn triggers_see_the_expected_steps_of_a_sign_up() {
    let t = TestServer::start().await;
    t.execute(
        "create table public.seen (at bigint generated always as identity, what text);
         grant all on public.seen to supabase_auth_admin;
         create function public.note() returns trigger language plpgsql as $$
           begin
             insert into public.seen (what) values (tg_op || ' role=' || coalesce(new.role, 'null'));
             return new;
           end $$;
         create trigger note after insert or update of role on auth.users for each row execute function public.note();
         create function public.claims() returns trigger language plpgsql as $$
           begin
             new.raw_app_meta_data = new.raw_app_meta_data || '{\"plan\": \"free\"}';
             return new;
           end $$;
         create trigger claims before insert on auth.users for each row execute function public.claims();",
    )
    .await;
    let user = ada(&t).signs_up().await.expect(200).json();
    assert_eq!(user["app_metadata"]["plan"], "free");
    let seen = t.query("select what from public.seen order by at").await;
    let seen: Vec<String> = seen.iter().map(|row| row.get(0)).collect();
    assert_eq!(seen, ["INSERT role=", "UPDATE role=authenticated"]);
}

#[tokio::test]
async fn a_link_of_a_flow_with_a_proof_key_returns_a_code() {
    let t = TestServer::start().await;
    let pkce = Pkce::new();
    let key = json!({"code_challenge": pkce.challenge, "code_challenge_method": "s256"});
    ada(&t).signs_up_with(&key).await.expect(200);
    let landed = t.visitor(ADA).opens_link().await.expect(303);
    assert!(landed.location_fragment("access_token").is_none());
    assert!(landed.location_query("code").is_some());
    assert_eq!(t.count("select count(*) from auth.sessions").await, 0);
    let tokens = t.exchange(&landed, &pkce.verifier).await.expect(200).json();
    assert_eq!(claims_of(tokens["access_token"].as_str().unwrap())["amr"][0]["method"], "email/signup");
    assert_eq!(t.exchange(&landed, &pkce.verifier).await.rejection(), (404, "flow_state_not_found".into()));
}

#[tokio::test]
async fn an_anonymous_user_signs_in_and_becomes_permanent() {
    let t = TestServer::with_auth(|settings| settings.anonymous_users = true).await;
    let data = t.post("/auth/v1/signup").json(&json!({"data": {"theme": "dark"}}));
    let guest = t.member_with(data.send().await.expect(200).json()).with_api_version();
    let user = &guest.session()["user"];
    assert_eq!((&user["email"], &user["phone"], &user["is_anonymous"]), (&json!(""), &json!(""), &json!(true)));
    assert_eq!((&user["app_metadata"], &user["identities"]), (&json!({}), &json!([])));
    assert_eq!(user["user_metadata"], json!({"theme": "dark"}));
    let claims = guest.claims();
    assert_eq!((&claims["is_anonymous"], &claims["amr"][0]["method"]), (&json!(true), &json!("anonymous")));
    assert!(t.actions().await.is_empty());

    let alone = guest.changes_account(&json!({"password": "correct horse"})).await;
    assert_eq!(alone.rejection(), (422, "validation_failed".into()));
    let both = json!({"email": ADA, "password": "correct horse"});
    let waiting = guest.changes_account(&both).await.expect(200).json();
    assert_eq!((&waiting["new_email"], &waiting["email"]), (&json!(ADA), &json!("")));
    let link = link_in(t.mail_to(ADA).await.html());
    t.get(link.as_str()).send().await.expect(303).location_fragment("access_token").unwrap();
    let user = t.sign_in(ADA, "correct horse").await["user"].clone();
    assert_eq!((&user["id"], &user["is_anonymous"]), (&json!(guest.id()), &json!(false)));
    assert_eq!(user["identities"][0]["provider"], "email");
    assert_eq!(user["user_metadata"]["theme"], "dark");
}

#[tokio::test]
async fn without_confirmation_an_anonymous_user_becomes_permanent_at_once() {
    let t = TestServer::with_auth(|settings| {
        settings.anonymous_users = true;
        settings.email.autoconfirm = true;
    })
    .await;
    let guest = t.anonymous_member().await;
    let user = guest.changes_account(&json!({"email": ADA})).await.expect(200).json();
    assert_eq!((&user["email"], &user["is_anonymous"]), (&json!(ADA), &json!(false)));
    assert_eq!(user["app_metadata"]["provider"], "email");
    assert!(t.mails().is_empty());
}
