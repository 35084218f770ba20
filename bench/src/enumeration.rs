//! Checks that response times do not reveal accounts: the same request for addresses with and
//! without one, one at a time.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::client::{Connection, request};
use crate::people::{self, number};
use crate::report::{Report, percentile};
use crate::server::{Server, folder};

const PORT: u16 = 55_341;
/// An account with a password.
const KNOWN: &str = "known@example.com";
/// Samples of each kind, for requests that hash a password and for others.
const SLOW: u64 = 100;
const FAST: u64 = 400;
const HEADER: &[&str] = &["Answer", "Address", "Status", "p50", "p90", "p99"];

/// Measures every request that takes an address from a visitor.
pub async fn measure(report: &mut Report) -> Result<()> {
    let folder = folder(PORT, "[auth.email]\nenable_confirmations = true\n")?;
    let server = Server::start(folder.path(), PORT).await?;
    let outcome = async {
        let postgres = Server::postgres(folder.path())?.connect().await?;
        let key = server.value("PUBLISHABLE_KEY");
        measure_on(&postgres, key, report).await
    }
    .await;
    server.stop(folder.path()).await?;
    outcome
}

async fn measure_on(postgres: &tokio_postgres::Client, key: &str, report: &mut Report) -> Result<()> {
    let mut connection = Connection::open(&format!("127.0.0.1:{PORT}")).await?;
    connection.succeed(&people::sign_up_request(key, KNOWN)).await?;
    postgres.execute("update auth.users set email_confirmed_at = now() where email = $1", &[&KNOWN]).await?;
    // Requests that send email, or seem to, are limited for each address: each address is used once
    const RECOVER: u64 = 10;
    const OTP: u64 = 11;
    const SIGN_UP: u64 = 12;
    for run in [RECOVER, OTP, SIGN_UP] {
        people::insert(postgres, run, 1, FAST).await?;
    }
    let of = |run: u64, call: u64| format!("{}@example.com", number(run, 0, call));
    let stranger = |name: &str, call: u64| format!("{name}-{call}@example.com");
    let post = |path: &str, body: String| request("POST", path, &[("apikey", key)], &body);

    let sign_in = |email: &str| {
        let body = format!(r#"{{"email":"{email}","password":"not the password"}}"#);
        post("/auth/v1/token?grant_type=password", body)
    };
    compare(&mut connection, report, "Wrong password", SLOW, |call, known| {
        sign_in(&if known { KNOWN.to_owned() } else { stranger("sign-in", call) })
    })
    .await?;
    compare(&mut connection, report, "`/signup`, to be confirmed", SLOW, |call, known| {
        people::sign_up_request(key, &if known { of(SIGN_UP, call) } else { stranger("sign-up", call) })
    })
    .await?;
    for (path, run) in [("/recover", RECOVER), ("/otp", OTP)] {
        compare(&mut connection, report, &format!("`{path}`"), FAST, |call, known| {
            let email = if known { of(run, call) } else { stranger(&path[1..], call) };
            post(&format!("/auth/v1{path}"), format!(r#"{{"email":"{email}"}}"#))
        })
        .await?;
    }
    Ok(())
}

/// Sends requests for known and unknown addresses so that each kind follows each equally often: the
/// work that a response leaves behind must not count for the other kind.
async fn compare(
    connection: &mut Connection,
    report: &mut Report,
    what: &str,
    samples: u64,
    make: impl Fn(u64, bool) -> Vec<u8>,
) -> Result<()> {
    let mut times = [Vec::new(), Vec::new()];
    let mut statuses = [0, 0];
    for call in 0..samples {
        let order = if call % 2 == 0 { [true, false] } else { [false, true] };
        for known in order {
            let request = make(call, known);
            let started = Instant::now();
            let answer = connection.call(&request).await?;
            let time = started.elapsed();
            if answer.status == 429 || answer.status >= 500 {
                bail!("{what}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
            }
            times[usize::from(known)].push(time.as_secs_f64() * 1e3);
            statuses[usize::from(known)] = answer.status;
        }
    }
    for known in [true, false] {
        let at = usize::from(known);
        let value = |percent| format!("{:.2} ms", percentile(times[at].clone(), percent));
        report.detail(
            HEADER,
            vec![
                what.to_owned(),
                if known { "known" } else { "unknown" }.to_owned(),
                statuses[at].to_string(),
                value(50),
                value(90),
                value(99),
            ],
        );
    }
    Ok(())
}
