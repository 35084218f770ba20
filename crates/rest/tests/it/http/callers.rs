//! Tokens, roles, and the caller as SQL sees it.

use portico_testkit::TestResponse;
use serde_json::{Value, json};

use super::{CinemaServer, FIRST};

async fn refused(server: &CinemaServer, token: &str) -> (u16, String, String, Option<String>, String) {
    let response = server.read("films").bearer(token).send().await;
    let body = response.json();
    let text = |key: &str| body[key].as_str().map(str::to_owned);
    let header = response.header("www-authenticate").unwrap_or_default().to_owned();
    (response.status, text("code").unwrap(), text("message").unwrap(), text("details"), header)
}

#[tokio::test]
async fn an_invalid_token_is_rejected_with_the_documented_error() {
    let server = CinemaServer::open().await;
    let now = server.clock().now().unix_timestamp();
    let none = "eyJhbGciOiJub25lIn0.eyJyb2xlIjoiYW5vbiJ9.";
    let good = server.token("authenticated", FIRST);
    let forged = format!("{}AAAA", &good[..good.len() - 4]);
    for (token, code, message) in [
        ("a.b".to_owned(), "PGRST301", "Expected 3 parts in JWT; got 2"),
        (none.to_owned(), "PGRST301", "Wrong or unsupported encoding algorithm"),
        (forged, "PGRST301", "No suitable key or wrong key type"),
        (server.sign(&json!({ "role": "anon", "exp": now - 31 })), "PGRST303", "JWT expired"),
        (server.sign(&json!({ "role": "anon", "nbf": now + 40 })), "PGRST303", "JWT not yet valid"),
        (server.sign(&json!({ "role": "anon", "iat": now + 40 })), "PGRST303", "JWT issued at future"),
        (server.sign(&json!({ "role": "anon", "exp": "x" })), "PGRST303", "The JWT 'exp' claim must be a number"),
        (
            server.sign(&json!({ "role": "anon", "aud": 1 })),
            "PGRST303",
            "The JWT 'aud' claim must be a string or an array of strings",
        ),
    ] {
        let (status, is_code, is_message, _, header) = refused(&server, &token).await;
        assert_eq!((status, is_code.as_str(), is_message.as_str()), (401, code, message));
        assert_eq!(header, format!("Bearer error=\"invalid_token\", error_description=\"{message}\""));
    }
    // Three segments of nonsense; and a valid header with nonsense after it, which no key matches
    for nonsense in
        ["a.b.c", "nonsense.nonsense.nonsense", "..", "a..c", "!.?.*", "bnVsbA.bnVsbA.bnVsbA", "e30.e30.e30"]
    {
        let (status, code, message, details, _) = refused(&server, nonsense).await;
        let expected = (401, "PGRST301", "JWT cryptographic operation failed");
        assert_eq!((status, code.as_str(), message.as_str()), expected, "{nonsense}");
        assert_eq!(details, None);
    }
    let signed = server.sign(&json!({ "role": "anon" }));
    let header = signed.split('.').next().unwrap();
    for nonsense in [format!("{header}.b.c"), format!("{header}.e30.!!!"), format!("{header}..")] {
        let (status, code, message, details, _) = refused(&server, &nonsense).await;
        let expected = (401, "PGRST301", "No suitable key or wrong key type");
        assert_eq!((status, code.as_str(), message.as_str()), expected, "{nonsense}");
        assert_eq!(details.as_deref(), Some("None of the keys was able to decode the JWT"));
    }
    // Clocks may differ a little
    let late = server.sign(&json!({ "role": "anon", "exp": now - 20 }));
    server.read("films?select=id").bearer(&late).send().await.expect(200);
    // The error precedes everything else in the request
    let expired = server.sign(&json!({ "role": "anon", "exp": now - 31 }));
    server.read("not/a/path").bearer(&expired).send().await.expect(401);
    server.request("OPTIONS".parse().unwrap(), "/rest/v1/films").bearer(&expired).send().await.expect(401);
}

