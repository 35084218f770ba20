//! Settings that the database defines.

use serde_json::json;

use super::CinemaServer;

#[tokio::test]
async fn a_pre_request_function_runs_before_each_request() {
    let server = CinemaServer::open().await;
    server
        .execute(
            "create function private.check_it() returns void language plpgsql security definer as $$
             begin
               if current_setting('request.headers', true)::json ->> 'x-block' is not null then
                 raise sqlstate 'PT429' using message = 'Too many';
               end if;
               perform set_config('response.headers', '[{\"X-Checked\":\"yes\"}]', true);
             end $$;
             grant usage on schema private to anon, authenticated, service_role;
             create function pre_config() returns void language sql as $$
               select set_config('pgrst.db_pre_request', 'private.check_it', true), set_config('pgrst.db_max_rows', '4', true) $$;
             grant execute on function pre_config() to authenticator",
        )
        .await;
    server.configure(&[("db_pre_config", "public.pre_config"), ("db_max_rows", "2")]).await;
    let response = server.read("items?select=id").send().await.expect(200);
    assert_eq!(response.header("x-checked"), Some("yes"));
    // Settings of the role override those of the function
    assert_eq!(response.json().as_array().unwrap().len(), 2);
    let blocked = server.read("items").header("x-block", "1").send().await.expect(429);
    assert_eq!(blocked.json()["code"], "PT429");
}

#[tokio::test]
async fn only_tokens_of_the_secret_in_the_database_are_accepted() {
    let server = CinemaServer::open().await;
    let secret = "a secret that only this database knows";
    server.configure(&[("jwt_secret", secret), ("jwt_role_claim_key", ".app.role"), ("jwt_aud", "me")]).await;
    let ring = portico_tokens::KeyRing::hs256(&portico_base::Secret::new(secret));
    let now = server.clock().now().unix_timestamp();
    let token = ring.sign(&json!({ "app": { "role": "authenticated" }, "exp": now + 60, "aud": ["me"] })).unwrap();
    let claims = server.call("current_claims", &json!({})).bearer(&token).send().await.expect(200).json();
    assert_eq!(claims["role"], "authenticated");
    let other = ring.sign(&json!({ "app": { "role": "authenticated" }, "exp": now + 60, "aud": "you" })).unwrap();
    let refused = server.read("films").bearer(&other).send().await.expect(401);
    assert_eq!(refused.json()["message"], "JWT not in audience");
    let ours = server.token("authenticated", super::FIRST);
    assert_eq!(server.read("films").bearer(&ours).send().await.expect(401).json()["code"], "PGRST301");
}

#[tokio::test]
async fn the_allowed_origins_are_a_setting() {
    let server = CinemaServer::open().await;
    let allowed = async |origin: &str| {
        let read = server.read("films?select=id").header("origin", origin).send().await.expect(200);
        let preflight = server.request("OPTIONS".parse().unwrap(), "/rest/v1/films").header("origin", origin);
        let preflight = preflight.header("access-control-request-method", "PATCH");
        let preflight = preflight.header("access-control-request-headers", "prefer,apikey").send().await.expect(200);
        let name = "access-control-allow-origin";
        assert_eq!(read.header(name), preflight.header(name));
        if read.header(name).is_some() {
            let methods = preflight.header("access-control-allow-methods");
            assert_eq!(methods, Some("GET, POST, PATCH, PUT, DELETE, OPTIONS, HEAD"));
            let headers = preflight.header("access-control-allow-headers");
            assert_eq!(headers, Some("Authorization, Accept, Accept-Language, Content-Language, prefer,apikey"));
            assert_eq!(preflight.header("access-control-max-age"), Some("86400"));
            assert!(read.header("access-control-expose-headers").unwrap().contains("Content-Range"));
        }
        read.header(name).map(str::to_owned)
    };
    assert_eq!(allowed("https://app.example").await.as_deref(), Some("*"));
    server.configure(&[("server_cors_allowed_origins", "https://app.example, https://b.example")]).await;
    assert_eq!(allowed("https://app.example").await.as_deref(), Some("https://app.example"));
    assert_eq!(allowed("https://b.example").await.as_deref(), Some("https://b.example"));
    assert_eq!(allowed("https://c.example").await, None);
}

#[tokio::test]
async fn error_verbosity_and_server_timing_are_settings() {
    let server = CinemaServer::with(|config| {
        config.terse_errors = true;
        config.server_timing = true;
        config.trace_header = Some("x-trace".parse().unwrap());
    })
    .await;
    let response = server.read("secrets").header("x-trace", "abc").send().await.expect(401);
    assert_eq!(response.json(), json!({ "code": "42501", "message": "permission denied for table secrets" }));
    assert_eq!(response.header("x-trace"), Some("abc"));
    let timing = server.read("films").send().await.header("server-timing").unwrap().to_owned();
    let stages: Vec<_> = timing.split(", ").map(|stage| stage.split(';').next().unwrap()).collect();
    assert_eq!(stages, ["jwt", "parse", "plan", "transaction", "response"]);
}
