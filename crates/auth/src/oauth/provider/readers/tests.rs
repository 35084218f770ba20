//! Recorded forms of every provider's responses, with invented values.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::model::JsonObject;
use crate::oauth::provider::catalogue;
use crate::oauth::provider::description::ProfileSources;
use crate::oauth::provider::profile::{Profile, UnreadableProfile};

#[derive(Default)]
struct Recorded {
    token: Value,
    id_token: Option<Value>,
    documents: Vec<Value>,
    form_user: Option<Value>,
}

fn read(provider: &str, recorded: &Recorded) -> Result<Profile, UnreadableProfile> {
    let provider = catalogue::find(provider).unwrap();
    let issuer = provider.userinfo.first().map(|document| document.url.origin(None)).unwrap_or("https://issuer".into());
    let empty = JsonObject::new();
    (provider.read)(&ProfileSources {
        issuer: &issuer,
        token: recorded.token.as_object().unwrap_or(&empty),
        id_token: recorded.id_token.as_ref().and_then(Value::as_object),
        documents: &recorded.documents,
        form_user: recorded.form_user.as_ref(),
    })
}

fn id_token(claims: Value) -> Recorded {
    Recorded { id_token: Some(claims), ..Recorded::default() }
}

fn documents(documents: impl Into<Vec<Value>>) -> Recorded {
    Recorded { documents: documents.into(), ..Recorded::default() }
}

/// Reads and compares the whole identity data.
#[track_caller]
fn gives(provider: &str, recorded: &Recorded, expected: Value) {
    let profile = read(provider, recorded).unwrap();
    let mut expected = expected;
    expected["provider_id"] = expected["sub"].clone();
    expected["phone_verified"] = json!(false);
    assert_eq!(Value::Object(profile.identity_data()), expected, "{provider}");
}

#[test]
fn google_is_read_from_an_id_token_or_from_userinfo() {
    gives(
        "google",
        &id_token(
            json!({"iss": "https://accounts.google.com", "sub": "1034", "aud": "x", "hd": "example.com", "email": "Ada@Example.com",
            "email_verified": true, "name": "Ada L", "picture": "https://p/1", "given_name": "Ada", "iat": 1, "exp": 2}),
        ),
        json!({"iss": "https://accounts.google.com", "sub": "1034", "email": "ada@example.com", "email_verified": true,
            "name": "Ada L", "full_name": "Ada L", "picture": "https://p/1", "avatar_url": "https://p/1", "custom_claims": {"hd": "example.com"}}),
    );
    gives(
        "google",
        &documents([json!({"id": "1034", "email": "ada@example.com", "verified_email": true, "name": "Ada L"})]),
        json!({"iss": "https://www.googleapis.com", "sub": "1034", "email": "ada@example.com", "email_verified": true,
            "name": "Ada L", "full_name": "Ada L"}),
    );
}

#[test]
fn github_reads_the_list_of_addresses() {
    gives(
        "github",
        &documents([
            json!({"id": 583231, "login": "octo", "name": "", "avatar_url": "https://a/1", "email": null}),
            json!([{"email": "old@example.com", "verified": true, "primary": false}, {"email": "octo@example.com", "verified": true, "primary": true}]),
        ]),
        json!({"iss": "https://api.github.com", "sub": "583231", "preferred_username": "octo", "user_name": "octo", "avatar_url": "https://a/1",
            "email": "octo@example.com", "email_verified": true}),
    );
    assert!(read("github", &documents([json!({"id": 1}), json!({"message": "Not Found"})])).is_err());
}

#[test]
fn apple_reads_the_name_of_the_first_sign_in() {
    let mut recorded =
        id_token(json!({"iss": "https://appleid.apple.com", "sub": "001.a", "email": "x@privaterelay.appleid.com",
        "is_private_email": "true", "auth_time": 1700000000}));
    recorded.form_user = Some(json!({"name": {"firstName": "Ada", "lastName": "L"}, "email": "ignored@example.com"}));
    gives(
        "apple",
        &recorded,
        json!({"iss": "https://appleid.apple.com", "sub": "001.a", "email": "x@privaterelay.appleid.com", "email_verified": true,
            "name": "Ada L", "full_name": "Ada L", "custom_claims": {"is_private_email": "true", "auth_time": 1700000000}}),
    );
}