#[tokio::test]
async fn a_request_runs_in_the_role_of_its_token_and_sql_sees_the_claims() {
    let server = CinemaServer::open().await;
    let claims = |token: String| {
        let request = server.call("current_claims", &json!({}));
        async move { request.bearer(&token).send().await.expect(200).json() }
    };
    let person = claims(server.token("authenticated", FIRST)).await;
    assert_eq!((&person["role"], &person["claims"]["sub"]), (&json!("authenticated"), &json!(FIRST)));
    let anonymous = server.call("current_claims", &json!({})).send().await.expect(200).json();
    assert_eq!(anonymous, json!({ "role": "anon", "claims": { "role": "anon" } }));
    let key = server.call("current_claims", &json!({})).key(server.api_keys().secret()).send().await.expect(200).json();
    assert_eq!(key["role"], "service_role");
    // A token without a role has none
    let now = server.clock().now().unix_timestamp();
    let bare = claims(server.sign(&json!({ "sub": FIRST, "exp": now + 60 }))).await;
    assert_eq!(bare, json!({ "role": "anon", "claims": { "sub": FIRST, "exp": now + 60, "role": "anon" } }));
}

#[tokio::test]
async fn the_database_decides_which_roles_can_be_assumed() {
    let server = CinemaServer::open().await;
    let unknown = server.read("films").bearer(&server.token("nobody_at_all", FIRST)).send().await;
    assert_eq!((unknown.status, unknown.json()["code"].clone()), (401, json!("22023")));
    let none = server.read("films").bearer(&server.token("none", FIRST)).send().await;
    assert_eq!((none.status, none.json()["message"].clone()), (401, json!("role \"none\" does not exist")));
    assert_eq!(unknown.header("www-authenticate"), Some("Bearer"));
    server.role("not_granted").await;
    let refused = server.read("films").bearer(&server.token("not_granted", FIRST)).send().await;
    assert_eq!((refused.status, refused.json()["code"].clone()), (403, json!("42501")));
    server.role("app_role").await;
    server.execute("grant app_role to authenticator; grant select on films to app_role").await;
    server.read("films?select=id").bearer(&server.token("app_role", FIRST)).send().await.expect(200);
}

/// Every role may assume itself, so PostgreSQL would allow these.
#[tokio::test]
async fn no_request_can_assume_the_login_role() {
    let server = CinemaServer::open().await;
    for login in ["authenticator", server.endpoint().user()] {
        let refused = server.read("films").bearer(&server.token(login, FIRST)).send().await.expect(403);
        let message = format!("permission denied to set role \"{login}\"");
        assert_eq!((&refused.json()["code"], &refused.json()["message"]), (&json!("42501"), &json!(message)));
    }
}

#[tokio::test]
async fn a_legacy_key_is_the_token_if_there_is_no_other() {
    let server = CinemaServer::open().await;
    for (key, role) in [(server.api_keys().anon_jwt(), "anon"), (server.api_keys().service_role_jwt(), "service_role")]
    {
        let alone = server.call("current_claims", &json!({})).header("apikey", key).send().await.expect(200).json();
        let token = server.call("current_claims", &json!({})).bearer(key).send().await.expect(200).json();
        assert_eq!((&alone["role"], &alone), (&json!(role), &token));
        assert!(alone["claims"]["exp"].is_i64(), "{alone}");
        // Another scheme hides it
        let basic =
            server.call("current_claims", &json!({})).header("apikey", key).header("authorization", "Basic eDp5");
        assert_eq!(basic.send().await.expect(200).json()["role"], "anon");
    }
}

#[tokio::test]
async fn a_time_zone_is_a_name_or_hours_from_utc() {
    let server = CinemaServer::open().await;
    let shown = |zone: &str| {
        let request = server.read("films?select=released&id=eq.3").header("prefer", &format!("timezone={zone}"));
        async move {
            let response = request.send().await.expect(200);
            let applied = response.header("preference-applied").map(str::to_owned);
            (response.json()[0]["released"].as_str().unwrap().to_owned(), applied)
        }
    };
    let utc = shown("UTC").await.0;
    assert_eq!(utc, "2010-06-15T16:30:00+00:00");
    assert_eq!(shown("-4").await, ("2010-06-15T12:30:00-04:00".into(), Some("timezone=-4".into())));
    assert_eq!(shown("5").await, ("2010-06-15T21:30:00+05:00".into(), Some("timezone=5".into())));
    // Any other text is ignored, as in this version of PostgREST
    for neither in ["Moon", "-4h", "1234"] {
        assert_eq!(shown(neither).await, (utc.clone(), None), "{neither}");
    }
}

