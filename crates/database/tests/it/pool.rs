//! The pools: whom a connection acts as, and what happens when there is none.

use std::time::Duration;

use portico_database::scratch::ClusterFolder;
use portico_database::{Database, DatabaseError, Endpoint, PoolSettings, connect};

use crate::AUTH;
use crate::cluster::{reachable, system_binaries, within};

/// The roles and schemas that the pools act as and on, without the whole bootstrap.
const ROLES: &str = "
    create role supabase_auth_admin login noinherit;
    create role operator login password 'secret' createrole;
    create role stranger login password 'secret';
    grant supabase_auth_admin to operator;
    create schema auth authorization supabase_auth_admin;";

#[tokio::test]
async fn each_pool_acts_as_its_role_by_socket_and_by_url() {
    let folder = ClusterFolder::new();
    // The system's PostgreSQL where there is one: what an external server is most often.
    let cluster = reachable(folder.path(), |settings| settings.binaries = system_binaries().pop()).await;
    let admin = connect(&cluster.endpoint()).await.unwrap();
    admin.batch_execute(ROLES).await.unwrap();
    let url = format!("postgresql://operator:secret@127.0.0.1:{}/postgres", cluster.tcp_port().unwrap());
    let external = Endpoint::parse(&url).unwrap();
    let stranger = external.with_user("stranger", external.password().cloned());
    let error = Database::open(&stranger, PoolSettings::default()).unwrap().pool(AUTH).client().await.unwrap_err();
    assert!(error.to_string().contains("grant supabase_auth_admin to \"stranger\""), "{error}");
    assert!(!error.is_unavailable());
    let settings = PoolSettings { role_connections: 2, wait: Duration::from_millis(200), ..PoolSettings::default() };
    let who = "select session_user::text, current_user::text, current_setting('search_path'), current_setting('lock_timeout')";

    for (endpoint, login, owner) in
        [(cluster.endpoint(), "supabase_auth_admin", "supabase_admin"), (external, "operator", "operator")]
    {
        let database = Database::open(&endpoint, settings.clone()).unwrap();
        let client = database.pool(AUTH).client().await.unwrap();
        let statement = client.prepare_cached(who).await.unwrap();
        let row = client.query_one(&statement, &[]).await.unwrap();
        let values: Vec<String> = (0..4).map(|column| row.get(column)).collect();
        assert_eq!(values, [login, "supabase_auth_admin", "auth", "8s"]);
        let row = database.login_client().await.unwrap().query_one(who, &[]).await.unwrap();
        assert_eq!(row.get::<_, &str>(1), owner);

        let second = database.pool(AUTH).client().await.unwrap();
        let error = database.pool(AUTH).client().await.unwrap_err();
        assert!(matches!(error, DatabaseError::Busy(_)) && error.is_unavailable(), "{error}");
        drop(second);
        drop(client);

        // A connection that the server ended is not handed out a second time.
        let client = database.pool(AUTH).client().await.unwrap();
        let process: i32 = client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
        admin.execute("select pg_terminate_backend($1)", &[&process]).await.unwrap();
        within(Duration::from_secs(60), async || client.is_closed().then_some(())).await;
        drop(client);
        for _ in 0..3 {
            let clients = [database.pool(AUTH).client().await.unwrap(), database.pool(AUTH).client().await.unwrap()];
            for client in &clients {
                client.query_one("select 1", &[]).await.unwrap();
            }
        }

        database.close().await;
        let error = database.pool(AUTH).client().await.unwrap_err();
        assert!(matches!(error, DatabaseError::Closed) && error.is_unavailable(), "{error}");
    }
}

#[tokio::test]
async fn an_error_of_a_statement_is_not_mistaken_for_an_absence() {
    let cluster = portico_database::scratch::shared_cluster().await.unwrap();
    let database = Database::open(&cluster.endpoint(), PoolSettings::default()).unwrap();
    let client = database.login_client().await.unwrap();
    let error = DatabaseError::from(client.query("select 1 from nowhere", &[]).await.unwrap_err());
    assert!(!error.is_unavailable());
    assert_eq!(error.sqlstate(), Some(&portico_database::sqlstate::UNDEFINED_TABLE));
    assert!(error.to_string().contains("nowhere"), "{error}");
    let error = DatabaseError::from(client.query_one("select 1::int where false", &[]).await.unwrap_err());
    assert!(!error.is_unavailable(), "{error}");
}

#[tokio::test]
async fn a_database_that_is_being_made_anew_is_waited_for_and_a_missing_one_is_made_on_our_own_cluster() {
    let admin = portico_database::scratch::shared_cluster().await.unwrap().endpoint();
    let name = portico_database::scratch::fresh_name();
    let database = Database::open(&admin.with_database(&name), PoolSettings::default()).unwrap();

    let (client, made) = tokio::join!(database.login_client(), async {
        // By now the pool has found nothing.
        tokio::task::yield_now().await;
        database.administrator().await
    });

    made.unwrap();
    let row = client.unwrap().query_one("select current_database()::text", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), name);
    database.close().await;
    portico_database::scratch::drop_database(&admin, &name).await.unwrap();
}
