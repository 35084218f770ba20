//! The accounts of measurements.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::client::{Connection, request};

/// The password of all accounts.
pub const PASSWORD: &str = "correct horse battery";
/// The code that was sent to every account.
pub const CODE: &str = "135246";

/// An account that is signed in.
pub struct Person {
    /// The access token.
    pub access_token: String,
    /// The current refresh token.
    pub refresh_token: String,
}

/// Signs up `count` accounts, whose addresses begin with `name`.
pub async fn sign_up(address: &str, key: &str, name: &str, count: usize) -> Result<Vec<Person>> {
    let mut connection = Connection::open(address).await?;
    let mut people = Vec::new();
    for number in 0..count {
        let answer = connection.succeed(&sign_up_request(key, &format!("{name}-{number}@example.com"))).await?;
        let text = |name: &str| anyhow::Ok(answer.text(name).context("a session")?.to_owned());
        people.push(Person { access_token: text("access_token")?, refresh_token: text("refresh_token")? });
    }
    Ok(people)
}

/// Returns the request of a sign-up.
pub fn sign_up_request(key: &str, email: &str) -> Vec<u8> {
    let body = format!(r#"{{"email":"{email}","password":"{PASSWORD}"}}"#);
    request("POST", "/auth/v1/signup", &[("apikey", key)], &body)
}

/// Returns the number of an account among those of a run: twelve digits, so that it fits into the
/// end of an id. The scripts of `pgbench` count alike.
pub fn number(run: u64, connection: usize, call: u64) -> u64 {
    run * 10_000_000_000 + connection as u64 * 100_000_000 + call
}

/// Inserts confirmed accounts without a password, numbered as in [`number`], each with a pending
/// code.
pub async fn insert(postgres: &tokio_postgres::Client, run: u64, connections: usize, calls: u64) -> Result<()> {
    let statements = format!(
        "
        create temporary table person as
        select ('00000000-0000-4000-8000-' || number)::uuid as id,
               number || '@example.com' as email,
               encode(sha224(convert_to(number || '@example.com{CODE}', 'utf8')), 'hex') as hash
          from (select {run} * 10000000000 + connection * 100000000 + call as number
                  from generate_series(0, {connections} - 1) as connection,
                       generate_series(0, {calls} - 1) as call) as numbered;
        insert into auth.users
            (instance_id, id, aud, role, email, encrypted_password, email_confirmed_at, confirmation_token,
             recovery_token, recovery_sent_at, email_change_token_new, email_change, email_change_token_current,
             phone_change, phone_change_token, reauthentication_token, raw_app_meta_data, raw_user_meta_data,
             created_at, updated_at)
        select '00000000-0000-0000-0000-000000000000', id, 'authenticated', 'authenticated', email, '', now(), '',
               hash, now() - interval '5 minutes', '', '', '',
               '', '', '', '{{\"provider\": \"email\", \"providers\": [\"email\"]}}',
               jsonb_build_object('sub', id, 'email', email, 'email_verified', true, 'phone_verified', false),
               now(), now()
          from person;
        insert into auth.identities
            (provider_id, user_id, identity_data, provider, last_sign_in_at, created_at, updated_at)
        select id, id, jsonb_build_object('sub', id, 'email', email, 'email_verified', true, 'phone_verified', false),
               'email', now(), now(), now()
          from person;
        insert into auth.one_time_tokens (id, user_id, token_type, token_hash, relates_to)
        select gen_random_uuid(), id, 'recovery_token', hash, email from person;
        drop table person;
        analyze auth.users, auth.identities, auth.one_time_tokens, auth.sessions, auth.refresh_tokens"
    );
    tokio::time::timeout(Duration::from_secs(60), postgres.batch_execute(&statements)).await??;
    Ok(())
}
