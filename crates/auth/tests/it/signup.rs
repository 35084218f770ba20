//! `POST /signup`

use portico_auth::AuthSettings;
use portico_testkit::{Pkce, TestServer, claims_of, code_in, link_in};
use serde_json::{Value, json};

const ADA: &str = "ada@example.com";

fn with_autoconfirm(settings: &mut AuthSettings) {
    settings.email.autoconfirm = true;
}

async fn sign_up(t: &TestServer, body: Value) -> portico_testkit::TestResponse {
    t.post("/auth/v1/signup").header("x-supabase-api-version", "2024-01-01").json(&body).send().await
}

#[tokio::test]
async fn a_new_account_must_be_confirmed() {
    let t = TestServer::start().await;
    let answer = sign_up(
        &t,
        json!({"email": " Ada@Example.com", "password": "correct-horse", "data": {"name": "Ada"},
               "gotrue_meta_security": {}, "code_challenge": null, "code_challenge_method": null}),
    )
    .await
    .expect(200);
    let user = answer.json();
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

    let refused = t.visitor(ADA).with_password("correct-horse").signs_in().await;
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
    let token = landed.location_fragment("access_token").unwrap();
    assert_eq!(claims_of(&token)["user_metadata"]["email_verified"], true);
    let again = t.get(link.as_str()).send().await.expect(303);
    assert_eq!(again.location_fragment("error_code").as_deref(), Some("otp_expired"));
    let confirmed = t.get("/auth/v1/user").bearer(&token).send().await.expect(200).json();
    assert!(confirmed["confirmed_at"].is_string());
    assert_eq!(confirmed["identities"][0]["identity_data"]["email_verified"], true);
    t.sign_in(ADA, "correct-horse").await;
}

#[tokio::test]
async fn a_sign_up_without_confirmation_returns_a_session() {
    let t = TestServer::with_auth(with_autoconfirm).await;
    let body = json!({"email": ADA, "password": "correct-horse"});
    let tokens = sign_up(&t, body.clone()).await.expect(200).json();
    assert_eq!(tokens["token_type"], "bearer");
    assert_eq!(tokens["user"]["email"], ADA);
    assert!(tokens["user"]["email_confirmed_at"].is_string());
    assert!(tokens["user"].get("confirmed_at").is_none(), "the contract's answer lacks it");
    let claims = claims_of(tokens["access_token"].as_str().unwrap());
    assert_eq!(claims["amr"][0]["method"], "password");
    assert_eq!(sign_up(&t, body).await.rejection(), (422, "user_already_exists".into()));
    assert!(t.mails().is_empty());
}

#[tokio::test]
async fn a_sign_up_does_not_reveal_a_taken_address() {
    let sign_in = "https://app.example/sign-in";
    let t = TestServer::with_auth(|settings| settings.email.sign_in_page = Some(sign_in.into())).await;
    let id = t.account(ADA, "correct-horse").await;
    let before = t.mails_to(ADA).len();
    let user = sign_up(&t, json!({"email": ADA, "password": "another-one", "data": {"a": 1}})).await.expect(200).json();
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
    t.sign_in(ADA, "correct-horse").await;
}

#[tokio::test]
async fn the_confirmation_belongs_to_the_latest_password() {
    let t = TestServer::start().await;
    let mallory = json!({"email": ADA, "password": "of-a-stranger", "data": {"name": "Mallory"}});
    let first = sign_up(&t, mallory).await.expect(200).json();
    let old_link = link_in(t.nth_mail_to(ADA, 0).await.html());
    let second = sign_up(&t, json!({"email": ADA, "password": "her-own-one", "data": {"name": "Ada"}})).await;
    let second = second.expect(200).json();
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
    sign_up(&t, json!({"email": ADA, "password": "correct-horse"})).await.expect(200);
    t.execute("update auth.users set email_confirmed_at = null").await;
    let stranger = sign_up(&t, json!({"email": ADA, "password": "of-a-stranger"})).await;
    assert_eq!(stranger.rejection(), (422, "user_already_exists".into()));
    let owner = sign_up(&t, json!({"email": ADA, "password": "correct-horse"})).await.expect(200).json();
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
    sign_up(&t, json!({"email": ADA, "password": "her-own-one"})).await.expect(200);
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
            json!({"email": ADA, "phone": "15550001111", "password": "correct-horse"}),
            400,
            "validation_failed",
            "Only an email address or phone number should be provided on signup.",
        ),
        (
            json!({"email": ADA, "password": "correct-horse", "code_challenge": "x".repeat(43)}),
            400,
            "validation_failed",
            "PKCE flow requires code_challenge_method and code_challenge",
        ),
        (
            json!({"phone": "15550001111", "password": "correct-horse"}),
            400,
            "phone_provider_disabled",
            "Phone signups are disabled",
        ),
        (
            json!({"email": "not an address", "password": "correct-horse"}),
            400,
            "validation_failed",
            "Unable to validate email address: invalid format",
        ),
        (json!({}), 422, "anonymous_provider_disabled", "Anonymous sign-ins are disabled"),
        (
            json!({"email": ADA, "password": "correct-horse", "data": {"a": "x".repeat(900_000)}}),
            422,
            "validation_failed",
            "User metadata is too large (max 40960 bytes)",
        ),
    ] {
        let answer = sign_up(&t, body).await;
        assert_eq!(answer.rejection(), (status, code.to_owned()), "{answer:?}");
        assert_eq!(answer.json()["message"], message);
        assert_eq!(answer.header("x-supabase-api-version"), Some("2024-01-01"));
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
    assert!(t.mails().is_empty());

    let closed = TestServer::with_auth(|settings| settings.disable_signup = true).await;
    let answer = sign_up(&closed, json!({"email": ADA, "password": "correct-horse"})).await;
    assert_eq!(answer.rejection(), (422, "signup_disabled".into()));
    let off = TestServer::with_auth(|settings| settings.email.enabled = false).await;
    let answer = sign_up(&off, json!({"email": ADA, "password": "correct-horse"})).await;
    assert_eq!(answer.rejection(), (400, "email_provider_disabled".into()));
}

