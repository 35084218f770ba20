//! Sign-in with wallets: what the official client's tests do not see.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k256::ecdsa::SigningKey;
use portico_testkit::{TestResponse, TestServer, claims_of};
use serde_json::{Value, json};
use sha3::{Digest, Keccak256};
use time::Duration;
use time::format_description::well_known::Rfc3339;

/// A wallet of Ethereum.
struct Wallet(SigningKey);

impl Wallet {
    fn new(seed: u8) -> Self {
        Self(SigningKey::from_slice(&[seed; 32]).unwrap())
    }

    fn address(&self) -> String {
        let hash = Keccak256::digest(&self.0.verifying_key().to_encoded_point(false).as_bytes()[1..]);
        format!("0x{}", hex::encode(&hash[12..]))
    }

    /// Returns a message for `uri` with further lines. Its domain is that of an `https` URI.
    fn message(&self, uri: &str, lines: &str) -> String {
        let domain = uri.trim_start_matches("https://").split('/').next().unwrap();
        format!(
            "{domain} wants you to sign in with your Ethereum account:\n{}\n\nWelcome\n\nURI: {uri}\nVersion: 1\n\
             Chain ID: 1\n{lines}",
            self.address()
        )
    }

    /// Signs as `personal_sign` does.
    fn sign(&self, text: &str) -> String {
        let prefix = format!("\x19Ethereum Signed Message:\n{}", text.len());
        let hash = Keccak256::new().chain_update(prefix).chain_update(text);
        let (signature, recovery_id) = self.0.sign_digest_recoverable(hash).unwrap();
        format!("0x{}{:02x}", hex::encode(signature.to_bytes()), recovery_id.to_byte() + 27)
    }
}

const SITE: &str = "https://app.example.com/login";

async fn server(change: impl FnOnce(&mut portico_auth::AuthSettings)) -> TestServer {
    TestServer::with_auth(|settings| {
        settings.site_url = "https://app.example.com".into();
        settings.web3.ethereum = true;
        change(settings);
    })
    .await
}

fn at(t: &TestServer, offset: Duration) -> String {
    (t.clock().now() + offset).format(&Rfc3339).unwrap()
}

async fn sign_in_with(t: &TestServer, body: &Value) -> TestResponse {
    t.post("/auth/v1/token?grant_type=web3").json(body).send().await
}

async fn sign_in(t: &TestServer, wallet: &Wallet, message: &str) -> TestResponse {
    sign_in_with(t, &json!({"chain": "ethereum", "message": message, "signature": wallet.sign(message)})).await
}

#[tokio::test]
async fn a_wallet_signs_up_and_in() {
    let t = server(|_| {}).await;
    let wallet = Wallet::new(7);
    let message = wallet.message(SITE, &format!("Issued At: {}", at(&t, Duration::ZERO)));

    let session = sign_in(&t, &wallet, &message).await.expect(200).json();

    let user = &session["user"];
    let subject = format!("web3:ethereum:{}", wallet.address());
    let expected = json!({
        "sub": subject,
        "email_verified": false,
        "phone_verified": false,
        "custom_claims": {
            "address": wallet.address(),
            "chain": "ethereum",
            "network": "1",
            "domain": "app.example.com",
            "statement": "Welcome",
        },
    });
    assert_eq!(user["user_metadata"], expected);
    assert_eq!(user["identities"][0]["identity_data"], expected);
    assert_eq!(user["identities"][0]["id"], subject.as_str());
    assert_eq!(user["app_metadata"], json!({"provider": "web3", "providers": ["web3"]}));
    assert_eq!((&user["email"], &user["confirmed_at"]), (&json!(""), &Value::Null));
    let claims = claims_of(session["access_token"].as_str().unwrap());
    assert_eq!(claims["amr"][0]["method"], "web3");
    assert_eq!(t.actions().await, ["login", "login"]);
    let sql =
        "select (payload->'traits')::text from auth.audit_log_entries where payload->'traits'->>'chain' is not null";
    let traits: Value = serde_json::from_str(&t.query(sql).await[0].get::<_, String>(0)).unwrap();
    assert_eq!(
        traits,
        json!({"provider": "web3", "chain": "ethereum", "network": "1", "address": wallet.address(),
            "domain": "app.example.com", "uri": SITE})
    );

    // Another spelling of the address is the same wallet
    let upper = message.replace(&wallet.address()[2..], &wallet.address()[2..].to_uppercase());
    let again = sign_in(&t, &wallet, &upper).await.expect(200).json();
    assert_eq!(again["user"]["id"], user["id"]);
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
}