#[tokio::test]
async fn sql_sees_the_request() {
    let server = CinemaServer::open().await;
    let setting = |name: &'static str| {
        let request = server.read(&format!("rpc/a_setting?name={name}"));
        let request =
            request.header("x-shown", "yes").header("cookie", "a=b; c=d").header("prefer", "timezone=Asia/Tokyo");
        async move { request.send().await.expect(200).json() }
    };
    assert_eq!(setting("request.method").await, "GET");
    assert_eq!(setting("request.path").await, "/rpc/a_setting");
    assert_eq!(setting("timezone").await, "Asia/Tokyo");
    assert_eq!(setting("search_path").await, "\"public\", \"extensions\"");
    let headers: Value = serde_json::from_str(setting("request.headers").await.as_str().unwrap()).unwrap();
    assert_eq!((&headers["x-shown"], headers.get("cookie")), (&json!("yes"), None));
    assert_eq!((&headers["x-real-ip"], &headers["x-forwarded-for"]), (&json!("127.0.0.1"), &json!("127.0.0.1")));
    assert_eq!(
        (&headers["x-forwarded-path"], &headers["x-forwarded-prefix"]),
        (&json!("/rest/v1/rpc/a_setting"), &json!("/rest/v1"))
    );
    let cookies: Value = serde_json::from_str(setting("request.cookies").await.as_str().unwrap()).unwrap();
    assert_eq!(cookies, json!({ "a": "b", "c": "d" }));
}

