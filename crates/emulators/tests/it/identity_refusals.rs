use base64::{Engine, prelude::BASE64_STANDARD};
use portico_emulators::{GOOGLE_CLIENT_ID, GOOGLE_CLIENT_SECRET};
use serde_json::Value;

use crate::{
    identity_flow::{VERIFIER, location, query, request},
    support::{CALLBACK, Provider, provider},
};

const USER: (&str, &str) = ("account", "test.user@example.com");

async fn error(response: reqwest::Response) -> (u16, String) {
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap();
    (status, body["error"].as_str().unwrap().to_owned())
}

fn refused(text: &str) -> (u16, String) {
    (400, text.to_owned())
}

#[tokio::test]
async fn the_person_can_make_it_fail() {
    let provider = provider(None).await;
    for (action, expected) in [("cancel", "access_denied"), ("fail", "server_error")] {
        let back = location(&provider.decide(&request(&[]), &[("action", action)]).await);
        assert!(back.as_str().starts_with(CALLBACK));
        assert_eq!(query(&back, "error").as_deref(), Some(expected));
        assert_eq!(query(&back, "state").as_deref(), Some("the state & more"));
        assert_eq!(query(&back, "code"), None);
    }
}

#[tokio::test]
async fn a_target_that_is_not_configured_is_rejected() {
    let provider = provider(None).await;
    for changes in [
        [("redirect_uri", "http://127.0.0.1:54321/auth/v1/callback/")],
        [("redirect_uri", "http://127.0.0.1:54321/auth/v1/callback?x=1")],
        [("redirect_uri", "https://evil.example/")],
        [("redirect_uri", "")],
        [("client_id", "somebody-else")],
        [("client_id", "")],
    ] {
        let request = request(&changes);
        let shown = provider.client.get(format!("{}/authorize?{request}", provider.issuer)).send().await.unwrap();
        let decided = provider.decide(&request, &[USER]).await;
        for response in [shown, decided] {
            assert_eq!(response.status(), 400, "{changes:?}");
            assert!(response.headers().get("location").is_none());
            let page = response.text().await.unwrap();
            assert!(page.contains("Development stand-in") && page.contains("<h1>"), "{page}");
        }
    }
    let scripted = request(&[("redirect_uri", "\"><script>alert(1)</script>")]);
    let page = provider.client.get(format!("{}/authorize?{scripted}", provider.issuer)).send().await.unwrap();
    assert!(!page.text().await.unwrap().contains("<script"));
}

#[tokio::test]
async fn the_client_receives_the_error_of_its_request() {
    let provider = provider(None).await;
    for (change, expected) in [
        (("response_type", "token"), "unsupported_response_type"),
        (("response_mode", "form_post"), "invalid_request"),
        (("scope", ""), "invalid_scope"),
        (("code_challenge_method", "plain"), "invalid_request"),
        (("code_challenge", "short"), "invalid_request"),
    ] {
        let request = request(&[change]);
        let response = provider.client.get(format!("{}/authorize?{request}", provider.issuer)).send().await.unwrap();
        let back = location(&response);
        assert_eq!(query(&back, "error").as_deref(), Some(expected), "{change:?}");
        assert!(query(&back, "error_description").is_some());
    }
    let long = request(&[("state", &"x".repeat(9_000))]);
    let response = provider.client.get(format!("{}/authorize?{long}", provider.issuer)).send().await.unwrap();
    assert_eq!(response.status(), 400);
}

#[tokio::test]
async fn a_form_that_is_filled_in_badly_comes_back_with_the_reason() {
    let provider = provider(None).await;
    for email in ["", "nobody", "a@b@c.ch", "ann@example.com\r\nx"] {
        let response = provider.decide(&request(&[]), &[("action", "add"), ("name", "Kept"), ("email", email)]).await;
        assert_eq!(response.status(), 422, "{email:?}");
        let page = response.text().await.unwrap();
        assert!(page.contains("role=\"alert\"") && page.contains("value=\"Kept\""), "{page}");
    }
    for fields in [&[("account", "nobody@example.com")][..], &[("action", "nonsense")], &[]] {
        assert_eq!(provider.decide(&request(&[]), fields).await.status(), 422);
    }
    let domain = request(&[("hd", "corp.example")]);
    assert_eq!(provider.decide(&domain, &[USER]).await.status(), 422);
    let back = provider.decide(&domain, &[("action", "add"), ("name", "Ann"), ("email", "ann@corp.example")]).await;
    assert!(query(&location(&back), "code").is_some());
}