#[test]
fn facebook_profiles_have_the_picture_of_their_data() {
    gives(
        "facebook",
        &documents([
            json!({"id": "77", "email": "ada@example.com", "first_name": "Ada", "last_name": "L", "name": "Ada L.",
            "picture": {"data": {"url": "https://p/1", "width": 50}}}),
        ]),
        json!({"iss": "https://graph.facebook.com/me?fields=email,first_name,last_name,name,picture", "sub": "77", "email": "ada@example.com", "email_verified": true, "name": "Ada L",
            "full_name": "Ada L", "nickname": "Ada L.", "slug": "Ada L.", "picture": "https://p/1", "avatar_url": "https://p/1"}),
    );
}

#[test]
fn azure_trusts_an_address_unless_its_owner_is_known_to_be_another() {
    let claims = |owned: Value| {
        let mut claims = json!({"aud": "x", "iss": "https://login.microsoftonline.com/t/v2.0", "iat": 1, "nbf": 1, "exp": 2, "ver": "2.0",
            "sub": "AAA", "name": "Ada L", "preferred_username": "ada@corp.example", "email": "ada@corp.example", "oid": "o", "tid": "t"});
        if !owned.is_null() {
            claims["xms_edov"] = owned;
        }
        id_token(claims)
    };
    gives(
        "azure",
        &claims(Value::Null),
        json!({"iss": "https://login.microsoftonline.com/t/v2.0", "sub": "AAA", "email": "ada@corp.example", "email_verified": true,
            "full_name": "Ada L", "preferred_username": "ada@corp.example", "custom_claims": {"email": "ada@corp.example", "oid": "o", "tid": "t"}}),
    );
    for (owned, verified) in
        [(json!(true), true), (json!("1"), true), (json!("true"), true), (json!(false), false), (json!("0"), false)]
    {
        assert_eq!(read("azure", &claims(owned)).unwrap().emails[0].verified, verified);
    }
}

#[test]
fn azure_of_any_tenant_trusts_only_the_word_of_microsoft() {
    let read = |issuer: &str, owned: Option<Value>| {
        let mut claims = json!({"iss": issuer, "sub": "AAA", "name": "Ada L", "email": "ada@corp.example"});
        if let Some(owned) = owned {
            claims["xms_edov"] = owned;
        }
        let empty = JsonObject::new();
        let id_token = claims.as_object();
        let sources = ProfileSources { issuer, token: &empty, id_token, documents: &[], form_user: None };
        super::azure_of_any_tenant(&sources).unwrap().emails[0].verified
    };
    let stranger = "https://login.microsoftonline.com/7f1c0000-0000-4000-8000-000000000000/v2.0";
    assert!(!read(stranger, None));
    assert!(!read(stranger, Some(json!(false))));
    assert!(read(stranger, Some(json!(true))));
    assert!(read(stranger, Some(json!("1"))));
    assert!(read(super::AZURE_PERSONAL_ACCOUNTS, None));
    assert!(!read(super::AZURE_PERSONAL_ACCOUNTS, Some(json!("0"))));
}

#[test]
fn discord_builds_the_picture() {
    let user = |avatar: Value| {
        documents([
            json!({"id": "80351110224678912", "username": "nelly", "discriminator": "1337", "global_name": "Nelly",
            "avatar": avatar, "email": "nelly@example.com", "verified": true}),
        ])
    };
    gives(
        "discord",
        &user(json!("a_8342")),
        json!({"iss": "https://discord.com", "sub": "80351110224678912", "name": "nelly#1337", "full_name": "nelly",
            "picture": "https://cdn.discordapp.com/avatars/80351110224678912/a_8342.gif",
            "avatar_url": "https://cdn.discordapp.com/avatars/80351110224678912/a_8342.gif",
            "custom_claims": {"global_name": "Nelly"}, "email": "nelly@example.com", "email_verified": true}),
    );
    let picture = |avatar| read("discord", &user(avatar)).unwrap().claims["picture"].clone();
    assert_eq!(picture(json!("8342")), "https://cdn.discordapp.com/avatars/80351110224678912/8342.png");
    assert_eq!(picture(json!(null)), "https://cdn.discordapp.com/embed/avatars/2.png");
}

#[test]
fn gitlab_trusts_only_a_confirmed_primary_address() {
    gives(
        "gitlab",
        &documents([
            json!({"id": 9, "name": "Ada", "email": "ada@example.com", "avatar_url": "https://a/1", "confirmed_at": "2020-01-01T00:00:00Z"}),
            json!([{"id": 1, "email": "second@example.com"}]),
        ]),
        json!({"iss": "https://gitlab.com", "sub": "9", "name": "Ada", "full_name": "Ada", "picture": "https://a/1", "avatar_url": "https://a/1",
            "email": "ada@example.com", "email_verified": true}),
    );
    let profile =
        read("gitlab", &documents([json!({"id": 9, "email": "ada@example.com", "confirmed_at": null}), json!([])]))
            .unwrap();
    assert_eq!(profile.verified_emails(), Vec::<String>::new());
}

