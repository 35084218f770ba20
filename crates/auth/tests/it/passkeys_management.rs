//! The rules for adding passkeys, and the list that its owner manages.

use portico_mail::MailKind;
use portico_testkit::{Member, TestResponse, TestServer, link_in};
use serde_json::{Value, json};
use time::Duration;

use crate::authenticator::{Authenticator, with_passkeys};
use crate::passkeys::{
    ADA, begin_registration, challenge_response, complete_registration, register, server, sign_in,
    try_to_begin_registration,
};

const EVE: &str = "eve@example.com";

async fn list(member: &Member<'_>) -> Value {
    member.sends(member.server().get("/auth/v1/passkeys")).send().await.expect(200).json()
}

async fn rename(member: &Member<'_>, id: &str, body: &Value) -> TestResponse {
    let path = format!("/auth/v1/passkeys/{id}");
    member.sends(member.server().request(http::Method::PATCH, &path)).json(body).send().await
}

async fn delete(member: &Member<'_>, id: &str) -> TestResponse {
    member.sends(member.server().delete(&format!("/auth/v1/passkeys/{id}"))).send().await
}

#[tokio::test]
async fn the_owner_lists_renames_and_deletes_passkeys() {
    let t = server().await;
    let ada = t.member(ADA).await;
    let eve = t.member(EVE).await;
    assert_eq!(list(&ada).await, json!([]));
    let (mut phone, mut key) = (Authenticator::new(), Authenticator::new());
    let first = register(&ada, &mut phone).await;
    t.clock().advance(Duration::seconds(1));
    let second = register(&ada, &mut key).await;
    assert_eq!(first["friendly_name"], "Passkey");
    assert_eq!(list(&ada).await, json!([first, second]), "oldest first, and never used");
    t.clock().advance(Duration::seconds(1));
    sign_in(&t, &key).await.expect(200);
    let used = list(&ada).await;
    assert!(used[0].get("last_used_at").is_none() && used[1]["last_used_at"].is_string());
    assert_eq!(list(&eve).await, json!([]));

    let id = first["id"].as_str().unwrap();
    let name = "é".repeat(60);
    let renamed = rename(&ada, id, &json!({"friendly_name": name})).await.expect(200).json();
    assert_eq!((&renamed["id"], &renamed["friendly_name"]), (&first["id"], &json!(name)));
    for (body, text) in [
        (json!({}), "friendly_name is required"),
        (json!({"friendly_name": ""}), "friendly_name is required"),
        (json!({"friendly_name": format!("{name}x")}), "friendly_name must be 120 characters or less"),
    ] {
        let response = rename(&ada, id, &body).await;
        assert_eq!(response.rejection(), (400, "validation_failed".into()));
        assert_eq!(response.json()["msg"], text);
    }
    let body = json!({"friendly_name": "Mine"});
    for (member, id) in [(&eve, id), (&ada, "x"), (&ada, "6f0c0c3e-65b5-4f3c-8a4c-6b8d54b3f1a0")] {
        for response in [rename(member, id, &body).await, delete(member, id).await] {
            assert_eq!(response.rejection(), (404, "validation_failed".into()), "{id}");
            assert_eq!(response.json()["msg"], "Passkey not found");
        }
    }
    assert_eq!(list(&ada).await[0]["friendly_name"], name);

    let deleted = delete(&ada, id).await.expect(204);
    assert!(deleted.body.is_empty());
    assert_eq!(list(&ada).await.as_array().unwrap().len(), 1);
    sign_in(&t, &phone).await.expect(400);
    // The last one can be deleted too, and sessions that it began stay
    let ada = ada.with_session_of(sign_in(&t, &key).await);
    delete(&ada, second["id"].as_str().unwrap()).await.expect(204);
    assert_eq!(list(&ada).await, json!([]));
    let actions: Vec<String> = t.actions().await.into_iter().filter(|action| action.starts_with("passkey")).collect();
    let expected = ["passkey_created", "passkey_created", "passkey_updated", "passkey_deleted", "passkey_deleted"];
    assert_eq!(actions, expected);
}