#[tokio::test]
async fn a_code_works_once_in_its_minute_for_whom_it_was_made() {
    let provider = provider(None).await;
    let code = provider.code(&request(&[]), &[USER]).await;
    let with = |changed: (&'static str, &'static str), code: &str| {
        let mut fields = vec![
            ("grant_type", "authorization_code".to_owned()),
            ("code", code.to_owned()),
            ("redirect_uri", CALLBACK.to_owned()),
            ("code_verifier", VERIFIER.to_owned()),
        ];
        fields.retain(|(name, _)| *name != changed.0);
        if !changed.1.is_empty() {
            fields.push((changed.0, changed.1.to_owned()));
        }
        fields
    };
    let send = async |fields: Vec<(&'static str, String)>| {
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        provider.token(&fields).await
    };
    assert_eq!(error(send(with(("code_verifier", "wrong"), &code)).await).await, refused("invalid_grant"));
    assert_eq!(error(send(with(("code_verifier", ""), &code)).await).await, refused("invalid_grant"));
    assert_eq!(error(send(with(("redirect_uri", "http://other/"), &code)).await).await, refused("invalid_grant"));
    assert_eq!(error(send(with(("code", "4/unknown"), &code)).await).await, refused("invalid_grant"));
    assert_eq!(error(send(with(("code", ""), &code)).await).await, refused("invalid_request"));
    assert_eq!(error(send(with(("grant_type", "password"), &code)).await).await, refused("unsupported_grant_type"));

    let tokens: Value = provider.exchange(&code).await.json().await.unwrap();
    let access = tokens["access_token"].as_str().unwrap();
    assert_eq!(provider.userinfo(access).await.status(), 200);
    assert_eq!(error(provider.exchange(&code).await).await, refused("invalid_grant"));
    assert_eq!(provider.userinfo(access).await.status(), 401, "a replayed code ends what it gave");

    let late = provider.code(&request(&[]), &[USER]).await;
    provider.clock.advance(time::Duration::seconds(60));
    assert_eq!(error(provider.exchange(&late).await).await, refused("invalid_grant"));

    let plain = provider.code(&request(&[("code_challenge", ""), ("code_challenge_method", "")]), &[USER]).await;
    assert_eq!(
        error(provider.exchange(&plain).await).await,
        refused("invalid_grant"),
        "a verifier without a challenge"
    );
    assert_eq!(send(with(("code_verifier", ""), &plain)).await.status(), 200);
}

#[tokio::test]
async fn tokens_end_after_an_hour() {
    let provider = provider(None).await;
    let code = provider.code(&request(&[]), &[USER]).await;
    let tokens: Value = provider.exchange(&code).await.json().await.unwrap();
    let access = tokens["access_token"].as_str().unwrap();
    provider.clock.advance(time::Duration::seconds(3_599));
    assert_eq!(provider.userinfo(access).await.status(), 200);
    provider.clock.advance(time::Duration::seconds(1));
    let response = provider.userinfo(access).await;
    assert_eq!(response.status(), 401);
    assert!(response.headers()["www-authenticate"].to_str().unwrap().contains("invalid_token"));
}

async fn with_basic(provider: &Provider, credentials: &str) -> (u16, String) {
    let response = provider
        .client
        .post(format!("{}/token", provider.issuer))
        .header("authorization", format!("Basic {}", BASE64_STANDARD.encode(credentials)))
        .form(&[("grant_type", "refresh_token"), ("refresh_token", "unknown")])
        .send()
        .await
        .unwrap();
    error(response).await
}

#[tokio::test]
async fn the_client_proves_itself() {
    let provider = provider(None).await;
    let unauthorized = (401, "invalid_client".to_owned());
    assert_eq!(
        with_basic(&provider, &format!("{GOOGLE_CLIENT_ID}:{GOOGLE_CLIENT_SECRET}")).await,
        refused("invalid_grant")
    );
    for wrong in [
        format!("{GOOGLE_CLIENT_ID}:wrong"),
        format!("other:{GOOGLE_CLIENT_SECRET}"),
        "nocolon".to_owned(),
        String::new(),
    ] {
        assert_eq!(with_basic(&provider, &wrong).await, unauthorized, "{wrong}");
    }
    let nothing = provider
        .client
        .post(format!("{}/token", provider.issuer))
        .body("grant_type=authorization_code")
        .send()
        .await
        .unwrap();
    assert!(nothing.status().is_client_error());
}

#[tokio::test]
async fn pages_of_other_websites_are_refused() {
    let provider = provider(None).await;
    let decide = async |headers: &[(&str, &str)]| {
        let form = [
            ("request", request(&[])),
            ("action", "add".into()),
            ("email", "eve@example.com".into()),
            ("name", "Eve".into()),
        ];
        let mut decision = provider.client.post(format!("{}/authorize/decision", provider.issuer)).form(&form);
        for (name, value) in headers {
            decision = decision.header(*name, *value);
        }
        decision.send().await.unwrap()
    };
    for (headers, status) in [
        (&[][..], 303),
        (&[("origin", "http://localhost:3000")], 303),
        (&[("origin", "https://shop.example.com")], 303),
        (&[("origin", "https://evil.example")], 403),
        (&[("origin", "null")], 403),
        (&[("origin", "http://localhost.evil.example")], 403),
        // A name of another website that leads here
        (&[("host", "evil.example:54321")], 403),
        (&[("host", "evil.example:54321"), ("origin", "http://evil.example:54321")], 403),
        (&[("host", "shop.example.com")], 303),
    ] {
        let answer = decide(headers).await;
        assert_eq!(answer.status(), status, "{headers:?}");
        let opened: Vec<_> =
            answer.headers().keys().filter(|name| name.as_str().starts_with("access-control")).collect();
        assert!(opened.is_empty(), "{opened:?}");
    }
    for path in ["/authorize", "/.well-known/openid-configuration", "/jwks", "/userinfo", "/avatar/1.svg"] {
        let page = provider.client.get(format!("{}{path}", provider.issuer)).header("origin", "https://evil.example");
        assert_eq!(page.send().await.unwrap().status(), 403, "{path}");
    }
    // The chooser's own form is sent with its origin
    let page = provider.client.get(format!("{}/authorize?{}", provider.issuer, request(&[]))).send().await.unwrap();
    assert_eq!(page.headers()["referrer-policy"], "same-origin");
}
