//! A token carries an address only after its owner has proved it, and the claim to an address leads
//! into no account.

use portico_auth::AuthSettings;
use portico_testkit::{GooglePerson, Member, TestServer, code_in, link_in};
use serde_json::json;

use crate::id_token::id_token;
use crate::misbehaving::{Provider, begin, return_from_provider, server_and};

const PASSWORD: &str = "correct horse";
const ADA: &str = "ada@example.com";
const PHONE: &str = "15550001111";
const CLAIMS_ADA: GooglePerson<'static> = GooglePerson::Unverified { name: "Eve", email: ADA };
const IS_ADA: GooglePerson<'static> = GooglePerson::Verified { name: "Ada L", email: ADA };

async fn server(change: impl FnOnce(&mut AuthSettings)) -> TestServer {
    TestServer::with_auth(|auth| {
        auth.manual_linking = true;
        auth.anonymous_users = true;
        auth.sms.enabled = true;
        auth.sms.max_frequency = std::time::Duration::ZERO;
        change(auth);
    })
    .await
}

/// Returns the addresses in the access token of a member.
#[track_caller]
fn contacts(person: &Member<'_>) -> (String, String) {
    let claims = person.claims();
    (claims["email"].as_str().unwrap().to_owned(), claims["phone"].as_str().unwrap().to_owned())
}

/// Signs up with a number, which needs no confirmation.
async fn eve_by_phone(t: &TestServer) -> Member<'_> {
    t.member_with(t.visitor_with_phone(PHONE).signs_up().await.expect(200).json())
}

/// Signs in with Google.
fn pair(email: &str, phone: &str) -> (String, String) {
    (email.to_owned(), phone.to_owned())
}

#[tokio::test]
async fn a_token_has_the_addresses_that_are_confirmed() {
    let t = server(|auth| auth.sms.autoconfirm = true).await;
    assert_eq!(contacts(&t.anonymous_member().await), pair("", ""));
    let mut eve = eve_by_phone(&t).await;
    assert_eq!(contacts(&eve), pair("", PHONE));
    assert_eq!(contacts(&t.member(ADA).await), pair(ADA, ""));

    // A change counts when it is confirmed
    eve.changes_account(&json!({"email": "new@example.com"})).await.expect(200);
    eve.refreshes().await.expect(200);
    assert_eq!(contacts(&eve), pair("", PHONE));
    let code = code_in(t.mail_to("new@example.com").await.html());
    let changed = t.visitor("new@example.com").verifies("email_change", &code).await.expect(200).json();
    assert_eq!(contacts(&t.member_with(changed)), pair("new@example.com", PHONE));

    // Rows of other servers may name what was never confirmed
    t.execute("update auth.users set email_confirmed_at = null, phone_confirmed_at = null").await;
    eve.refreshes().await.expect(200);
    assert_eq!(contacts(&eve), pair("", ""));
    assert_eq!(eve.session()["user"]["email"], "new@example.com", "the account shows it");
}

#[tokio::test]
async fn without_confirmations_an_address_counts_from_the_sign_up() {
    let t = server(|auth| auth.email.autoconfirm = true).await;
    let eve = t.member_with(t.visitor("eve@example.com").signs_up().await.json());
    assert_eq!(contacts(&eve).0, "eve@example.com");
    let mut bob = t.anonymous_member().await;
    bob.changes_account(&json!({"email": "bob@example.com"})).await.expect(200);
    bob.refreshes().await.expect(200);
    assert_eq!(contacts(&bob).0, "bob@example.com");
    // That of a provider as well, while it is free
    let ada = t.google().signed_in(CLAIMS_ADA).await;
    assert_eq!(contacts(&ada).0, ADA);
    let user = ada.account().await;
    assert_eq!(user["identities"][0]["identity_data"]["email_verified"], false, "the provider's own word");
}

#[tokio::test]
async fn an_unverified_address_never_leads_into_an_account_whatever_the_confirmations() {
    for autoconfirm in [false, true] {
        for account_is_confirmed in [false, true] {
            let t = server(|auth| auth.email.autoconfirm = autoconfirm).await;
            t.visitor(ADA).signs_up().await.expect(200);
            let at = if account_is_confirmed { "now()" } else { "null" };
            t.execute(&format!("update auth.users set email_confirmed_at = {at}")).await;
            let before = t.count("select count(*) from auth.sessions").await;
            let response = t.google().sign_in(CLAIMS_ADA).await.expect(302);
            let code = response.location_query("error_code");
            assert_eq!(code.as_deref(), Some("provider_email_needs_verification"), "{response:?}");
            assert_eq!(t.count("select count(*) from auth.sessions").await, before);
            let linked = "select count(*) from auth.identities
                           where provider = 'google' and user_id in (select id from auth.users where email = 'ada@example.com')";
            assert_eq!(t.count(linked).await, 0);
            let mut kinds = t.query("select provider from auth.identities order by 1").await;
            // With confirmations an unconfirmed sign-up has no more right to the address than the
            // provider's person
            let waits = !autoconfirm && !account_is_confirmed;
            kinds.retain(|row| row.get::<_, &str>(0) != "email");
            assert_eq!(kinds.len(), usize::from(waits));
        }
    }
}

