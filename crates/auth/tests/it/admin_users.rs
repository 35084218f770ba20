//! `/admin/users` and `/admin/audit`.

use portico_testkit::{TestResponse, TestServer};
use serde_json::{Value, json};
use time::Duration;

const ADA: &str = "ada@example.com";

pub(crate) async fn create(t: &TestServer, body: Value) -> Value {
    t.operator().calls("POST", "admin/users", &body).await.expect(200).json()
}

pub(crate) fn id_of(user: &Value) -> &str {
    user["id"].as_str().unwrap()
}

#[tokio::test]
async fn a_created_account_has_the_given_attributes_and_gets_no_mail() {
    let t = TestServer::start().await;
    let id = "11111111-1111-4111-8111-111111111111";
    let user = create(
        &t,
        json!({
            "id": id, "email": " Ada@Example.com", "phone": "+491700000001", "password": "abc", "role": "service_role",
            "email_confirm": true, "phone_confirm": true, "ban_duration": "24h",
            "user_metadata": {"full_name": "Ada"}, "app_metadata": {"plan": "pro", "provider": null},
        }),
    )
    .await;
    assert_eq!(id_of(&user), id);
    assert_eq!((&user["email"], &user["phone"]), (&json!(ADA), &json!("491700000001")));
    assert_eq!((&user["role"], &user["aud"]), (&json!("service_role"), &json!("authenticated")));
    assert_eq!(user["user_metadata"], json!({"full_name": "Ada", "email_verified": true}));
    assert_eq!(user["app_metadata"], json!({"providers": ["email", "phone"], "plan": "pro"}));
    for time in ["email_confirmed_at", "phone_confirmed_at", "confirmed_at", "banned_until"] {
        assert!(user[time].is_string(), "{time}");
    }
    let claims = |provider: &str| {
        let identities = user["identities"].as_array().unwrap();
        identities.iter().find(|one| one["provider"] == provider).unwrap()["identity_data"].clone()
    };
    let verified = json!({"email_verified": false, "phone_verified": false});
    for (contact, value) in [("email", ADA), ("phone", "491700000001")] {
        let mut expected = verified.clone();
        expected["sub"] = id.into();
        expected[contact] = value.into();
        assert_eq!(claims(contact), expected);
    }
    assert_eq!(t.operator().calls("GET", &format!("admin/users/{id}"), &Value::Null).await.expect(200).json(), user);
    assert!(t.mails().is_empty());
    assert_eq!(t.visitor(ADA).with_password("abc").signs_in().await.rejection(), (400, "user_banned".into()));
    t.operator().calls("PUT", &format!("admin/users/{id}"), &json!({"ban_duration": "none"})).await.expect(200);
    t.visitor(ADA).with_password("abc").signs_in().await.expect(200);
}

#[tokio::test]
async fn an_account_without_a_password_or_with_a_foreign_hash_can_be_created() {
    let t = TestServer::start().await;
    let plain = create(&t, json!({"email": "bare@example.com"})).await;
    assert!(plain.get("email_confirmed_at").is_none());
    assert_eq!(
        t.visitor("bare@example.com").with_password("").signs_in().await.rejection(),
        (400, "invalid_credentials".into())
    );
    for (number, hash) in [
        "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
        "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHRzYWx0$lHyZGcXNFP2U5sVqTMtZIrpvCAEDAy1t",
    ]
    .into_iter()
    .enumerate()
    {
        let email = format!("imported-{number}@example.com");
        create(&t, json!({"email": email, "password_hash": hash, "email_confirm": true})).await;
        let response = t.visitor(&email).with_password("U*U").signs_in().await;
        // The second hash is of another password: it is accepted and does not match
        assert_eq!(response.status == 200, number == 0, "{response:?}");
    }
}