#[tokio::test]
async fn each_check_has_its_error_in_the_order_of_the_contract() {
    let t = server(|_| {}).await;
    let wallet = Wallet::new(9);
    let now = format!("Issued At: {}", at(&t, Duration::ZERO));
    let old = format!("Issued At: {}", at(&t, -Duration::seconds(601)));
    let new = format!("Issued At: {}", at(&t, Duration::seconds(601)));
    let later = format!("{old}\nNot Before: {}", at(&t, Duration::seconds(1)));
    let ended = format!("{old}\nExpiration Time: {}", at(&t, -Duration::seconds(1)));
    let elsewhere = wallet.message(SITE, &now).replace("app.example.com wants", "evil.example wants");
    for (message, description) in [
        (
            wallet.message("https://evil.example/", &now).replace("URI: https", "URI: http"),
            "Signed Ethereum message is using URI which does not use HTTPS",
        ),
        (
            wallet.message("https://evil.example/", &later),
            "Signed Ethereum message is using URI which is not allowed on this server, message was signed for another app",
        ),
        (
            elsewhere,
            "Signed Ethereum message is using a Domain that does not match the one in URI which is not allowed on this server",
        ),
        (wallet.message(SITE, &later), "Signed Ethereum message becomes valid in the future"),
        (wallet.message(SITE, &ended), "Signed Ethereum message is expired"),
        (wallet.message(SITE, &old), "Ethereum message was issued too long ago"),
        (wallet.message(SITE, &new), "Ethereum message was issued too far in the future"),
    ] {
        let response = sign_in(&t, &wallet, &message).await;
        assert_eq!(response.status, 400, "{description}");
        assert_eq!(response.json(), json!({"error": "invalid_grant", "error_description": description}));
        let forged = sign_in_with(
            &t,
            &json!({"chain": "ethereum", "message": message, "signature": Wallet::new(1).sign(&message)}),
        )
        .await;
        assert_eq!(forged.json()["error_description"], "Signature does not match address in message");
    }
    let message = wallet.message(SITE, &now);
    let signature = wallet.sign(&message);
    for (body, status, code, text) in [
        (
            json!({"chain": "solana", "message": message, "signature": signature}),
            422,
            "web3_provider_disabled",
            "Solana Web3 provider is disabled",
        ),
        (json!({"chain": "bitcoin"}), 400, "web3_unsupported_chain", "Unsupported chain"),
        (json!({"chain": "ethereum", "message": "x"}), 400, "validation_failed", "message is too short"),
        (
            json!({"chain": "ethereum", "message": "x".repeat(20_481)}),
            400,
            "validation_failed",
            "message must not exceed 20KB",
        ),
        (
            json!({"chain": "ethereum", "message": message, "signature": "0x12"}),
            400,
            "validation_failed",
            "signature must be 65 bytes long, encoded as a 130 character-long hexadecimal string",
        ),
        (
            json!({"chain": "ethereum", "message": message.replace('\n', "\r\n"), "signature": signature}),
            400,
            "validation_failed",
            "siwe: message first line does not end in \" wants you to sign in with your Ethereum account:\"",
        ),
    ] {
        let response = sign_in_with(&t, &body).await;
        assert_eq!((response.rejection(), &response.json()["msg"]), ((status, code.to_owned()), &json!(text)));
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
}

/// A wallet of Solana.
struct SolanaWallet(Ed25519KeyPair);

impl SolanaWallet {
    fn new(seed: u8) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    /// Returns a message for [`SITE`] with further lines.
    fn message(&self, lines: &str) -> String {
        let address = bs58::encode(self.0.public_key()).into_string();
        format!(
            "app.example.com wants you to sign in with your Solana account:\n{address}\n\nURI: {SITE}\nVersion: 1\n\
             Chain ID: solana:mainnet\n{lines}"
        )
    }

    fn signed(&self, message: &str) -> Value {
        let signature = BASE64.encode(self.0.sign(message.as_bytes()).as_ref());
        json!({"chain": "solana", "message": message, "signature": signature})
    }
}

#[tokio::test]
async fn a_message_of_solana_is_rejected_for_what_it_says() {
    let t = server(|settings| settings.web3.solana = true).await;
    let wallet = SolanaWallet::new(7);
    let message = |offset: i64| wallet.message(&format!("Issued At: {}", at(&t, Duration::seconds(offset))));
    let valid = message(0);
    for (message, description) in [
        (
            valid.replace(SITE, "http://app.example.com/login"),
            "Signed Solana message is using URI which does not use HTTPS",
        ),
        (
            valid.replace(SITE, "https://evil.example/"),
            "Signed Solana message is using URI which is not allowed on this server, message was signed for another app",
        ),
        (
            valid.replace("app.example.com wants", "evil.example wants"),
            "Signed Solana message is using a Domain that does not match the one in URI which is not allowed on this server",
        ),
        (
            format!("{valid}\nNot Before: {}", at(&t, Duration::seconds(1))),
            "Signed Solana message becomes valid in the future",
        ),
        (message(-601), "Solana message was issued too long ago"),
        (message(601), "Solana message was issued too far in the future"),
    ] {
        let response = sign_in_with(&t, &wallet.signed(&message)).await;
        assert_eq!(response.status, 400, "{description}");
        assert_eq!(response.json(), json!({"error": "invalid_grant", "error_description": description}));
    }
    let mut forged = wallet.signed(&valid);
    forged["signature"] = SolanaWallet::new(8).signed(&valid)["signature"].clone();
    let response = sign_in_with(&t, &forged).await;
    assert_eq!(response.json()["error_description"], "Signature does not match address in message");
    for (message, text) in [
        (valid.replace("solana:mainnet", "1"), "siws: Chain ID is not valid"),
        (
            valid.replace('\n', "\r\n"),
            "siws: message first line does not end in \" wants you to sign in with your Solana account:\"",
        ),
    ] {
        let response = sign_in_with(&t, &wallet.signed(&message)).await;
        assert_eq!(response.rejection(), (400, "validation_failed".into()), "{text}");
        assert_eq!(response.json()["msg"], text);
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 0);
    sign_in_with(&t, &wallet.signed(&valid)).await.expect(200);
}

#[tokio::test]
async fn wallets_obey_the_rules_for_accounts() {
    let t = server(|settings| settings.disable_signup = true).await;
    let wallet = Wallet::new(11);
    let message = wallet.message(SITE, &format!("Issued At: {}", at(&t, Duration::ZERO)));
    assert_eq!(sign_in(&t, &wallet, &message).await.rejection(), (422, "signup_disabled".into()));

    let t = server(|_| {}).await;
    let message = wallet.message(SITE, &format!("Issued At: {}", at(&t, Duration::ZERO)));
    sign_in(&t, &wallet, &message).await.expect(200);
    t.execute("update auth.users set banned_until = now() + interval '1 day'").await;
    assert_eq!(sign_in(&t, &wallet, &message).await.rejection(), (403, "user_banned".into()));
}

#[tokio::test]
async fn one_wallet_that_signs_in_many_times_at_once_has_one_account() {
    let t = server(|_| {}).await;
    let wallet = Wallet::new(13);
    let message = wallet.message(SITE, &format!("Issued At: {}", at(&t, Duration::ZERO)));
    let responses = futures_util::future::join_all((0..6).map(|_| sign_in(&t, &wallet, &message))).await;
    for response in responses {
        response.expect(200);
    }
    assert_eq!(t.count("select count(*) from auth.users").await, 1);
}

#[tokio::test]
async fn a_message_for_an_address_of_this_machine_names_no_other_site() {
    let local = "http://localhost:3000/login";
    let t = server(|settings| settings.redirect_allow_list.push("http://localhost:3000/**".into())).await;
    let wallet = Wallet::new(15);
    let now = format!("Issued At: {}", at(&t, Duration::ZERO));
    let message = wallet.message(local, &now).replace("http: wants", "localhost:3000 wants");
    sign_in(&t, &wallet, &message).await.expect(200);
    // The wallet showed the name of the other site, whose page requested the signature
    let phished = message.replace("localhost:3000 wants", "evil.example wants");
    let description = "Signed Ethereum message is using a Domain that does not match the one in URI which is not allowed on this server";
    let response = sign_in(&t, &wallet, &phished).await;
    assert_eq!(response.json(), json!({"error": "invalid_grant", "error_description": description}));
}