#[tokio::test]
async fn an_id_token_with_an_unverified_address_never_leads_into_an_account() {
    let provider = Provider::start().await;
    let t = server_and("google", &provider, |auth| auth.email.autoconfirm = true).await;
    t.visitor(ADA).signs_up().await.expect(200);
    let mut claims = provider.claims(&t, None);
    claims["email_verified"] = false.into();
    let body = json!({"provider": "google", "id_token": provider.key.sign(&claims)});
    let refused = id_token(&t, &body).await;
    assert_eq!(refused.rejection(), (422, "provider_email_needs_verification".into()));
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
    // Nor by a browser
    let started = begin(&t, "google").await;
    claims["nonce"] = started.nonce.clone().into();
    provider.gives(provider.key.sign(&claims));
    let response = return_from_provider(&t, &started).await;
    assert_eq!(response.location_query("error_code").as_deref(), Some("provider_email_needs_verification"));
}

#[tokio::test]
async fn the_address_of_a_provider_waits_until_it_is_proved_by_link_or_code() {
    for way in ["link", "signup", "email", "email_change"] {
        let t = server(|_| {}).await;
        t.google().sign_in(CLAIMS_ADA).await.expect(302);
        let row = &t.query("select email, email_change, email_confirmed_at is null from auth.users").await[0];
        assert_eq!(row.get::<_, Option<&str>>(0), None);
        assert_eq!((row.get::<_, &str>(1), row.get::<_, bool>(2)), (ADA, true));
        let mail = t.mail_to(ADA).await;
        let ada = if way == "link" {
            let link = link_in(mail.html());
            assert!(link.query().unwrap().contains("type=signup"), "{link}");
            t.member_of(&t.visitor(ADA).opens_link().await.expect(303))
        } else {
            t.member_with(t.visitor(ADA).verifies(way, &code_in(mail.html())).await.expect(200).json())
        };
        let user = ada.account().await;
        assert_eq!((&user["email"], user.get("new_email")), (&json!(ADA), None), "{way}");
        assert_eq!(user["app_metadata"]["providers"], json!(["google"]), "{way}");
        assert_eq!(user["identities"][0]["identity_data"]["email_verified"], true, "{way}");
        assert_eq!(contacts(&ada).0, ADA);
        // From now on the provider leads into the account
        let again = t.google().signed_in(CLAIMS_ADA).await.account().await;
        assert_eq!(again["id"], user["id"], "{way}");
    }
}

#[tokio::test]
async fn a_waiting_address_can_be_proved_by_another_account() {
    let t = server(|auth| auth.email.allow_unverified_sign_ins = true).await;
    let eve = t.google().signed_in(CLAIMS_ADA).await;
    assert_eq!(contacts(&eve).0, "");
    let link = link_in(t.mail_to(ADA).await.html());
    // Ada has an account of her own
    let ada = t.account(ADA, PASSWORD).await;
    let eve = eve.account().await;
    assert_ne!(eve["id"], json!(ada));
    assert_eq!(eve["email"], "");
    // The email that Eve caused does nothing any more
    let late = t.get(link.as_str()).send().await.expect(303);
    assert_eq!(late.location_fragment("error_code").as_deref(), Some("email_exists"), "{late:?}");
    assert_eq!(t.sign_in(ADA, PASSWORD).await["user"]["id"], json!(ada));
}

#[tokio::test]
async fn the_link_of_a_claim_proves_no_other_address() {
    let t = server(|auth| auth.email.allow_unverified_sign_ins = true).await;
    // Eve proves her own address, and means Ada's
    let own = GooglePerson::Unverified { name: "Eve", email: "eve@example.com" };
    let eve = t.google().signed_in(own).await;
    let link = link_in(t.mail_to("eve@example.com").await.html());
    t.clock().advance(time::Duration::minutes(2));
    eve.changes_account(&json!({"email": ADA})).await.expect(200);
    let refused = t.get(link.as_str()).send().await.expect(303);
    assert_eq!(refused.location_fragment("error_code").as_deref(), Some("otp_expired"), "{refused:?}");
    assert_eq!(eve.account().await["email"], "");
}