#[tokio::test]
async fn sql_sees_the_request_id_and_the_headers_of_a_trusted_proxy() {
    let server = CinemaServer::open().await;
    let ask = || server.read("rpc/a_setting?name=request.headers");
    let seen = |response: &TestResponse| -> Value { serde_json::from_str(response.json().as_str().unwrap()).unwrap() };
    let response = ask().send().await.expect(200);
    let id = response.header("x-request-id").unwrap();
    assert_eq!((id.len(), &seen(&response)["x-request-id"]), (36, &json!(id)));

    let said = [
        ("x-request-id", "from-the-proxy-1"),
        ("x-forwarded-for", "1.2.3.4, 198.51.100.7"),
        ("x-forwarded-host", "app.example"),
        ("x-forwarded-prefix", "/backend"),
    ];
    let response = said.iter().fold(ask(), |request, (name, value)| request.header(name, value));
    let headers = seen(&response.send().await.expect(200));
    for (name, value) in [
        ("x-request-id", "from-the-proxy-1"),
        ("x-real-ip", "198.51.100.7"),
        ("x-forwarded-for", "198.51.100.7"),
        ("x-forwarded-host", "app.example"),
        ("x-forwarded-prefix", "/backend/rest/v1"),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
}

#[tokio::test]
async fn sql_sees_the_token_of_an_opaque_key_and_never_the_key() {
    let server = CinemaServer::open().await;
    let keys = server.api_keys();
    let seen = |key: Option<&str>, token: Option<&str>| {
        let mut request = server.call("a_setting", &json!({ "name": "request.headers" }));
        request = key.into_iter().fold(request, |request, key| request.key(key));
        request = token.into_iter().fold(request, |request, token| request.bearer(token));
        async move {
            let response = request.send().await.expect(200).json();
            let headers: Value = serde_json::from_str(response.as_str().unwrap()).unwrap();
            assert_eq!(headers.get("apikey"), None);
            assert!(!response.as_str().unwrap().contains("sb_"), "{headers}");
            headers["authorization"].as_str().map(str::to_owned)
        }
    };
    for (key, jwt) in [(keys.publishable(), keys.anon_jwt()), (keys.secret(), keys.service_role_jwt())] {
        let bearer = Some(format!("Bearer {jwt}"));
        assert_eq!(seen(Some(key), None).await, bearer);
        assert_eq!(seen(Some(key), Some(key)).await, bearer);
        assert_eq!(seen(None, Some(key)).await.as_deref(), Some(""));
        // A legacy key is passed on unchanged
        assert_eq!(seen(Some(jwt), None).await.as_deref(), Some(jwt));
        assert_eq!(seen(None, Some(jwt)).await, bearer);
    }
    let person = server.token("authenticated", FIRST);
    assert_eq!(seen(Some(keys.publishable()), Some(&person)).await, Some(format!("Bearer {person}")));
    assert_eq!(seen(None, None).await, None);
}

#[tokio::test]
async fn missing_privileges_are_401_for_anonymous_and_403_for_other_callers() {
    let server = CinemaServer::open().await;
    let anonymous = server.read("secrets").send().await;
    assert_eq!((anonymous.status, anonymous.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(
        anonymous.json(),
        json!({
            "code": "42501",
            "details": null,
            "hint": "Grant the required privileges to the current role with: GRANT SELECT ON public.secrets TO anon;",
            "message": "permission denied for table secrets",
        })
    );
    let signed_in = server.read("secrets").bearer(&server.token("authenticated", FIRST)).send().await;
    assert_eq!(signed_in.status, 403);
    let body = json!({ "id": 2 });
    let write = server.post("/rest/v1/secrets").bearer(&server.token("authenticated", FIRST)).json(&body).send().await;
    assert_eq!(
        write.json()["hint"],
        "Grant the required privileges to the current role with: GRANT INSERT ON public.secrets TO authenticated;"
    );
}

#[tokio::test]
async fn the_hint_names_the_missing_grant() {
    let server = CinemaServer::open().await;
    for (method, query, prefer, granted) in [
        ("GET", "", "", "SELECT"),
        ("POST", "", "return=minimal", "INSERT"),
        ("POST", "", "return=representation", "SELECT, INSERT"),
        ("POST", "", "resolution=ignore-duplicates", "SELECT, INSERT"),
        ("POST", "", "resolution=merge-duplicates", "SELECT, INSERT, UPDATE"),
        ("PUT", "?id=eq.1", "", "SELECT, INSERT, UPDATE"),
        ("PATCH", "?id=eq.1", "", "SELECT, UPDATE"),
        ("PATCH", "?or=(id.eq.1)", "", "SELECT, UPDATE"),
        ("DELETE", "?and=(id.eq.1)", "", "SELECT, DELETE"),
    ] {
        server
            .execute(
                "drop table if exists wanted; create table wanted (id int primary key);
                 revoke all on wanted from anon, authenticated, service_role; notify pgrst",
            )
            .await;
        server.read("not_there").send().await.expect(404);
        let send = async || {
            let request = server.request(method.parse().unwrap(), &format!("/rest/v1/wanted{query}"));
            let request = request.bearer(&server.token("authenticated", FIRST)).header("prefer", prefer);
            if method == "GET" { request.send().await } else { request.json(&json!({ "id": 1 })).send().await }
        };
        let refused = send().await.expect(403).json();
        let hint = refused["hint"].as_str().unwrap();
        let (_, grant) = hint.split_once("with: ").unwrap();
        assert_eq!(grant, format!("GRANT {granted} ON public.wanted TO authenticated;"), "{method} {query} {prefer}");
        server.execute(grant).await;
        let done = send().await;
        assert!((200..300).contains(&done.status), "{method} {query} {prefer}: {}", done.text());
    }
}

#[tokio::test]
async fn a_row_that_a_policy_hides_is_neither_shown_nor_changed() {
    let server = CinemaServer::open().await;
    let owner = server.token("authenticated", FIRST);
    let other = server.token("authenticated", "00000000-0000-4000-8000-0000000000ff");
    let notes = |token: &str| server.read("notes?select=body").bearer(token);
    assert_eq!(notes(&owner).send().await.expect(200).json(), json!([{ "body": "of a" }]));
    assert_eq!(notes(&other).send().await.expect(200).json(), json!([]));
    let change = |token: &str| {
        let request = server.request("PATCH".parse().unwrap(), "/rest/v1/notes?body=neq.x").bearer(token);
        request.header("prefer", "return=representation").json(&json!({ "body": "taken" }))
    };
    assert_eq!(change(&other).send().await.expect(200).json(), json!([]));
    assert_eq!(notes(&owner).send().await.json(), json!([{ "body": "of a" }]));
    // The same statement for both roles, one after the other on the same connections
    for _ in 0..8 {
        assert_eq!(notes(&owner).send().await.json(), json!([{ "body": "of a" }]));
        assert_eq!(notes(&other).send().await.json(), json!([]));
    }
}
