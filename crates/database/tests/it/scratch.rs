//! Scratch databases.

use portico_database::{connect, scratch};

#[tokio::test]
async fn databases_are_cloned_from_a_template_that_is_filled_once() {
    let cluster = scratch::shared_cluster().await.unwrap();
    let admin = cluster.endpoint();
    let template = format!("filled_{}", scratch::fresh_name());
    let fill = async |endpoint| {
        connect(&endpoint).await?.batch_execute("create table t (n int); insert into t values (7)").await?;
        Ok(())
    };
    let (first, second) =
        tokio::join!(scratch::template(&admin, &template, fill), scratch::template(&admin, &template, fill));
    first.unwrap();
    second.unwrap();

    let clones = (0..8).map(|_| async {
        let name = scratch::fresh_name();
        let endpoint = scratch::clone_database(&admin, &template, &name).await.unwrap();
        let client = connect(&endpoint).await.unwrap();
        assert_eq!(client.query_one("select n from t", &[]).await.unwrap().get::<_, i32>(0), 7);
        scratch::drop_database(&admin, &name).await.unwrap();
        assert!(!scratch::database_exists(&admin, &name).await.unwrap());
    });
    futures_util::future::join_all(clones).await;

    scratch::drop_database(&admin, &template).await.unwrap();
    scratch::drop_database(&admin, &template).await.unwrap();
}

#[tokio::test]
async fn a_template_whose_filling_fails_does_not_exist() {
    let admin = scratch::shared_cluster().await.unwrap().endpoint();
    let name = format!("filled_{}", scratch::fresh_name());
    let fill = async |endpoint| {
        connect(&endpoint).await?.batch_execute("create table t (n nonsense)").await?;
        Ok(())
    };
    scratch::template(&admin, &name, fill).await.unwrap_err();
    assert!(!scratch::database_exists(&admin, &name).await.unwrap());
}