#[test]
fn bitbucket_profiles_join_the_list_of_addresses() {
    gives(
        "bitbucket",
        &documents([
            json!({"uuid": "{c1}", "display_name": "Ada", "links": {"avatar": {"href": "https://a/1"}}}),
            json!({"values": [{"email": "ada@example.com", "is_primary": true, "is_confirmed": true}]}),
        ]),
        json!({"iss": "https://api.bitbucket.org", "sub": "{c1}", "name": "Ada", "full_name": "Ada", "picture": "https://a/1", "avatar_url": "https://a/1",
            "email": "ada@example.com", "email_verified": true}),
    );
}

#[test]
fn linkedin_in_both_generations() {
    gives(
        "linkedin_oidc",
        &id_token(
            json!({"iss": "https://www.linkedin.com/oauth", "sub": "782", "name": "Ada L", "given_name": "Ada", "family_name": "L",
            "picture": "https://p/1", "locale": {"country": "US", "language": "en"}, "email": "ada@example.com", "email_verified": "true"}),
        ),
        json!({"iss": "https://www.linkedin.com/oauth", "sub": "782", "name": "Ada L", "full_name": "Ada L", "given_name": "Ada", "family_name": "L",
            "picture": "https://p/1", "avatar_url": "https://p/1", "locale": "en_US", "email": "ada@example.com", "email_verified": true}),
    );
    gives(
        "linkedin",
        &documents([
            json!({"id": "yr", "firstName": {"localized": {"en_US": "Ada"}, "preferredLocale": {"country": "US", "language": "en"}},
                "lastName": {"localized": {"en_US": "L"}, "preferredLocale": {"country": "US", "language": "en"}},
                "profilePicture": {"displayImage~": {"elements": [{"identifiers": [{"identifier": "https://p/1"}]}]}}}),
            json!({"elements": [{"handle": "urn:li:1", "handle~": {"emailAddress": "ada@example.com"}}]}),
        ]),
        json!({"iss": "https://api.linkedin.com", "sub": "yr", "name": "Ada L", "full_name": "Ada L", "picture": "https://p/1", "avatar_url": "https://p/1",
            "email": "ada@example.com", "email_verified": true}),
    );
}

#[test]
fn twitter_and_x_are_read_from_different_documents() {
    gives(
        "twitter",
        &documents([
            json!({"id": 1, "id_str": "38895958", "name": "Ada", "screen_name": "ada", "profile_image_url_https": "https://p/1", "email": "ada@example.com"}),
        ]),
        json!({"iss": "https://api.twitter.com", "sub": "38895958", "name": "Ada", "full_name": "Ada", "preferred_username": "ada", "user_name": "ada",
            "picture": "https://p/1", "avatar_url": "https://p/1", "email": "ada@example.com", "email_verified": true}),
    );
    gives(
        "x",
        &documents([
            json!({"data": {"id": "2244", "name": "Ada", "username": "ada", "profile_image_url": "https://p/1", "url": "https://t.co/1",
            "created_at": "2013-12-14T04:35:55.000Z", "confirmed_email": "ada@example.com"}}),
        ]),
        json!({"iss": "https://api.x.com", "sub": "2244", "name": "Ada", "full_name": "Ada", "preferred_username": "ada", "user_name": "ada",
            "picture": "https://p/1", "avatar_url": "https://p/1", "profile": "https://x.com/ada", "website": "https://t.co/1",
            "custom_claims": {"created_at": "2013-12-14T04:35:55.000Z"}, "email": "ada@example.com", "email_verified": true}),
    );
}

#[test]
fn slack_in_both_generations() {
    let user = json!({"ok": true, "sub": "U0R7", "https://slack.com/user_id": "U0R7", "https://slack.com/team_id": "T0R7", "email": "ada@example.com",
        "email_verified": false, "name": "Ada", "picture": "https://p/1"});
    for (provider, verified) in [("slack_oidc", false), ("slack", true)] {
        gives(
            provider,
            &documents([user.clone()]),
            json!({"iss": "https://slack.com", "sub": "U0R7", "name": "Ada", "full_name": "Ada", "picture": "https://p/1", "avatar_url": "https://p/1",
                "custom_claims": {"https://slack.com/team_id": "T0R7"}, "email": "ada@example.com", "email_verified": verified}),
        );
    }
}

