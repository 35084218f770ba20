//! `/invite` and `/admin/generate_link`.

use portico_testkit::{TestServer, claims_of};
use serde_json::{Value, json};

const ADA: &str = "ada@example.com";
const NEW: &str = "countess@example.com";

async fn link(t: &TestServer, body: Value) -> Value {
    t.operator().calls("POST", "admin/generate_link", &body).await.expect(200).json()
}

/// Follows the link. Returns the claims of the session that it leads to.
async fn follow(t: &TestServer, link: &Value) -> Value {
    let landed = t.get(link["action_link"].as_str().unwrap()).send().await.expect(303);
    t.member_of(&landed).claims()
}

#[tokio::test]
async fn an_invited_person_confirms_the_account_by_the_mail() {
    let t = TestServer::start().await;
    let user = t
        .operator()
        .calls("POST", "invite", &json!({"email": "Ada@Example.com", "data": {"team": "red"}}))
        .await
        .expect(200)
        .json();
    assert_eq!((&user["email"], &user["user_metadata"]), (&json!(ADA), &json!({"team": "red"})));
    assert!(user["invited_at"].is_string() && user["confirmation_sent_at"].is_string());
    assert!(user.get("email_confirmed_at").is_none());
    assert_eq!(t.count("select count(*) from auth.users where encrypted_password = ''").await, 1);
    assert_eq!(
        t.count("select count(*) from auth.audit_log_entries where payload->>'action' = 'user_invited'").await,
        1
    );
    let landed = t.visitor(ADA).opens_link().await.expect(303);
    assert_eq!(landed.location_fragment("type").as_deref(), Some("invite"));
    let claims = claims_of(&landed.location_fragment("access_token").unwrap());
    assert_eq!((&claims["email"], &claims["user_metadata"]["team"]), (&json!(ADA), &json!("red")));

    let again = t.operator().calls("POST", "invite", &json!({"email": ADA})).await;
    assert_eq!(again.rejection(), (422, "email_exists".into()));
    for (email, message) in
        [("", "An email address is required"), ("x", "Unable to validate email address: invalid format")]
    {
        let refused = t.operator().calls("POST", "invite", &json!({"email": email})).await;
        assert_eq!((refused.rejection().0, &refused.json()["msg"]), (400, &json!(message)));
    }
}

#[tokio::test]
async fn a_second_invitation_replaces_the_first_and_keeps_its_data() {
    let t = TestServer::start().await;
    t.operator().calls("POST", "invite", &json!({"email": ADA, "data": {"team": "red"}})).await.expect(200);
    let first = t.nth_mail_to(ADA, 0).await;
    t.operator().calls("POST", "invite", &json!({"email": ADA})).await.expect(200);
    let second = t.nth_mail_to(ADA, 1).await;
    let dead = t.get(portico_testkit::link_in(first.html()).as_str()).send().await.expect(303);
    assert_eq!(dead.location_fragment("error_code").as_deref(), Some("otp_expired"));
    let landed = t.get(portico_testkit::link_in(second.html()).as_str()).send().await.expect(303);
    let claims = claims_of(&landed.location_fragment("access_token").unwrap());
    assert_eq!(claims["user_metadata"]["team"], "red");
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
}

#[tokio::test]
async fn an_invitation_keeps_nothing_of_a_stranger_who_claimed_the_address() {
    let t = TestServer::start().await;
    let stranger = json!({"email": ADA, "password": "stranger-password", "data": {"name": "Eve"}});
    t.post("/auth/v1/signup").json(&stranger).send().await.expect(200);
    t.operator().calls("POST", "invite", &json!({"email": ADA, "data": {"name": "Ada"}})).await.expect(200);
    let mail = t.nth_mail_to(ADA, 1).await;
    let landed = t.get(portico_testkit::link_in(mail.html()).as_str()).send().await.expect(303);
    let claims = claims_of(&landed.location_fragment("access_token").unwrap());
    assert_eq!(claims["user_metadata"]["name"], "Ada");
    let sign_in = t.visitor(ADA).with_password("stranger-password").signs_in().await;
    assert_eq!(sign_in.rejection(), (400, "invalid_credentials".into()));
}

