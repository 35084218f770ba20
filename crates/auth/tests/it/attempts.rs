//! Limits on guesses at codes and passwords, per account and per network, of all servers of a
//! database together.

use std::collections::BTreeMap;

use portico_testkit::{Member, PeerServer, TestResponse, TestServer, Visitor, code_in, link_in};
use serde_json::json;
use time::Duration;

use crate::phone::with_phones;

const ADA: &str = "ada@example.com";
const PASSWORD: &str = "correct-horse";
const HOME: &str = "198.51.100.7";

/// Returns what a client sees of an error: status, code, limit and retry time.
fn seen(response: &TestResponse) -> (u16, String, String, String) {
    let header = |name| response.header(name).unwrap_or_default().to_owned();
    let (status, code) = response.rejection();
    (status, code, header("x-ratelimit-name"), header("retry-after"))
}

fn assert_limited(response: &TestResponse, limit: &str) -> Duration {
    let (status, code, name, wait) = seen(response);
    assert_eq!((status, code.as_str(), name.as_str()), (429, "over_request_rate_limit", limit), "{}", response.text());
    Duration::seconds(wait.parse().unwrap())
}

fn attacker_address(number: usize) -> String {
    format!("192.0.2.{number}")
}

/// Returns Ada at this IP address.
fn ada_at<'a>(t: &'a TestServer, address: &str) -> Visitor<'a> {
    t.visitor(ADA).with_password(PASSWORD).from_address(address)
}

/// Returns a person at this IP address who guesses Ada's password.
fn guesser_at<'a>(t: &'a TestServer, address: &str) -> Visitor<'a> {
    ada_at(t, address).with_password("wrong")
}

fn assert_wrong(response: &TestResponse) {
    assert_eq!(response.rejection(), (400, "invalid_credentials".to_owned()));
}

/// Uses up the limits of Ada's account from other networks, which start with a number.
async fn use_up_from(t: &TestServer, first: usize) {
    for number in 0..50 {
        assert_wrong(&guesser_at(t, &attacker_address(first + number / 10)).signs_in().await);
    }
}

/// Creates an account with a pending recovery code. Returns the code.
async fn with_code(t: &TestServer) -> String {
    t.account(ADA, PASSWORD).await;
    t.visitor(ADA).requests_recovery().await.expect(200);
    code_in(t.nth_mail_to(ADA, 1).await.html())
}

fn not(code: &str) -> &'static str {
    if code == "000000" { "000001" } else { "000000" }
}

#[tokio::test]
async fn wrong_codes_are_counted_across_restarts_and_right_ones_are_not() {
    let mut t = TestServer::start().await;
    let code = with_code(&t).await;
    let verify = async |t: &TestServer, code: &str| ada_at(t, HOME).verifies("recovery", code).await;
    for number in 0..10 {
        if number == 4 {
            t.restart().await;
        }
        assert_eq!(verify(&t, not(&code)).await.rejection(), (403, "otp_expired".into()), "{number}");
    }
    t.restart().await;
    let wait = assert_limited(&verify(&t, &code).await, "codes-per-address");
    t.clock().advance(wait);
    t.restart().await;
    verify(&t, &code).await.expect(200);
    assert_eq!(t.count("select count(*) from portico.attempts").await, 3, "as many as there are limits");
    for (table, column) in [("attempts", "account"), ("known_networks", "account"), ("known_networks", "network")] {
        let readable = format!(
            "select count(*) from portico.{table}
              where encode({column}, 'escape') like '%example%' or encode({column}, 'escape') like '%198.51%'"
        );
        assert_eq!(t.count(&readable).await, 0);
    }
    t.clean_up().await;
    assert_eq!(t.count("select count(*) from portico.attempts").await, 3);
    t.clock().advance(Duration::days(2));
    t.clean_up().await;
    assert_eq!(t.count("select count(*) from portico.attempts").await, 0);
}

#[tokio::test]
async fn servers_share_their_counts_at_once() {
    let t = TestServer::start().await;
    let peer = t.peer().await;
    let code = with_code(&t).await;
    let people = [ada_at(&t, HOME), ada_at(&t, HOME).at(&peer)];
    for number in 0..10 {
        let refused = people[number % 2].verifies("recovery", not(&code)).await;
        assert_eq!(refused.rejection(), (403, "otp_expired".into()));
    }
    for ada in &people {
        assert_limited(&ada.verifies("recovery", &code).await, "codes-per-address");
    }
}

