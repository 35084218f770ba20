//! `/graphql/v1`.

use serde_json::json;

use super::CinemaServer;

/// With `pg_graphql` its resolver answers; without it the function reports that.
#[tokio::test]
async fn graphql_is_a_function_of_its_own_schema() {
    let server = CinemaServer::with(|config| config.schemas.push("graphql_public".to_owned())).await;
    let ask = |path: &str| {
        server.post(path).key(server.api_keys().publishable()).json(&json!({ "query": "{ items { id } }" }))
    };
    let response = ask("/graphql/v1").send().await.expect(200);
    assert_eq!(response.json(), json!({ "errors": [{ "message": "pg_graphql extension is not enabled." }] }));
    server
        .execute(
            "create or replace function graphql_public.graphql(\"operationName\" text default null, query text default null, \
             variables jsonb default null, extensions jsonb default null) returns jsonb language sql as $$ \
             select jsonb_build_object('path', current_setting('request.path'), 'asked', query) $$",
        )
        .await;
    let response = ask("/graphql/v1").send().await;
    assert_eq!(response.json(), json!({ "path": "/rpc/graphql", "asked": "{ items { id } }" }), "{}", response.text());
    let missing = ask("/graphql/v2").send().await.expect(404);
    assert_eq!(missing.json(), json!({ "message": "no Route matched with those values" }));
}