#[tokio::test]
async fn a_sign_up_link_creates_the_account_and_confirms_it() {
    let t = TestServer::with_auth(|settings| settings.disable_signup = true).await;
    let body = json!({"type": "signup", "email": ADA, "password": "correct-horse", "data": {"name": "Ada"}});
    let first = link(&t, body.clone()).await;
    assert_eq!((&first["verification_type"], &first["email"]), (&json!("signup"), &json!(ADA)));
    assert_eq!(first["user_metadata"], json!({"name": "Ada"}));
    assert!(first["action_link"].as_str().unwrap().contains("/auth/v1/verify?token="));
    assert!(first["action_link"].as_str().unwrap().contains(first["hashed_token"].as_str().unwrap()));
    assert!(t.mails().is_empty());
    assert_eq!(follow(&t, &first).await["email"], ADA);
    t.visitor(ADA).with_password("correct-horse").signs_in().await.expect(200);
    let confirmed = t.operator().calls("POST", "admin/generate_link", &body).await;
    assert_eq!(confirmed.rejection(), (422, "email_exists".into()));
    for (password, status, code) in [("", 400, "validation_failed"), ("abc", 422, "weak_password")] {
        let body = json!({"type": "signup", "email": NEW, "password": password});
        assert_eq!(
            t.operator().calls("POST", "admin/generate_link", &body).await.rejection(),
            (status, code.to_owned())
        );
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
}

#[tokio::test]
async fn a_second_sign_up_link_brings_its_own_password() {
    let t = TestServer::start().await;
    let stranger = json!({"email": ADA, "password": "stranger-password", "data": {"a": 1}});
    t.post("/auth/v1/signup").json(&stranger).send().await.expect(200);
    let body = json!({"type": "signup", "email": ADA, "password": "correct-horse", "data": {"b": 2}});
    let second = link(&t, body).await;
    assert_eq!((&second["user_metadata"]["a"], &second["user_metadata"]["b"]), (&json!(1), &json!(2)));
    t.visitor(ADA).verifies("signup", second["email_otp"].as_str().unwrap()).await.expect(200);
    let stranger = t.visitor(ADA).with_password("stranger-password").signs_in().await;
    assert_eq!(stranger.rejection(), (400, "invalid_credentials".into()));
    t.visitor(ADA).with_password("correct-horse").signs_in().await.expect(200);
}

#[tokio::test]
async fn invitations_sign_in_links_and_recoveries_lead_into_the_account() {
    let t = TestServer::start().await;
    let invite = link(&t, json!({"type": "invite", "email": ADA, "data": {"team": "red"}})).await;
    assert!(invite["invited_at"].is_string());
    assert_eq!(follow(&t, &invite).await["user_metadata"]["team"], "red");
    assert_eq!(
        t.operator().calls("POST", "admin/generate_link", &json!({"type": "invite", "email": ADA})).await.rejection(),
        (422, "email_exists".into())
    );
    for name in ["magiclink", "recovery"] {
        let by_link = link(&t, json!({"type": name, "email": ADA})).await;
        assert_eq!(by_link["verification_type"], name);
        assert_eq!(follow(&t, &by_link).await["email"], ADA);
        let by_code = link(&t, json!({"type": name, "email": ADA})).await;
        t.visitor(ADA).verifies(name, by_code["email_otp"].as_str().unwrap()).await.expect(200);
        let used = t.visitor(ADA).verifies(name, by_code["email_otp"].as_str().unwrap()).await;
        assert_eq!(used.rejection(), (403, "otp_expired".into()));
        let by_hash = link(&t, json!({"type": name, "email": ADA})).await;
        let body = json!({"type": name, "token_hash": by_hash["hashed_token"]});
        t.post("/auth/v1/verify").json(&body).send().await.expect(200);
    }
    let unknown = link(&t, json!({"type": "magiclink", "email": NEW})).await;
    assert_eq!(unknown["verification_type"], "signup");
    assert_eq!(follow(&t, &unknown).await["email"], NEW);
}

#[tokio::test]
async fn both_links_of_a_change_of_address_are_needed_where_the_settings_demand_it() {
    let t = TestServer::start().await;
    t.account(ADA, "correct-horse").await;
    let body = |name: &str| json!({"type": name, "email": ADA, "new_email": NEW});
    let current = link(&t, body("email_change_current")).await;
    let new = link(&t, body("email_change_new")).await;
    assert_eq!((&new["verification_type"], &new["new_email"]), (&json!("email_change_new"), &json!(NEW)));
    assert!(current["action_link"].as_str().unwrap().contains("type=email_change&"));
    let half = t.get(current["action_link"].as_str().unwrap()).send().await.expect(303);
    assert!(half.location_fragment("message").unwrap().starts_with("Confirmation link accepted"));
    // The hash in the response is the one that is stored
    let body = json!({"type": "email_change", "token_hash": new["hashed_token"]});
    let session = t.post("/auth/v1/verify").json(&body).send().await.expect(200).json();
    assert_eq!(session["user"]["email"], NEW);
}

#[tokio::test]
async fn a_change_of_address_needs_one_link_without_that_setting() {
    let t = TestServer::with_auth(|settings| settings.email.secure_change = false).await;
    t.account(ADA, "correct-horse").await;
    t.account("taken@example.com", "correct-horse").await;
    let request = |name: &str, new: &str| json!({"type": name, "email": ADA, "new_email": new});
    let refused = t.operator().calls("POST", "admin/generate_link", &request("email_change_current", NEW)).await;
    assert_eq!(refused.rejection(), (400, "validation_failed".into()));
    assert_eq!(refused.json()["msg"], "Enable secure email change to generate link for current email");
    for (new, status, code) in [("taken@example.com", 422, "email_exists"), ("", 400, "validation_failed")] {
        let refused = t.operator().calls("POST", "admin/generate_link", &request("email_change_new", new)).await;
        assert_eq!(refused.rejection(), (status, code.to_owned()));
    }
    let new = link(&t, request("email_change_new", NEW)).await;
    t.visitor(NEW).verifies("email_change", new["email_otp"].as_str().unwrap()).await.expect(200);
    assert_eq!(t.count(&format!("select count(*) from auth.users where email = '{NEW}'")).await, 1);
}

#[tokio::test]
async fn links_for_unknown_accounts_and_of_unknown_types_are_rejected() {
    let t = TestServer::start().await;
    for name in ["recovery", "email_change_current", "email_change_new"] {
        let refused = t
            .operator()
            .calls("POST", "admin/generate_link", &json!({"type": name, "email": ADA, "new_email": NEW}))
            .await;
        assert_eq!(refused.rejection(), (404, "user_not_found".into()), "{name}");
        assert_eq!(refused.json()["msg"], "User with this email not found");
    }
    for name in ["phone_change", "", "sms"] {
        let refused = t.operator().calls("POST", "admin/generate_link", &json!({"type": name, "email": ADA})).await;
        assert_eq!(refused.rejection(), (400, "validation_failed".into()));
        assert_eq!(refused.json()["msg"], format!("Invalid email action link type requested: {name}"));
    }
    assert_eq!(
        t.operator().calls("POST", "admin/generate_link", &json!({"type": "signup", "email": "x"})).await.status,
        400
    );
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
}

#[tokio::test]
async fn a_link_leads_to_the_allowed_target_of_the_body_else_of_the_query() {
    let t = TestServer::with_auth(|settings| settings.redirect_allow_list.push("https://app.example/**".into())).await;
    t.account(ADA, "correct-horse").await;
    let target = async |query: &str, body: &str| {
        let body = json!({"type": "magiclink", "email": ADA, "redirect_to": body});
        let response =
            t.operator().calls("POST", &format!("admin/generate_link{query}"), &body).await.expect(200).json();
        let link = response["action_link"].as_str().unwrap().to_owned();
        assert!(link.ends_with(&format!("&redirect_to={}", response["redirect_to"].as_str().unwrap())), "{link}");
        response["redirect_to"].as_str().unwrap().to_owned()
    };
    assert_eq!(target("", "https://app.example/in").await, "https://app.example/in");
    assert_eq!(target("?redirect_to=https://app.example/q", "https://evil.example/in").await, "https://app.example/q");
    let site = target("", "https://evil.example/in").await;
    assert_eq!(site, target("", "").await);
    assert!(!site.contains("evil"));
}