#[tokio::test]
async fn two_servers_together_compare_no_more_guesses_than_the_limit() {
    let t = TestServer::start().await;
    let peer = t.peer().await;
    let code = with_code(&t).await;
    let people = [ada_at(&t, HOME), ada_at(&t, HOME).at(&peer)];
    let guesses = (0..40).map(|number| people[number % 2].verifies("recovery", not(&code)));
    let mut outcomes = BTreeMap::new();
    for response in futures_util::future::join_all(guesses).await {
        *outcomes.entry(response.status).or_insert(0) += 1;
    }
    assert_eq!(outcomes, BTreeMap::from([(403, 10), (429, 30)]));
    // Rejected guesses do not count elsewhere
    ada_at(&t, &attacker_address(1)).verifies("recovery", &code).await.expect(200);
}

#[tokio::test]
async fn a_clock_that_is_set_back_and_forth_permits_no_more_guesses() {
    let t = TestServer::start().await;
    let code = with_code(&t).await;
    let verify = async |code: &str| ada_at(&t, HOME).verifies("recovery", code).await;
    for _ in 0..10 {
        assert_eq!(verify(not(&code)).await.rejection(), (403, "otp_expired".into()));
    }
    for _ in 0..3 {
        t.clock().advance(-Duration::minutes(10));
        assert_limited(&verify(&code).await, "codes-per-address");
        t.clock().advance(Duration::minutes(10));
        assert_limited(&verify(&code).await, "codes-per-address");
    }
    // A clock that was far ahead when a guess was counted blocks no account for good
    t.execute("update portico.attempts set full_at = full_at + interval '10 years'").await;
    assert_limited(&verify(&code).await, "codes-per-address");
    t.clean_up().await;
    verify(&code).await.expect(200);
}

#[tokio::test]
async fn guesses_elsewhere_do_not_block_codes_in_a_known_network() {
    let t = TestServer::with_auth(with_phones).await;
    let phone = "15550001111";
    let ada = t.visitor_with_phone(phone);
    let verify = async |address: &str, code: &str| ada.clone().from_address(address).verifies("sms", code).await;
    ada.requests_code().await.expect(200);
    verify(HOME, &t.text_to(phone).await.code).await.expect(200);
    ada.requests_code().await.expect(200);
    let code = t.texts_when(phone, 2).await.pop().unwrap().code;
    for number in 0..50 {
        let refused = verify(&format!("2001:db8:0:{:x}::1", number / 10), not(&code)).await;
        assert_eq!(refused.rejection(), (403, "otp_expired".into()));
    }
    assert_limited(&verify(&attacker_address(1), &code).await, "codes-per-account");
    verify(HOME, &code).await.expect(200);
    // Guesses in it are limited per hour and per day
    let mut compared = 0;
    for _ in 0..24 {
        for _ in 0..11 {
            compared += usize::from(verify(HOME, not(&code)).await.status == 403);
        }
        t.clock().advance(Duration::HOUR);
    }
    assert!((190..=200).contains(&compared), "{compared}");
    for _ in 0..9 {
        verify(HOME, not(&code)).await;
    }
    assert_limited(&verify(HOME, not(&code)).await, "codes-per-address-and-day");
}

#[tokio::test]
async fn wrong_passwords_of_one_network_are_limited_and_right_ones_are_not_counted() {
    let t = TestServer::start().await;
    t.account(ADA, PASSWORD).await;
    for _ in 0..30 {
        ada_at(&t, HOME).signs_in().await.expect(200);
    }
    for number in 0..10 {
        let email = ["ada@example.com", " ADA@example.com ", "Ada@Example.com"][number % 3];
        assert_wrong(&t.visitor(email).with_password("wrong").from_address(HOME).signs_in().await);
    }
    let refused = ada_at(&t, HOME).signs_in().await;
    let wait = assert_limited(&refused, "passwords-per-address");
    assert_eq!(refused.json()["msg"], "Request rate limit reached");
    assert_eq!(wait, Duration::seconds(360));
    // Only for this account and this network
    t.account("eve@example.com", PASSWORD).await;
    let eve = t.visitor("eve@example.com").with_password(PASSWORD).from_address(HOME);
    eve.signs_in().await.expect(200);
    ada_at(&t, &attacker_address(1)).signs_in().await.expect(200);
    t.clock().advance(wait);
    ada_at(&t, HOME).signs_in().await.expect(200);
}