#[tokio::test]
async fn the_number_of_passkeys_is_limited() {
    let t = TestServer::with_auth(|settings| {
        with_passkeys(settings);
        settings.passkeys.max_per_user = 2;
    })
    .await;
    let ada = t.member(ADA).await;
    register(&ada, &mut Authenticator::new()).await;
    // Three registrations that began below the limit are completed at the same time
    let mut bodies = Vec::new();
    for _ in 0..3 {
        let begun = begin_registration(&ada).await;
        let credential = Authenticator::new().create(&begun["options"]);
        bodies.push(challenge_response(&begun, &credential));
    }
    let (one, two, three) = tokio::join!(
        complete_registration(&ada, &bodies[0]),
        complete_registration(&ada, &bodies[1]),
        complete_registration(&ada, &bodies[2])
    );
    let mut statuses = [one.status, two.status, three.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 422, 422]);
    let refused = [one, two, three].into_iter().find(|response| response.status == 422).unwrap();
    assert_eq!(refused.rejection().1, "too_many_passkeys");
    let full = try_to_begin_registration(&ada).await;
    assert_eq!(full.rejection(), (422, "too_many_passkeys".into()));
    assert_eq!(full.json()["msg"], "Maximum number of passkeys reached");
    assert_eq!(t.count("select count(*) from auth.webauthn_credentials").await, 2);
}

#[tokio::test]
async fn a_person_with_a_second_factor_manages_passkeys_with_it() {
    let t = server().await;
    let ada = t.member(ADA).await;
    let mut authenticator = Authenticator::new();
    let passkey = register(&ada, &mut authenticator).await;
    let id = passkey["id"].as_str().unwrap();
    let begun = begin_registration(&ada).await;
    let factor = "insert into auth.mfa_factors (id, user_id, factor_type, status, created_at, updated_at)
                  select gen_random_uuid(), id, 'totp', 'verified', now(), now() from auth.users";
    t.execute(factor).await;
    let credential = Authenticator::new().create(&begun["options"]);
    let body = challenge_response(&begun, &credential);
    let verify = || complete_registration(&ada, &body);
    for response in [try_to_begin_registration(&ada).await, verify().await, delete(&ada, id).await] {
        assert_eq!(response.rejection(), (403, "insufficient_aal".into()));
        assert_eq!(response.json()["msg"], "AAL2 session is required to manage passkeys when MFA is enabled");
    }
    rename(&ada, id, &json!({"friendly_name": "Mine"})).await.expect(200);
    t.execute("update auth.sessions set aal = 'aal2'").await;
    verify().await.expect(200);
    delete(&ada, id).await.expect(204);
}

#[tokio::test]
async fn guests_and_accounts_of_single_sign_on_cannot_add_passkeys() {
    let t = TestServer::with_auth(|settings| {
        with_passkeys(settings);
        settings.anonymous_users = true;
    })
    .await;
    let guest = t.anonymous_member().await;
    let refused = try_to_begin_registration(&guest).await;
    assert_eq!(refused.rejection(), (403, "no_authorization".into()));
    assert_eq!(list(&guest).await, json!([]));
    let ada = t.member(ADA).await;
    t.execute("update auth.users set is_sso_user = true where email is not null").await;
    let refused = try_to_begin_registration(&ada).await;
    assert_eq!(refused.rejection(), (422, "validation_failed".into()));
    assert_eq!(refused.json()["msg"], "SSO users cannot register passkeys");
    let unsigned = t.post("/auth/v1/passkeys/registration/options").json(&json!({})).send().await;
    assert_eq!(unsigned.rejection(), (401, "no_authorization".into()));
}

#[tokio::test]
async fn the_settings_show_whether_passkeys_are_enabled() {
    for enabled in [true, false] {
        let t = TestServer::with_auth(|settings| settings.passkeys.enabled = enabled).await;
        assert_eq!(t.get("/auth/v1/settings").send().await.expect(200).json()["passkeys_enabled"], enabled);
    }
}