#[tokio::test]
async fn proving_a_claimed_address_ends_the_access_of_the_claimant() {
    let t = server(|auth| {
        auth.sms.autoconfirm = true;
        auth.email.allow_unverified_sign_ins = true;
    })
    .await;
    // Eve has a number and a password, and claims Ada's address by a provider
    let eve = eve_by_phone(&t).await;
    let waiting = eve.links_google(CLAIMS_ADA).await.expect(302);
    assert_eq!(waiting.location_query("error_code").as_deref(), Some("email_not_confirmed"));
    let elsewhere = eve.on_another_device().await;
    assert_eq!(contacts(&elsewhere), pair("", PHONE), "a claim is not in a token");

    let ada = t.member_of(&t.visitor(ADA).opens_link().await.expect(303));
    assert_eq!(contacts(&ada).0, ADA);
    assert_eq!(ada.account().await["phone"], "");
    for mut session in [eve.clone(), elsewhere] {
        assert_eq!(session.refreshes().await.status, 400);
    }
    let by_number = eve.visitor().signs_in().await;
    assert_eq!(by_number.rejection().1, "invalid_credentials");
    let by_mail = t.visitor(ADA).signs_in().await;
    assert_eq!(by_mail.rejection().1, "invalid_credentials");
}

#[tokio::test]
async fn proving_the_address_of_an_imported_account_ends_the_access_of_the_claimant() {
    for path in ["resend", "otp", "recover"] {
        let t = server(|auth| auth.sms.autoconfirm = true).await;
        let mut eve = eve_by_phone(&t).await;
        // The number is not confirmed, so that the account is the address's; Eve has a second
        // factor and a provider
        t.execute(&format!(
            "update auth.users set email = '{ADA}', phone_confirmed_at = null;
             insert into auth.mfa_factors (id, user_id, factor_type, status, created_at, updated_at, secret)
             select gen_random_uuid(), id, 'totp', 'verified', now(), now(), 'x' from auth.users;
             insert into auth.identities (provider_id, user_id, identity_data, provider, created_at, updated_at)
             select 'eve', id, '{{\"sub\": \"eve\", \"email\": \"eve@example.com\", \"email_verified\": true}}', 'github', now(), now()
               from auth.users"
        ))
        .await;
        t.visitor(ADA).posts(path, &json!({"type": "signup"})).await.expect(200);
        let ada = t.member_of(&t.visitor(ADA).opens_link().await.expect(303)).account().await;
        assert_eq!((&ada["email"], &ada["phone"]), (&json!(ADA), &json!("")), "{path}");
        assert_eq!(ada.get("factors"), None, "{path}");
        assert_eq!(eve.refreshes().await.status, 400, "{path}");
        assert_eq!(t.count("select count(*) from auth.users where encrypted_password <> ''").await, 0, "{path}");
        if path == "recover" {
            assert_eq!(ada["identities"], json!([]), "{path}");
        }
    }
}

#[tokio::test]
async fn an_account_that_merely_claims_an_address_loses_it_to_the_one_that_proves_it() {
    // By a change of address
    let t = server(|_| {}).await;
    let bob = t.member("bob@example.com").await;
    bob.changes_account(&json!({"email": ADA})).await.expect(200);
    let codes = (code_in(t.mail_to(ADA).await.html()), code_in(t.nth_mail_to("bob@example.com", 1).await.html()));
    t.visitor(ADA).with_password("of-a-stranger").signs_up().await.expect(200);
    for (email, code) in [("bob@example.com", codes.1), (ADA, codes.0)] {
        t.visitor(email).verifies("email_change", &code).await.expect(200);
    }
    assert_eq!(t.visitor(ADA).signed_in().await.session()["user"]["email"], ADA);

    // By a provider that vouches for it, though the claimant has a number of their own
    let t = server(|auth| auth.sms.autoconfirm = true).await;
    let eve = eve_by_phone(&t).await;
    t.execute(&format!("update auth.users set email = '{ADA}'")).await;
    let ada = t.google().signed_in(IS_ADA).await.account().await;
    assert_eq!(ada["email"], ADA);
    let eve = eve.account().await;
    assert_eq!((&eve["email"], &eve["phone"]), (&json!(""), &json!(PHONE)));
}

#[tokio::test]
async fn the_data_of_a_sign_up_by_phone_is_no_claim_to_an_address() {
    let t = server(|auth| auth.sms.autoconfirm = true).await;
    let data = json!({"data": {"email": ADA, "name": "Eve"}});
    let eve = t.visitor_with_phone(PHONE).signs_up_with(&data).await.expect(200).json();
    let identity = &eve["user"]["identities"][0];
    assert_eq!((identity.get("email"), identity["identity_data"].get("email")), (None, None));
    assert_eq!(identity["identity_data"]["name"], "Eve");
    assert_eq!(eve["user"]["user_metadata"]["email"], ADA, "people may write of themselves what they like");
    // An identity that an earlier version left behind proves nothing either, whatever it says
    t.execute(&format!(
        "update auth.identities set identity_data = identity_data || '{{\"email\": \"{ADA}\", \"email_verified\": true}}'"
    ))
    .await;
    let ada = t.google().signed_in(IS_ADA).await.account().await;
    assert_ne!(ada["id"], eve["user"]["id"]);
    assert_eq!(ada["email"], ADA);
}