#[tokio::test]
async fn creation_is_rejected_in_the_order_of_the_contract() {
    let t = TestServer::start().await;
    t.account("taken@example.com", "correct-horse").await;
    create(&t, json!({"phone": "491700000001"})).await;
    // Each body carries the mistakes that are found later
    let late = json!({"password": "x".repeat(73), "password_hash": "y", "id": "z", "ban_duration": "10d"});
    let with = |more: Value| {
        let mut body = late.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let both = "Only a password or a password hash should be provided";
    for (body, status, code, message) in [
        (late.clone(), 400, "validation_failed", "Cannot create a user without either an email or phone"),
        (with(json!({"email": "x"})), 400, "validation_failed", "Unable to validate email address: invalid format"),
        (
            with(json!({"email": "taken@example.com", "phone": "x"})),
            422,
            "email_exists",
            "A user with this email address has already been registered",
        ),
        (
            with(json!({"email": ADA, "phone": "x"})),
            400,
            "validation_failed",
            "Invalid phone number format (E.164 required)",
        ),
        (
            with(json!({"email": ADA, "phone": "491700000001"})),
            422,
            "phone_exists",
            "Phone number already registered by another user",
        ),
        (with(json!({"email": ADA})), 400, "validation_failed", both),
        (
            json!({"email": ADA, "password": "x".repeat(73), "id": "z"}),
            400,
            "validation_failed",
            "bcrypt: password length exceeds 72 bytes",
        ),
        (json!({"email": ADA, "password_hash": "y", "id": "z"}), 500, "unexpected_failure", "Error creating user"),
        (
            json!({"email": ADA, "id": "z", "ban_duration": "10d"}),
            400,
            "validation_failed",
            "ID must conform to the uuid v4 format",
        ),
        (
            json!({"email": ADA, "id": "00000000-0000-0000-0000-000000000000"}),
            400,
            "validation_failed",
            "ID cannot be a nil uuid",
        ),
        (
            json!({"email": ADA, "ban_duration": "10d"}),
            400,
            "validation_failed",
            "invalid format for ban duration: time: unknown unit \"d\" in duration \"10d\"",
        ),
        (json!({"email": ADA, "role": "x".repeat(256)}), 400, "validation_failed", "The role is too long"),
    ] {
        let refused = t.operator().calls("POST", "admin/users", &body).await;
        assert_eq!(refused.rejection(), (status, code.to_owned()), "{body}");
        assert_eq!(refused.json()["msg"], message);
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 2);
    assert_eq!(t.operator().calls("POST", "admin/users", &Value::Null).await.rejection(), (400, "bad_json".into()));
}

#[tokio::test]
async fn two_concurrent_creations_of_one_address_create_one_account() {
    let t = TestServer::start().await;
    let body = json!({"email": ADA, "phone": "491700000001", "password": "abc"});
    let responses =
        futures_util::future::join_all((0..6).map(|_| t.operator().calls("POST", "admin/users", &body))).await;
    assert_eq!(responses.iter().filter(|response| response.status == 200).count(), 1, "{responses:?}");
    assert!(responses.iter().all(|response| [200, 422].contains(&response.status)), "{responses:?}");
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
    assert_eq!(t.count("select count(*) from auth.identities").await, 2);
    assert_eq!(t.count("select count(*) from auth.audit_log_entries").await, 1);
}

#[tokio::test]
async fn a_change_of_the_password_ends_sessions_and_messages() {
    let t = TestServer::start().await;
    let member = t.member(ADA).await;
    t.post("/auth/v1/recover").json(&json!({"email": ADA})).send().await.expect(200);
    let path = format!("admin/users/{}", member.id());
    for (password, code) in [("abc", "weak_password"), ("", "weak_password")] {
        let refused = t.operator().calls("PUT", &path, &json!({"password": password})).await;
        assert_eq!(refused.rejection(), (422, code.into()));
    }
    t.operator().calls("PUT", &path, &json!({"password": "battery-staple"})).await.expect(200);
    assert_eq!(member.reads_account().await.rejection(), (403, "session_not_found".into()));
    assert_eq!(t.count("select count(*) from auth.one_time_tokens").await, 0);
    assert_eq!(t.count("select count(*) from auth.users where recovery_token = ''").await, 1);
    t.visitor(ADA).with_password("battery-staple").signs_in().await.expect(200);
}

#[tokio::test]
async fn contacts_metadata_and_bans_change_at_once() {
    let t = TestServer::start().await;
    let member = t.member(ADA).await;
    t.post("/auth/v1/recover").json(&json!({"email": ADA})).send().await.expect(200);
    let path = format!("admin/users/{}", member.id());
    let put = async |body: Value| t.operator().calls("PUT", &path, &body).await.expect(200).json();
    let user = put(json!({
        "email": "Countess@Example.com", "email_confirm": true, "phone": "491700000001", "role": "editor",
        "user_metadata": {"name": "Ada", "email_verified": null}, "app_metadata": {"plan": "pro"},
        "id": "11111111-1111-4111-8111-111111111111", "aud": "others",
    }))
    .await;
    assert_eq!((&user["email"], &user["phone"]), (&json!("countess@example.com"), &json!("491700000001")));
    assert_eq!((user["id"].as_str().unwrap(), &user["aud"]), (member.id(), &json!("authenticated")));
    assert_eq!(user["role"], "editor");
    assert_eq!(user["user_metadata"]["name"], "Ada");
    assert!(user["user_metadata"].get("email_verified").is_none());
    assert_eq!((&user["app_metadata"]["plan"], &user["app_metadata"]["provider"]), (&json!("pro"), &json!("email")));
    assert_eq!(user["app_metadata"]["providers"].as_array().unwrap().len(), 2);
    let claims = |provider: &str| {
        let identities = user["identities"].as_array().unwrap().iter();
        identities.clone().find(|one| one["provider"] == provider).unwrap()["identity_data"].clone()
    };
    assert_eq!(claims("email")["email"], "countess@example.com");
    assert_eq!(claims("email")["email_verified"], true);
    assert_eq!(claims("phone")["phone_verified"], false);
    // The link that went to the address before is no way into the account any more
    assert_eq!(t.count("select count(*) from auth.one_time_tokens").await, 0);
    t.visitor("countess@example.com").with_password("correct horse").signs_in().await.expect(200);

    let banned = put(json!({"ban_duration": "1h"})).await;
    assert!(banned["banned_until"].is_string());
    assert_eq!(member.reads_account().await.rejection(), (403, "user_banned".into()));
    t.clock().advance(Duration::minutes(61));
    t.visitor("countess@example.com").with_password("correct horse").signs_in().await.expect(200);
    let unchanged = put(json!({"email_confirm": false, "phone_confirm": false, "app_metadata": {"plan": null}})).await;
    assert!(unchanged["email_confirmed_at"].is_string() && unchanged.get("phone_confirmed_at").is_none());
    assert!(unchanged["app_metadata"].get("plan").is_none());
}

#[tokio::test]
async fn a_rejected_change_changes_nothing() {
    let t = TestServer::start().await;
    t.account("taken@example.com", "correct-horse").await;
    let member = t.member(ADA).await;
    let path = format!("admin/users/{}", member.id());
    let body = json!({"email": "taken@example.com", "user_metadata": {"name": "Eve"}, "password": "battery-staple"});
    let refused = t.operator().calls("PUT", &path, &body).await;
    // An error of the database, with its code for older clients
    assert_eq!((refused.status, &refused.json()["code"]), (500, &json!("23505")));
    let key = t.api_keys().secret();
    let newer = t.put(&format!("/auth/v1/{path}")).key(key).header("x-supabase-api-version", "2024-01-01");
    let newer = newer.json(&body).send().await;
    assert_eq!(newer.expect(500).json(), json!({"code": "unexpected_failure", "message": "Error updating user"}));
    let user = member.reads_account().await.expect(200).json();
    assert!(user["user_metadata"].get("name").is_none());
    assert_eq!(
        t.count("select count(*) from auth.audit_log_entries where payload->>'action' = 'user_modified'").await,
        0
    );
    t.visitor(ADA).with_password("correct horse").signs_in().await.expect(200);
}

#[tokio::test]
async fn an_anonymous_account_becomes_permanent_with_a_confirmed_contact_only() {
    let t = TestServer::with_auth(|settings| settings.anonymous_users = true).await;
    let session = t.post("/auth/v1/signup").json(&json!({})).send().await.expect(200).json();
    let path = format!("admin/users/{}", id_of(&session["user"]));
    let put = async |body: Value| t.operator().calls("PUT", &path, &body).await.expect(200).json();
    assert_eq!(put(json!({"email": ADA})).await["is_anonymous"], true);
    assert_eq!(put(json!({"email": ADA, "email_confirm": true})).await["is_anonymous"], false);
}

#[tokio::test]
async fn unknown_accounts_and_odd_ids_are_not_found() {
    let t = TestServer::start().await;
    for (id, code, message) in [
        ("x", "validation_failed", "user_id must be an UUID"),
        ("11111111-1111-4111-8111-111111111111", "user_not_found", "User not found"),
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            let body = if method == "PUT" { json!({"email": "nonsense"}) } else { Value::Null };
            let refused = t.operator().calls(method, &format!("admin/users/{id}"), &body).await;
            assert_eq!(refused.rejection(), (404, code.into()), "{method} {id}");
            assert_eq!(refused.json()["msg"], message);
        }
    }
}