#[tokio::test]
async fn the_owner_of_an_address_does_not_inherit_the_passkeys_of_an_intruder() {
    let t = server().await;
    // An account that has proved a number only, and claims the address
    let ada = t.member(ADA).await;
    let mut intruder = Authenticator::new();
    register(&ada, &mut intruder).await;
    t.execute("update auth.users set email_confirmed_at = null, phone = '15550001111', phone_confirmed_at = now()")
        .await;
    t.post("/auth/v1/recover").json(&json!({"email": ADA})).send().await.expect(200);
    t.get(link_in(t.nth_mail_to(ADA, 1).await.html()).as_str()).send().await.expect(303);
    assert_eq!(t.count("select count(*) from auth.users where email_confirmed_at is not null").await, 1);
    assert_eq!(t.count("select count(*) from auth.webauthn_credentials").await, 0);
    sign_in(&t, &intruder).await.expect(400);
}

#[tokio::test]
async fn an_added_or_removed_passkey_is_reported_by_email() {
    let t = TestServer::with_auth(|settings| {
        with_passkeys(settings);
        settings.email.notifications = vec![MailKind::PasskeyAdded, MailKind::PasskeyRemoved];
    })
    .await;
    let ada = t.member(ADA).await;
    let before = t.mails_to(ADA).len();
    let passkey = register(&ada, &mut Authenticator::new()).await;
    let id = passkey["id"].as_str().unwrap();
    assert!(t.nth_mail_to(ADA, before).await.html().contains("passkey was added"));
    rename(&ada, id, &json!({"friendly_name": "Blue key"})).await.expect(200);
    delete(&ada, id).await.expect(204);
    let removed = t.nth_mail_to(ADA, before + 1).await;
    assert!(removed.html().contains("passkey was removed") && removed.html().contains("Blue key"));
}

#[tokio::test]
async fn administrators_list_and_delete_passkeys_also_while_these_are_disabled() {
    let t = TestServer::start().await;
    let ada = t.member(ADA).await;
    let eve = t.member(EVE).await;
    let insert = "insert into auth.webauthn_credentials (user_id, credential_id, public_key, friendly_name)
                  select id, 'one', 'two', 'Blue key' from auth.users where email = $1 returning id::text";
    let id: String = t.query_with(insert, &[&ADA]).await[0].get(0);
    let of = |member: &Member<'_>| format!("/auth/v1/admin/users/{}/passkeys", member.id());
    let one = |member: &Member<'_>| format!("{}/{}", of(member), id);
    let secret = t.api_keys().secret().to_owned();
    let get = async |path: &str| t.get(path).key(&secret).send().await;
    let listed = get(&of(&ada)).await.expect(200).json();
    assert_eq!((&listed[0]["id"], &listed[0]["friendly_name"]), (&json!(id), &json!("Blue key")));
    assert_eq!(get(&of(&eve)).await.expect(200).json(), json!([]));
    let unknown = "/auth/v1/admin/users/6f0c0c3e-65b5-4f3c-8a4c-6b8d54b3f1a0/passkeys";
    assert_eq!(get(unknown).await.rejection(), (404, "user_not_found".into()));
    assert_eq!(get("/auth/v1/admin/users/x/passkeys").await.rejection(), (404, "validation_failed".into()));
    for path in [&one(&eve), &format!("{}/x", of(&ada))] {
        let response = t.delete(path).key(&secret).send().await;
        assert_eq!(response.rejection(), (404, "validation_failed".into()));
        assert_eq!(response.json()["msg"], "Passkey not found");
    }
    let by_user = t.delete(&one(&ada)).bearer(ada.access_token()).send().await;
    assert_eq!(by_user.rejection(), (403, "not_admin".into()));
    assert_eq!(t.get(&of(&ada)).send().await.rejection(), (401, "no_authorization".into()));
    t.delete(&one(&ada)).key(&secret).send().await.expect(204);
    assert_eq!(get(&of(&ada)).await.expect(200).json(), json!([]));
    let entry = "select payload->>'actor_id', payload->>'actor_username', payload->'traits'->>'user_id', payload->'traits'->>'passkey_id'
                   from auth.audit_log_entries where payload->>'action' = 'passkey_deleted'";
    let entry = &t.query(entry).await[0];
    let texts: Vec<&str> = (0..4).map(|at| entry.get(at)).collect();
    let user_id = ada.id();
    let expected = ["00000000-0000-0000-0000-000000000000", "service_role", user_id, &id];
    assert_eq!(texts, expected);
}