#[test]
fn spotify_takes_the_largest_image_and_trusts_no_address() {
    gives(
        "spotify",
        &documents([json!({"id": "ada", "display_name": "Ada", "email": "ada@example.com",
            "images": [{"url": "https://p/small", "width": 64, "height": 64}, {"url": "https://p/large", "width": 300, "height": 300}]})]),
        json!({"iss": "https://api.spotify.com", "sub": "ada", "name": "Ada", "full_name": "Ada", "picture": "https://p/large", "avatar_url": "https://p/large",
            "email": "ada@example.com", "email_verified": false}),
    );
}

#[test]
fn twitch_profiles_are_the_first_of_their_data() {
    gives(
        "twitch",
        &documents([
            json!({"data": [{"id": "141981764", "login": "ada", "display_name": "Ada", "type": "", "broadcaster_type": "partner",
            "description": "hi", "profile_image_url": "https://p/1", "offline_image_url": "https://o/1", "view_count": 5, "email": "ada@example.com"}]}),
        ]),
        json!({"iss": "https://api.twitch.tv", "sub": "141981764", "name": "ada", "full_name": "ada", "nickname": "Ada", "slug": "Ada",
            "picture": "https://p/1", "avatar_url": "https://p/1",
            "custom_claims": {"broadcaster_type": "partner", "description": "hi", "offline_image_url": "https://o/1", "view_count": 5},
            "email": "ada@example.com", "email_verified": true}),
    );
    assert!(read("twitch", &documents([json!({"data": []})])).is_err());
}

#[test]
fn notion_and_figma_give_verified_addresses() {
    gives(
        "notion",
        &documents([
            json!({"object": "user", "type": "bot", "bot": {"owner": {"type": "user", "user": {"id": "d40e", "name": "Ada",
            "avatar_url": "https://p/1", "person": {"email": "ada@example.com"}}}}}),
        ]),
        json!({"iss": "https://api.notion.com", "sub": "d40e", "name": "Ada", "full_name": "Ada", "picture": "https://p/1", "avatar_url": "https://p/1",
            "email": "ada@example.com", "email_verified": true}),
    );
    gives(
        "figma",
        &documents([json!({"id": "12", "handle": "Ada", "email": "ada@example.com", "img_url": "https://p/1"})]),
        json!({"iss": "https://api.figma.com", "sub": "12", "name": "Ada", "full_name": "Ada", "picture": "https://p/1", "avatar_url": "https://p/1",
            "email": "ada@example.com", "email_verified": true}),
    );
}

#[test]
fn kakao_trusts_an_address_that_is_valid_and_verified() {
    let user = |valid: bool| {
        documents([
            json!({"id": 123456789_i64, "kakao_account": {"email": "ada@example.com", "is_email_valid": valid, "is_email_verified": true,
            "profile": {"nickname": "Ada", "profile_image_url": "https://p/1"}}}),
        ])
    };
    gives(
        "kakao",
        &user(true),
        json!({"iss": "https://kapi.kakao.com", "sub": "123456789", "name": "Ada", "full_name": "Ada", "preferred_username": "Ada", "user_name": "Ada",
            "picture": "https://p/1", "avatar_url": "https://p/1", "email": "ada@example.com", "email_verified": true}),
    );
    assert!(!read("kakao", &user(false)).unwrap().emails[0].verified);
}

#[test]
fn keycloak_keeps_every_other_claim() {
    let provider = catalogue::find("keycloak").unwrap();
    let documents = [
        json!({"sub": "f1", "name": "Ada", "email": "ada@example.com", "email_verified": true, "preferred_username": "ada", "groups": ["a"]}),
    ];
    let profile = (provider.read)(&ProfileSources {
        issuer: "https://sso.example.com/realms/r",
        token: &JsonObject::new(),
        id_token: None,
        documents: &documents,
        form_user: None,
    })
    .unwrap();
    assert_eq!(
        Value::Object(profile.identity_data()),
        json!({"iss": "https://sso.example.com/realms/r", "sub": "f1", "provider_id": "f1", "name": "Ada", "full_name": "Ada",
            "custom_claims": {"preferred_username": "ada", "groups": ["a"]}, "email": "ada@example.com", "email_verified": true, "phone_verified": false})
    );
}