#[tokio::test]
async fn a_weak_password_is_rejected_with_its_reasons_in_both_versions() {
    let t = TestServer::start().await;
    let body = json!({"email": ADA, "password": "abc"});
    let new = sign_up(&t, body.clone()).await.expect(422);
    assert_eq!(new.json()["weak_password"], json!({"reasons": ["length"]}));
    let old = t.post("/auth/v1/signup").json(&body).send().await.expect(422);
    assert_eq!(old.json()["code"], 422);
    assert_eq!(old.json()["error_code"], "weak_password");
    assert_eq!(old.json()["weak_password"], json!({"reasons": ["length"]}));
}

#[tokio::test]
async fn ten_concurrent_sign_ups_make_one_account() {
    let t = TestServer::start().await;
    let all = (0..10).map(|number| {
        let body = json!({"email": ADA, "password": format!("correct-horse-{number}")});
        async { sign_up(&t, body).await.expect(200) }
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
    let body = json!({"email": ADA, "password": "correct-horse"});
    let new = sign_up(&t, body.clone()).await.expect(500);
    assert_eq!(new.json(), json!({"code": "unexpected_failure", "message": "Database error saving new user"}));
    let old = t.post("/auth/v1/signup").json(&body).send().await.expect(500);
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
    let user = sign_up(&t, json!({"email": ADA, "password": "correct-horse"})).await.expect(200).json();
    assert_eq!(user["app_metadata"]["plan"], "free");
    let seen = t.query("select what from public.seen order by at").await;
    let seen: Vec<String> = seen.iter().map(|row| row.get(0)).collect();
    assert_eq!(seen, ["INSERT role=", "UPDATE role=authenticated"]);
}

#[tokio::test]
async fn a_link_of_a_flow_with_a_proof_key_returns_a_code() {
    let t = TestServer::start().await;
    let pkce = Pkce::new();
    let body = json!({"email": ADA, "password": "correct-horse", "code_challenge": pkce.challenge, "code_challenge_method": "s256"});
    sign_up(&t, body).await.expect(200);
    let link = link_in(t.mail_to(ADA).await.html());
    let landed = t.get(link.as_str()).send().await.expect(303);
    assert!(landed.location_fragment("access_token").is_none());
    let code = landed.location_query("code").unwrap();
    assert_eq!(t.count("select count(*) from auth.sessions").await, 0);
    let exchange =
        || t.post("/auth/v1/token?grant_type=pkce").json(&json!({"auth_code": code, "code_verifier": pkce.verifier}));
    let tokens = exchange().send().await.expect(200).json();
    assert_eq!(claims_of(tokens["access_token"].as_str().unwrap())["amr"][0]["method"], "email/signup");
    assert_eq!(exchange().send().await.rejection(), (404, "flow_state_not_found".into()));
}

#[tokio::test]
async fn an_anonymous_user_signs_in_and_becomes_permanent() {
    let t = TestServer::with_auth(|settings| settings.anonymous_users = true).await;
    let tokens = sign_up(&t, json!({"data": {"theme": "dark"}})).await.expect(200).json();
    let user = &tokens["user"];
    assert_eq!((&user["email"], &user["phone"], &user["is_anonymous"]), (&json!(""), &json!(""), &json!(true)));
    assert_eq!((&user["app_metadata"], &user["identities"]), (&json!({}), &json!([])));
    assert_eq!(user["user_metadata"], json!({"theme": "dark"}));
    let token = tokens["access_token"].as_str().unwrap();
    let claims = claims_of(token);
    assert_eq!((&claims["is_anonymous"], &claims["amr"][0]["method"]), (&json!(true), &json!("anonymous")));
    assert!(t.actions().await.is_empty());

    let alone = t.put("/auth/v1/user").bearer(token).json(&json!({"password": "correct-horse"})).send().await;
    assert_eq!(alone.rejection(), (422, "validation_failed".into()));
    let both = json!({"email": ADA, "password": "correct-horse"});
    let waiting = t.put("/auth/v1/user").bearer(token).json(&both).send().await.expect(200).json();
    assert_eq!((&waiting["new_email"], &waiting["email"]), (&json!(ADA), &json!("")));
    let link = link_in(t.mail_to(ADA).await.html());
    t.get(link.as_str()).send().await.expect(303).location_fragment("access_token").unwrap();
    let user = t.sign_in(ADA, "correct-horse").await["user"].clone();
    assert_eq!((&user["id"], &user["is_anonymous"]), (&tokens["user"]["id"], &json!(false)));
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
    let tokens = sign_up(&t, json!({})).await.expect(200).json();
    let token = tokens["access_token"].as_str().unwrap();
    let user = t.put("/auth/v1/user").bearer(token).json(&json!({"email": ADA})).send().await.expect(200).json();
    assert_eq!((&user["email"], &user["is_anonymous"]), (&json!(ADA), &json!(false)));
    assert_eq!(user["app_metadata"]["provider"], "email");
    assert!(t.mails().is_empty());
}