#[tokio::test]
async fn a_deletion_removes_everything_of_the_account() {
    let t = TestServer::start().await;
    let member = t.member(ADA).await;
    t.execute("create table public.notes (owner uuid references auth.users on delete cascade)").await;
    t.execute(&format!("insert into public.notes values ('{}')", member.id())).await;
    let path = format!("admin/users/{}", member.id());
    assert_eq!(t.operator().calls("DELETE", &path, &Value::Null).await.expect(200).json(), json!({}));
    for table in ["auth.users", "auth.identities", "auth.sessions", "auth.refresh_tokens", "public.notes"] {
        assert_eq!(t.count(&format!("select count(*) from {table}")).await, 0, "{table}");
    }
    assert_eq!(t.operator().calls("DELETE", &path, &Value::Null).await.rejection(), (404, "user_not_found".into()));
}

#[tokio::test]
async fn a_soft_deletion_keeps_the_row_and_nothing_of_the_person() {
    let t = TestServer::start().await;
    let member = t.member(ADA).await;
    t.execute("create table public.notes (owner uuid references auth.users on delete cascade)").await;
    t.execute(&format!("insert into public.notes values ('{}')", member.id())).await;
    t.post("/auth/v1/recover").json(&json!({"email": ADA})).send().await.expect(200);
    let path = format!("admin/users/{}", member.id());
    let delete = async || t.operator().calls("DELETE", &path, &json!({"should_soft_delete": true})).await;
    assert_eq!(delete().await.expect(200).json(), json!({}));
    let row = t.operator().calls("GET", &path, &Value::Null).await.expect(200).json();
    let hidden = |text: &str| {
        use base64::Engine as _;
        let digest = portico_base::hash::sha256(format!("{}{text}", member.id()).as_bytes());
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(digest)
    };
    assert_eq!(row["email"], hidden(ADA));
    assert_eq!(row["phone"], hidden("")[..15]);
    assert_eq!((&row["user_metadata"], &row["app_metadata"]), (&json!({}), &json!({})));
    assert!(row["deleted_at"].is_string());
    let identity = &row["identities"][0];
    assert_eq!(identity["id"], hidden(&format!("email:{}", member.id())));
    assert!(identity.get("identity_data").is_none() && identity.get("email").is_none());
    for table in ["auth.sessions", "auth.refresh_tokens", "auth.one_time_tokens"] {
        assert_eq!(t.count(&format!("select count(*) from {table}")).await, 0, "{table}");
    }
    assert_eq!(t.count("select count(*) from public.notes").await, 1);
    assert_eq!(t.count("select count(*) from auth.users where encrypted_password is null").await, 1);
    assert_eq!(member.reads_account().await.rejection(), (403, "session_not_found".into()));
    assert_eq!(
        t.visitor(ADA).with_password("correct horse").signs_in().await.rejection(),
        (400, "invalid_credentials".into())
    );
    // A second one changes nothing, and the address is free
    delete().await.expect(200);
    assert_eq!(t.operator().calls("GET", &path, &Value::Null).await.expect(200).json(), row);
    assert_eq!(
        t.count("select count(*) from auth.audit_log_entries where payload->>'action' = 'user_deleted'").await,
        2
    );
    t.member(ADA).await;
    assert_eq!(t.count("select count(*) from auth.users").await, 2);
}