#[test]
fn workos_reads_the_token_answer() {
    let recorded = Recorded {
        token: json!({"access_token": "t", "profile": {"id": "prof_1", "email": "ada@corp.example", "first_name": "Ada", "last_name": "L",
            "connection_id": "conn_1", "organization_id": "org_1"}}),
        ..Recorded::default()
    };
    gives(
        "workos",
        &recorded,
        json!({"iss": "https://issuer", "sub": "prof_1", "name": "Ada L", "full_name": "Ada L", "email": "ada@corp.example", "email_verified": true,
            "custom_claims": {"connection_id": "conn_1", "organization_id": "org_1"}}),
    );
}

#[test]
fn zoom_trusts_addresses_of_accounts_that_signed_in_elsewhere() {
    let user = |kind: Value, verified: i64| {
        documents([
            json!({"id": "K", "first_name": "Ada", "last_name": "L", "email": "ada@example.com", "login_type": kind, "verified": verified, "pic_url": "https://p/1"}),
        ])
    };
    for (kind, verified, expected) in
        [(json!("100"), 0, false), (json!("100"), 1, true), (json!(100), 0, false), (json!("1"), 0, true)]
    {
        gives(
            "zoom",
            &user(kind, verified),
            json!({"iss": "https://api.zoom.us", "sub": "K", "name": "Ada L", "full_name": "Ada L", "picture": "https://p/1", "avatar_url": "https://p/1",
                "email": "ada@example.com", "email_verified": expected}),
        );
    }
}

#[test]
fn snapchat_often_has_no_address() {
    gives(
        "snapchat",
        &documents([
            json!({"data": {"me": {"externalId": "CAESI", "displayName": "Ada", "bitmoji": {"avatar": "https://p/1", "id": "b"}}}, "errors": []}),
        ]),
        json!({"iss": "https://kit.snapchat.com", "sub": "CAESI", "name": "Ada", "full_name": "Ada", "picture": "https://p/1", "avatar_url": "https://p/1",
            "email_verified": false}),
    );
}

#[test]
fn fly_keeps_its_other_claims_and_vercel_prefers_its_global_id() {
    gives(
        "fly",
        &documents([
            json!({"resource_owner_id": "r1", "scope": ["read"], "created_at": 1696003692, "user_id": "u1", "user_name": "Ada", "email": "ada@example.com",
            "organizations": [{"id": "o1", "role": "member"}], "application": {"uid": "a1"}}),
        ]),
        json!({"iss": "https://api.fly.io", "sub": "u1", "name": "Ada", "full_name": "Ada", "email": "ada@example.com", "email_verified": true,
            "custom_claims": {"resource_owner_id": "r1", "organizations": [{"id": "o1", "role": "member"}], "application": {"uid": "a1"}, "scope": ["read"], "created_at": 1696003692}}),
    );
    gives(
        "vercel_marketplace",
        &id_token(
            json!({"iss": "https://marketplace.vercel.com", "sub": "account:1:user:2", "global_user_id": "g1", "user_email": "ada@example.com",
            "user_name": "Ada", "user_avatar_url": "https://p/1"}),
        ),
        json!({"iss": "https://marketplace.vercel.com", "sub": "global_user_id:g1", "name": "Ada", "full_name": "Ada", "picture": "https://p/1",
            "avatar_url": "https://p/1", "email": "ada@example.com", "email_verified": true}),
    );
}

#[test]
fn every_provider_of_the_catalogue_refuses_an_empty_answer() {
    for provider in catalogue::PROVIDERS {
        assert!(read(provider.name, &Recorded::default()).is_err(), "{}", provider.name);
        let empty = documents([json!({}), json!({})]);
        assert!(read(provider.name, &empty).is_err(), "{}", provider.name);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    const KEYS: [&str; 16] = [
        "id",
        "sub",
        "email",
        "data",
        "me",
        "name",
        "verified",
        "images",
        "url",
        "bot",
        "owner",
        "user",
        "kakao_account",
        "profile",
        "picture",
        "elements",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((proptest::sample::select(KEYS.to_vec()), inner), 0..6).prop_map(|members| {
                members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<JsonObject>().into()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_answer_panics_a_reader(first in any_json(), second in any_json(), claims in any_json()) {
        for provider in catalogue::PROVIDERS {
            for id_token in [None, Some(claims.clone())] {
                let recorded = Recorded { token: claims.clone(), id_token, documents: vec![first.clone(), second.clone()], form_user: Some(second.clone()) };
                if let Ok(profile) = read(provider.name, &recorded) {
                    prop_assert!(!profile.subject.is_empty());
                }
            }
        }
    }
}
