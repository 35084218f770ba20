//! The server behind a connection pooler, which lends another server session for each transaction.

use portico_database::scratch::PoolerMode;

use crate::directed::shared;
use crate::scenario::Scenario;
use crate::scenarios::constant_calls;
use crate::schedule;
use crate::server::IsolationServer;

async fn run(mode: PoolerMode, scenarios: Vec<Scenario>, pollutes: bool) {
    let stage = IsolationServer::behind_pooler(2, scenarios, mode).await;
    let (oracle, mut report) = schedule::run_unpolluted(&stage, 1).await;
    if pollutes {
        schedule::after_pollution(&stage, &oracle, &mut report).await;
    }
    schedule::finish(&stage, report).await;
}

#[tokio::test]
async fn callers_behind_a_pooler_see_themselves() {
    run(PoolerMode::Transaction, shared::scenarios(), true).await;
}

#[tokio::test]
async fn values_that_a_session_of_a_pooler_keeps_are_the_caller_s() {
    run(PoolerMode::TransactionOfOneLogin("cloud"), constant_calls::scenarios(), false).await;
}