#[tokio::test]
async fn a_deletion_that_the_application_forbids_leaves_the_account() {
    let t = TestServer::start().await;
    let member = t.member(ADA).await;
    t.execute("create table public.orders (customer uuid references auth.users)").await;
    t.execute(&format!("insert into public.orders values ('{}')", member.id())).await;
    let refused = t.operator().calls("DELETE", &format!("admin/users/{}", member.id()), &Value::Null).await;
    assert_eq!((refused.status, &refused.json()["code"]), (500, &json!("23503")));
    assert_eq!(
        t.count("select count(*) from auth.audit_log_entries where payload->>'action' = 'user_deleted'").await,
        0
    );
    member.reads_account().await.expect(200);
}

#[tokio::test]
async fn actions_of_administrators_are_in_the_audit_log() {
    let t = TestServer::start().await;
    let user = create(&t, json!({"email": ADA, "password": "correct-horse", "email_confirm": true})).await;
    t.clock().advance(Duration::minutes(1));
    t.operator().calls("PUT", &format!("admin/users/{}", id_of(&user)), &json!({"role": "editor"})).await.expect(200);
    t.clock().advance(Duration::minutes(1));
    t.visitor(ADA).with_password("correct-horse").signs_in().await.expect(200);
    t.clock().advance(Duration::minutes(1));
    t.operator().calls("DELETE", &format!("admin/users/{}", id_of(&user)), &json!({})).await.expect(200);

    let audit = async |query: &str| t.operator().calls("GET", &format!("admin/audit?{query}"), &Value::Null).await;
    let actions = |response: &TestResponse| {
        let entries = response.json().as_array().unwrap().clone();
        entries.iter().map(|entry| entry["payload"]["action"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = audit("").await.expect(200);
    assert_eq!(actions(&all), ["user_deleted", "login", "user_modified", "user_signedup"]);
    assert_eq!(all.header("x-total-count"), Some("4"));
    let payload = all.json()[0]["payload"].clone();
    assert_eq!(payload["actor_id"], "00000000-0000-0000-0000-000000000000");
    assert_eq!(payload["actor_username"], "service_role");
    assert_eq!(payload["log_type"], "team");
    assert_eq!(payload["traits"], json!({"user_id": user["id"], "user_email": ADA, "user_phone": ""}));
    let page = audit("page=2&per_page=3").await.expect(200);
    assert_eq!(actions(&page), ["user_signedup"]);
    assert_eq!(page.header("link"), Some(r#"</admin/audit?page=2&per_page=3>; rel="last""#));
    assert_eq!(actions(&audit("query=author:ADA").await), ["login"]);
    assert_eq!(actions(&audit("query=action:_deleted").await), ["user_deleted"]);
    assert_eq!(actions(&audit("query=type:user").await), ["user_modified"]);
    for query in ["query=actor:x", "query=author", "query=:x"] {
        assert_eq!(audit(query).await.rejection(), (400, "validation_failed".into()), "{query}");
    }
    assert_eq!(audit("query=actor:x").await.json()["msg"], "Invalid query scope: actor");
}