#[tokio::test]
async fn guesses_elsewhere_do_not_block_passwords_in_a_known_network() {
    let t = TestServer::start().await;
    t.account(ADA, PASSWORD).await;
    ada_at(&t, HOME).signs_in().await.expect(200);
    use_up_from(&t, 0).await;
    let wait = assert_limited(&ada_at(&t, &attacker_address(6)).signs_in().await, "passwords-per-account");
    assert_limited(&ada_at(&t, &attacker_address(1)).signs_in().await, "passwords-per-address");
    for _ in 0..3 {
        ada_at(&t, HOME).signs_in().await.expect(200);
    }
    // Guesses in it are limited all the same
    for _ in 0..10 {
        assert_wrong(&guesser_at(&t, HOME).signs_in().await);
    }
    assert_limited(&ada_at(&t, HOME).signs_in().await, "passwords-per-address");

    // Elsewhere a guess is permitted from time to time, and a right one makes its network known
    t.clock().advance(wait);
    ada_at(&t, &attacker_address(6)).signs_in().await.expect(200);
    assert_wrong(&guesser_at(&t, &attacker_address(7)).signs_in().await);
    assert_limited(&ada_at(&t, &attacker_address(8)).signs_in().await, "passwords-per-account");
    ada_at(&t, &attacker_address(6)).signs_in().await.expect(200);

    // So does a link, which is not counted
    t.visitor(ADA).requests_recovery().await.expect(200);
    let link = link_in(t.nth_mail_to(ADA, 1).await.html());
    assert_limited(&ada_at(&t, &attacker_address(9)).signs_in().await, "passwords-per-account");
    let followed = ada_at(&t, &attacker_address(9)).sends(t.get(link.as_str())).send().await;
    assert_eq!(followed.status, 303);
    ada_at(&t, &attacker_address(9)).signs_in().await.expect(200);
}

#[tokio::test]
async fn an_account_permits_a_number_of_guesses_per_day_and_then_few() {
    let t = TestServer::start().await;
    t.account(ADA, PASSWORD).await;
    let mut compared = 0;
    for number in 0..240 {
        if guesser_at(&t, &format!("2001:db8:0:{number:x}::1")).signs_in().await.status == 400 {
            compared += 1;
        }
        t.clock().advance(Duration::minutes(3));
    }
    // Nearly 12 hours: the limit per day at once, and nearly half of it again
    assert_eq!(compared, 100 + 49);
    assert_wrong(&guesser_at(&t, HOME).signs_in().await);
    let refused = ada_at(&t, HOME).signs_in().await;
    assert!(assert_limited(&refused, "passwords-per-day") <= Duration::seconds(864));
}

#[tokio::test]
async fn limits_do_not_reveal_accounts() {
    let t = TestServer::start().await;
    t.account(ADA, PASSWORD).await;
    let mut responses = Vec::new();
    for email in [ADA, "nobody@example.com"] {
        let mut seen_here = Vec::new();
        for number in 0..75 {
            let guesser = t.visitor(email).with_password("wrong").from_address(&attacker_address(number / 12));
            seen_here.push(seen(&guesser.signs_in().await));
        }
        responses.push(seen_here);
    }
    assert_eq!(responses[0], responses[1]);
    assert!(responses[0].iter().any(|(_, _, limit, _)| limit == "passwords-per-account"));
}

#[tokio::test]
async fn all_spellings_of_a_number_share_one_limit() {
    let t = TestServer::with_auth(|settings| {
        settings.sms.enabled = true;
        settings.sms.autoconfirm = true;
    })
    .await;
    let ada = t.visitor_with_phone("15550001111").with_password(PASSWORD);
    ada.clone().from_address(HOME).signs_up().await.expect(200);
    let address = attacker_address(1);
    for number in 0..10 {
        let written = ["15550001111", "+15550001111", "+1 555 000 1111", " 1 5550001111"][number % 4];
        let guesser = t.visitor_with_phone(written).with_password("wrong").from_address(&address);
        assert_wrong(&guesser.signs_in().await);
    }
    assert_limited(&ada.from_address(&address).signs_in().await, "passwords-per-address");
}

