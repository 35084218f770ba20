//! The login of the wire client: every kind of password, and the role that is assumed afterwards.

use portico_database::scratch::ClusterFolder;
use portico_database::wire::{Access, Batch, Pool, Statement, WireError, WirePoolSettings};
use portico_database::{Endpoint, connect};

use crate::cluster::{reachable, system_binaries, within};
use crate::wire::{NO_TRAITS, one, value};

const ROLES: &str = "
    create role acting login noinherit;
    alter role acting set lock_timeout = '3s';
    alter role acting set search_path = public, 'with space';
    alter role acting set app.flavour = 'every database';
    alter role acting set log_min_messages = 'error';
    create role inner_role;
    grant inner_role to acting;
    create role manager login password 'secret' superuser;
    create role operator login password 'secret';
    grant acting, inner_role to operator;
    create role stranger login password 'secret';
    set password_encryption = 'md5';
    create role veteran login password 'secret';
    create role plain login password 'secret';";

/// Selects what the session starts with.
const INITIAL: &str = "select concat_ws(' ', session_user, current_user, current_setting('lock_timeout'), \
                     current_setting('search_path'), current_setting('app.flavour'))";

fn url(user: &str, port: u16) -> Endpoint {
    Endpoint::parse(&format!("postgresql://{user}@127.0.0.1:{port}/postgres?connect_timeout=20")).unwrap()
}

#[tokio::test]
async fn the_role_has_its_own_settings_however_it_is_assumed() {
    let folder = ClusterFolder::new();
    let cluster = reachable(folder.path(), |settings| settings.binaries = system_binaries().pop()).await;
    let admin = connect(&cluster.endpoint()).await.unwrap();
    admin.batch_execute(&format!("{ROLES}; {NO_TRAITS}")).await.unwrap();
    admin.batch_execute("alter role acting in database postgres set app.flavour = 'this database'").await.unwrap();
    // Before PostgreSQL 16 the user name map lists every role, and none of a test
    std::fs::write(
        folder.path().join("pgdata/pg_hba.conf"),
        "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n",
    )
    .unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();
    let port = cluster.tcp_port().unwrap();

    for (endpoint, session) in [
        (cluster.endpoint(), "acting"),
        (url("manager:secret", port), "acting"),
        (url("operator:secret", port), "operator"),
    ] {
        let settings = WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() };
        let pool = Pool::open(&endpoint, "acting", settings).unwrap();
        let mut connection = pool.checkout().await.unwrap();
        for (expression, expected) in [
            ("session_user", session),
            ("current_user", "acting"),
            ("current_setting('lock_timeout')", "3s"),
            ("current_setting('search_path')", "public, \"with space\""),
            ("current_setting('app.flavour')", "this database"),
            ("current_setting('application_name')", "portico"),
            ("current_setting('client_encoding')", "UTF8"),
        ] {
            assert_eq!(
                value(&mut connection, &format!("select {expression}")).await,
                expected,
                "{session}: {expression}"
            );
        }
        // The roles of requests are assumed within a transaction, and end with it
        let batch = Batch::new()
            .statement(Statement::named("select set_config('role', $1, true)", &[Some(b"inner_role")]))
            .statement(Statement::named("select current_user", &[]));
        assert_eq!(connection.run(&batch).await.unwrap().row(1).unwrap().text(0), Some("inner_role"));
        assert_eq!(value(&mut connection, "select current_user").await, "acting");
        // Settings for the session end with the transaction, or with the checkout at the latest
        let initial = value(&mut connection, INITIAL).await;
        for ends in [Some(Access::ReadWrite), None] {
            let process = connection.process();
            let batch = Batch::new()
                .statement(Statement::named("begin", &[]))
                .statement(Statement::named("select set_config('role', 'inner_role', false)", &[]))
                .statement(Statement::named("select set_config('lock_timeout', '9s', false)", &[]))
                .statement(Statement::named("select set_config('app.flavour', 'mine', false)", &[]))
                .statement(Statement::named("commit", &[]));
            let results = match ends {
                Some(access) => connection.run(&batch.ending(access)).await.unwrap(),
                None => connection.run(&batch).await.unwrap(),
            };
            assert_eq!(results.row(3).unwrap().text(0), Some("mine"));
            drop(connection);
            connection = pool.checkout().await.unwrap();
            assert_eq!(value(&mut connection, INITIAL).await, initial, "{session} {ends:?}");
            // It is the same session
            assert_eq!(connection.process(), process);
        }
    }

    let error =
        Pool::open(&url("stranger:secret", port), "acting", WirePoolSettings::default()).unwrap().checkout().await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains("grant acting to \"stranger\""), "{error}");
    assert!(matches!(error, WireError::Refused(_)) && !error.is_unavailable());
}

#[tokio::test]
async fn every_kind_of_password_works_and_a_wrong_one_is_rejected() {
    let folder = ClusterFolder::new();
    let cluster = reachable(folder.path(), |_| {}).await;
    let admin = connect(&cluster.endpoint()).await.unwrap();
    admin.batch_execute(&format!("{ROLES}; {NO_TRAITS}")).await.unwrap();
    let access = "local all all trust\n\
                  host all plain 127.0.0.1/32 password\n\
                  host all veteran 127.0.0.1/32 md5\n\
                  host all acting 127.0.0.1/32 trust\n\
                  host all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(folder.path().join("pgdata/pg_hba.conf"), access).unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();
    let port = cluster.tcp_port().unwrap();
    let log_in = async |login: &str| {
        let endpoint = url(login, port);
        let role = endpoint.user().to_owned();
        let pool = Pool::open(&endpoint, &role, WirePoolSettings::default()).unwrap();
        one(&mut pool.checkout().await?, "select session_user").await
    };

    // The new rules take effect after a moment
    within(std::time::Duration::from_secs(60), async || log_in("acting").await.ok()).await;
    for login in ["operator:secret", "veteran:secret", "plain:secret", "acting"] {
        let results = log_in(login).await.unwrap();
        assert_eq!(results.row(0).unwrap().text(0), login.split(':').next(), "{login}");
    }
    for login in ["operator:wrong", "veteran:wrong", "plain:wrong", "nobody:secret"] {
        let error = log_in(login).await.unwrap_err();
        assert_eq!(error.sqlstate(), Some("28P01"), "{login}: {error}");
        assert!(!error.is_unavailable());
    }
    let error = log_in("operator").await.unwrap_err();
    assert!(matches!(&error, WireError::Refused(text) if text.contains("password of `operator`")), "{error}");
}

#[tokio::test]
async fn a_missing_server_is_unavailable() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let endpoint = Endpoint::parse(&format!("postgresql://me:hidden@127.0.0.1:{port}/app?connect_timeout=2")).unwrap();
    let pool = Pool::open(&endpoint, "me", WirePoolSettings::default()).unwrap();
    let error = pool.checkout().await.unwrap_err();
    assert!(matches!(error, WireError::Unreachable { .. }) && error.is_unavailable(), "{error}");
    assert!(!error.to_string().contains("hidden"), "{error}");
    assert_eq!(pool.status().open, 0);
}