#[tokio::test]
async fn a_sign_up_cannot_circumvent_the_limit() {
    let t = TestServer::with_auth(|settings| {
        settings.email.autoconfirm = true;
        settings.sms.enabled = true;
        settings.sms.autoconfirm = true;
    })
    .await;
    for (ada, column) in
        [(t.visitor(ADA), "email_confirmed_at"), (t.visitor_with_phone("15550001111"), "phone_confirmed_at")]
    {
        let ada = ada.with_password(PASSWORD).from_address(HOME);
        let guesser = ada.clone().with_password("wrong-password");
        ada.signs_up().await.expect(200);
        t.execute(&format!("update auth.users set {column} = null; delete from portico.attempts")).await;
        for _ in 0..10 {
            assert_eq!(guesser.signs_up().await.rejection(), (422, "user_already_exists".into()));
        }
        assert_limited(&ada.signs_up().await, "passwords-per-address");
        assert_limited(&ada.signs_in().await, "passwords-per-address");
    }
}

#[tokio::test]
async fn the_current_password_cannot_be_guessed_and_guesses_limit_only_their_session() {
    let t = TestServer::with_auth(|settings| settings.password_change_needs_current = true).await;
    t.account(ADA, PASSWORD).await;
    let stolen = ada_at(&t, HOME).signed_in().await;
    let own = stolen.on_another_device().await;
    let change = async |person: &Member<'_>, current: &str| {
        let body = json!({"password": "battery-staple", "current_password": current});
        person.changes_account(&body).await
    };
    for _ in 0..10 {
        assert_eq!(change(&stolen, "wrong").await.rejection(), (400, "current_password_invalid".into()));
    }
    assert_limited(&change(&stolen, PASSWORD).await, "passwords-per-session");
    change(&own, PASSWORD).await.expect(200);
}

#[tokio::test]
async fn an_account_knows_its_ten_newest_networks_and_none_of_an_unverified_address() {
    let t = TestServer::with_auth(|settings| settings.sms.enabled = true).await;
    t.account(ADA, PASSWORD).await;
    let known = "select count(*) from portico.known_networks";
    for number in 0..15 {
        ada_at(&t, &attacker_address(number)).signs_in().await.expect(200);
        t.clock().advance(Duration::seconds(1));
    }
    assert_eq!(t.count(known).await, 10);
    use_up_from(&t, 100).await;
    assert_limited(&ada_at(&t, &attacker_address(2)).signs_in().await, "passwords-per-account");
    ada_at(&t, &attacker_address(14)).signs_in().await.expect(200);
    t.clock().advance(Duration::days(179));
    t.clean_up().await;
    assert_eq!(t.count(known).await, 10);
    t.clock().advance(Duration::days(2));
    t.clean_up().await;
    assert_eq!(t.count(known).await, 0);

    // The sign-in of an account by its number does not concern its unverified address
    t.execute("update auth.users set email_confirmed_at = null, phone = '15550001111', phone_confirmed_at = now()")
        .await;
    let by_phone = t.visitor_with_phone("15550001111").with_password(PASSWORD).from_address(HOME);
    by_phone.signs_in().await.expect(200);
    assert_eq!(t.count(known).await, 1);
}

#[tokio::test]
async fn passwords_are_not_limited_when_the_limit_is_disabled() {
    let t = TestServer::with_auth(|settings| settings.rate_limits.passwords = false).await;
    t.account(ADA, PASSWORD).await;
    for _ in 0..30 {
        assert_wrong(&guesser_at(&t, HOME).signs_in().await);
    }
    ada_at(&t, HOME).signs_in().await.expect(200);
    assert_eq!(
        t.count("select (select count(*) from portico.known_networks) + (select count(*) from portico.attempts)").await,
        0
    );
}

#[tokio::test]
async fn two_servers_count_passwords_together() {
    let t = TestServer::start().await;
    let peer: PeerServer = t.peer().await;
    t.account(ADA, PASSWORD).await;
    let guess = async |number: usize| {
        let guesser = guesser_at(&t, &attacker_address(number / 12));
        let guesser = if number.is_multiple_of(2) { guesser } else { guesser.at(&peer) };
        guesser.signs_in().await.status
    };
    let statuses = futures_util::future::join_all((0..96).map(guess)).await;
    assert_eq!(statuses.iter().filter(|status| **status == 400).count(), 50, "{statuses:?}");
}

#[tokio::test]
async fn the_rows_of_a_flood_of_guesses_are_removed_by_the_next_clean_up() {
    let t = TestServer::start().await;
    t.query_with(
        "insert into portico.attempts (kind, account, full_at)
         select 'codes-per-day', sha256(number::text::bytea), $1 from generate_series(1, 20000) as number",
        &[&t.clock().now()],
    )
    .await;
    t.clock().advance(Duration::seconds(1));
    t.clean_up().await;
    assert_eq!(t.count("select count(*) from portico.attempts").await, 0);
}
