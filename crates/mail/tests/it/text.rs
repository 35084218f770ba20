//! Text messages: every gateway against a stand-in that keeps the whole request and answers as the
//! test says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri};
use portico_mail::text_message::{
    Credential, MessageBird, OutgoingText, TextChannel, TextError, TextGateway, TextGatewayError, TextGatewaySettings,
    TextProvider, Textlocal, Twilio, TwilioVerify, Vonage,
};

/// The reaction of a test gateway to a request.
#[derive(Clone)]
enum Conduct {
    /// Responds with this status and body.
    Says(u16, &'static str),
    /// Responds with this many bytes, announced or not.
    Floods { bytes: usize, announced: bool },
    /// Never answers.
    Hangs,
    /// Sends the caller somewhere else.
    Redirects,
}

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    method: Method,
    path: String,
    authorization: Option<String>,
    content_type: String,
    form: Vec<(String, String)>,
}

struct StandIn {
    address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl StandIn {
    async fn start(conduct: Conduct) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let router = Router::new().fallback(answer).with_state((conduct, Arc::clone(&seen)));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, seen }
    }

    fn only_request(&self) -> Seen {
        let mut seen = self.seen.lock().unwrap();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.pop().unwrap()
    }
}

async fn answer(
    State((conduct, seen)): State<(Conduct, Arc<Mutex<Vec<Seen>>>)>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    seen.lock().unwrap().push(Seen {
        method,
        path: uri.to_string(),
        authorization: header("authorization"),
        content_type: header("content-type").unwrap_or_default(),
        form: url::form_urlencoded::parse(&body).into_owned().collect(),
    });
    match conduct {
        Conduct::Says(status, body) => {
            Response::builder().status(status).header("content-type", "application/json").body(Body::from(body))
        }
        Conduct::Floods { bytes, announced: true } => Response::builder().body(Body::from(vec![b' '; bytes])),
        Conduct::Floods { bytes, announced: false } => {
            let pieces = (0..bytes / 1024).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 1024])));
            Response::builder().body(Body::from_stream(futures_util::stream::iter(pieces)))
        }
        Conduct::Hangs => std::future::pending().await,
        Conduct::Redirects => Response::builder().status(307).header("location", "/elsewhere").body(Body::empty()),
    }
    .unwrap()
}

fn twilio(content_sid: Option<&str>, sender: &str) -> TextProvider {
    TextProvider::Twilio(Twilio {
        account_sid: "AC123".into(),
        auth_token: Credential::new("t0ken"),
        sender: sender.into(),
        content_sid: content_sid.map(str::to_owned),
    })
}

fn twilio_verify() -> TextProvider {
    TextProvider::TwilioVerify(TwilioVerify {
        account_sid: "AC123".into(),
        auth_token: Credential::new("t0ken"),
        service_sid: "VA456".into(),
    })
}

fn messagebird() -> TextProvider {
    TextProvider::MessageBird(MessageBird { access_key: Credential::new("bird-key"), originator: "Portico".into() })
}

fn textlocal() -> TextProvider {
    TextProvider::Textlocal(Textlocal { api_key: Credential::new("local-key"), sender: "PORTIC".into() })
}

fn vonage() -> TextProvider {
    TextProvider::Vonage(Vonage {
        api_key: "vkey".into(),
        api_secret: Credential::new("v-secret"),
        from: "Portico".into(),
    })
}

/// Returns each provider with a response of success, the id in it, and a response of failure with
/// the text that the person gets.
fn all() -> [(TextProvider, Conduct, &'static str, Conduct, &'static str); 5] {
    [
        (
            twilio(None, "MG789"),
            Conduct::Says(201, r#"{"sid": "SM1", "status": "queued", "error_code": null, "error_message": null}"#),
            "SM1",
            Conduct::Says(
                400,
                r#"{"code": 21211, "message": "The 'To' number is not valid.", "more_info": "https://www.twilio.com/docs/errors/21211", "status": 400}"#,
            ),
            "The 'To' number is not valid. More information: https://www.twilio.com/docs/errors/21211",
        ),
        (
            twilio_verify(),
            Conduct::Says(201, r#"{"sid": "VE1", "status": "pending", "valid": false}"#),
            "VE1",
            Conduct::Says(429, r#"{"code": 60203, "message": "Max send attempts reached", "status": 429}"#),
            "Max send attempts reached",
        ),
        (
            messagebird(),
            Conduct::Says(201, r#"{"id": "mb1", "recipients": {"totalCount": 1, "totalSentCount": 1, "items": []}}"#),
            "mb1",
            Conduct::Says(
                401,
                r#"{"errors": [{"code": 2, "description": "Request not allowed (incorrect access_key)", "parameter": "access_key"}]}"#,
            ),
            "Request not allowed (incorrect access_key)",
        ),
        (
            textlocal(),
            Conduct::Says(200, r#"{"status": "success", "messages": [{"id": "1151346216", "recipient": 1555}]}"#),
            "1151346216",
            Conduct::Says(200, r#"{"errors": [{"code": 3, "message": "Invalid login details"}], "status": "failure"}"#),
            "Invalid login details",
        ),
        (
            vonage(),
            Conduct::Says(
                200,
                r#"{"message-count": "1", "messages": [{"to": "1555", "message-id": "v1", "status": "0"}]}"#,
            ),
            "v1",
            Conduct::Says(
                200,
                r#"{"message-count": "1", "messages": [{"status": "4", "error-text": "Bad Credentials"}]}"#,
            ),
            "Bad Credentials",
        ),
    ]
}

fn text(channel: TextChannel) -> OutgoingText {
    OutgoingText { to: "15550001111".into(), body: "Your code is 123456 & more".into(), code: "123456".into(), channel }
}

fn gateway(provider: TextProvider, base: &str) -> TextGateway {
    let settings = TextGatewaySettings {
        base_url: Some(base.to_owned()),
        timeout: Duration::from_secs(60),
        allow_insecure_loopback: true,
        ..TextGatewaySettings::new(provider)
    };
    TextGateway::new(settings).unwrap()
}

async fn send_to(provider: TextProvider, conduct: Conduct) -> (Result<String, TextError>, StandIn) {
    let stand_in = StandIn::start(conduct).await;
    let sent = gateway(provider, &stand_in.address).send(&text(TextChannel::Sms)).await;
    (sent, stand_in)
}

fn form(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// `base64("AC123:t0ken")`
const TWILIO_BASIC: &str = "Basic QUMxMjM6dDBrZW4=";

#[tokio::test]
async fn each_gateway_gets_the_request_that_it_documents() {
    let body = "Your code is 123456 & more";
    let expected = [
        (
            "/2010-04-01/Accounts/AC123/Messages.json",
            Some(TWILIO_BASIC),
            form(&[("To", "+15550001111"), ("From", "MG789"), ("Body", body)]),
        ),
        ("/v2/Services/VA456/Verifications", Some(TWILIO_BASIC), form(&[("To", "+15550001111"), ("Channel", "sms")])),
        (
            "/messages",
            Some("AccessKey bird-key"),
            form(&[
                ("originator", "Portico"),
                ("recipients", "15550001111"),
                ("body", body),
                ("type", "sms"),
                ("datacoding", "auto"),
            ]),
        ),
        (
            "/send",
            None,
            form(&[("apikey", "local-key"), ("sender", "PORTIC"), ("message", body), ("numbers", "15550001111")]),
        ),
        (
            "/sms/json",
            None,
            form(&[
                ("api_key", "vkey"),
                ("api_secret", "v-secret"),
                ("from", "Portico"),
                ("to", "15550001111"),
                ("text", body),
            ]),
        ),
    ];
    for ((provider, success, id, ..), (path, authorization, form)) in all().into_iter().zip(expected) {
        let name = provider.name();
        let (sent, stand_in) = send_to(provider, success).await;
        assert_eq!(sent.as_deref(), Ok(id), "{name}");
        let expected = Seen {
            method: Method::POST,
            path: path.to_owned(),
            authorization: authorization.map(str::to_owned),
            content_type: "application/x-www-form-urlencoded".to_owned(),
            form,
        };
        assert_eq!(stand_in.only_request(), expected, "{name}");
    }
}

#[tokio::test]
async fn the_explanation_of_a_gateway_reaches_the_caller() {
    for (provider, _, _, failure, explanation) in all() {
        let name = provider.name();
        let (sent, stand_in) = send_to(provider, failure).await;
        assert_eq!(sent.unwrap_err().to_string(), explanation, "{name}");
        stand_in.only_request();
    }
}

#[tokio::test]
async fn no_gateway_can_do_harm_by_its_answer() {
    let table = [
        (Conduct::Says(503, "<html>Service unavailable</html>"), TextError::Status(503)),
        (Conduct::Says(500, r#"{"message": 5, "errors": "no", "messages": {}}"#), TextError::Status(500)),
        (Conduct::Says(200, "<html>Welcome</html>"), TextError::Malformed),
        (Conduct::Says(200, "[]"), TextError::Malformed),
        (Conduct::Says(200, r#"{"sid": 5, "id": {}, "status": [], "messages": [5]}"#), TextError::Malformed),
        (Conduct::Says(200, r#"{"status": "success", "messages": []}"#), TextError::Malformed),
        (Conduct::Redirects, TextError::Status(307)),
        (Conduct::Floods { bytes: 5 << 20, announced: true }, TextError::TooLarge),
        (Conduct::Floods { bytes: 5 << 20, announced: false }, TextError::TooLarge),
    ];
    for (conduct, expected) in table {
        for (provider, ..) in all() {
            let name = provider.name();
            let (sent, stand_in) = send_to(provider, conduct.clone()).await;
            assert_eq!(sent, Err(expected.clone()), "{name}");
            stand_in.only_request();
        }
    }
}

#[tokio::test]
async fn a_silent_gateway_is_given_up() {
    let stand_in = StandIn::start(Conduct::Hangs).await;
    for (provider, ..) in all() {
        let gateway = TextGateway::new(TextGatewaySettings {
            base_url: Some(stand_in.address.clone()),
            timeout: Duration::from_millis(100),
            allow_insecure_loopback: true,
            ..TextGatewaySettings::new(provider)
        });
        let sent = gateway.unwrap().send(&text(TextChannel::Sms)).await;
        assert_eq!(sent, Err(TextError::TimedOut));
    }
}

#[tokio::test]
async fn a_gateway_that_is_not_there_is_said_to_be_so() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let sent = gateway(textlocal(), &address).send(&text(TextChannel::Sms)).await;
    assert_eq!(sent, Err(TextError::Unreachable));
}

#[tokio::test]
async fn a_message_that_was_taken_and_failed_at_once_was_not_sent() {
    let table = [
        (
            twilio(None, "MG789"),
            r#"{"sid": "SM1", "status": "failed", "error_code": 30006, "error_message": "Landline"}"#,
            "Landline",
        ),
        (
            messagebird(),
            r#"{"id": "mb1", "recipients": {"totalCount": 1, "totalSentCount": 0}}"#,
            "the message was sent to no recipient",
        ),
        (
            vonage(),
            r#"{"messages": [{"status": "0", "message-id": "v1"}, {"status": "9", "error-text": "Quota exceeded"}]}"#,
            "Quota exceeded",
        ),
        (
            textlocal(),
            r#"{"status": "failure", "errors": [{"code": 7, "message": "Insufficient credits"}]}"#,
            "Insufficient credits",
        ),
    ];
    for (provider, answer, explanation) in table {
        let (sent, _) = send_to(provider, Conduct::Says(201, answer)).await;
        assert_eq!(sent.unwrap_err().to_string(), explanation);
    }
}

#[tokio::test]
async fn an_explanation_never_repeats_our_credential() {
    let answer = Conduct::Says(401, r#"{"errors": [{"description": "Key bird-key\r\nis unknown"}]}"#);
    let (sent, _) = send_to(messagebird(), answer).await;
    assert_eq!(sent.unwrap_err().to_string(), "Key *** is unknown");
    assert!(!format!("{:?} {:?}", messagebird(), twilio(None, "MG789")).contains("-key"));
}

#[tokio::test]
async fn whatsapp_is_spoken_by_twilio_alone() {
    let accepted = Conduct::Says(201, r#"{"sid": "SM1", "status": "queued"}"#);
    let whatsapp = text(TextChannel::WhatsApp);
    let number = "+15559990000";
    let table = [
        (
            twilio(Some("HX1"), number),
            form(&[
                ("To", "whatsapp:+15550001111"),
                ("From", "whatsapp:+15559990000"),
                ("ContentSid", "HX1"),
                ("ContentVariables", r#"{"1":"123456"}"#),
            ]),
        ),
        (
            twilio(None, "MG789"),
            form(&[("To", "whatsapp:+15550001111"), ("From", "MG789"), ("Body", "Your code is 123456 & more")]),
        ),
        (twilio_verify(), form(&[("To", "+15550001111"), ("Channel", "whatsapp")])),
    ];
    for (provider, expected) in table {
        let stand_in = StandIn::start(accepted.clone()).await;
        let gateway = gateway(provider, &stand_in.address);
        assert!(gateway.speaks_whatsapp());
        assert_eq!(gateway.send(&whatsapp).await.as_deref(), Ok("SM1"));
        assert_eq!(stand_in.only_request().form, expected);
    }
    // An SMS needs no template
    let stand_in = StandIn::start(accepted.clone()).await;
    gateway(twilio(Some("HX1"), number), &stand_in.address).send(&text(TextChannel::Sms)).await.unwrap();
    let plain = form(&[("To", "+15550001111"), ("From", number), ("Body", "Your code is 123456 & more")]);
    assert_eq!(stand_in.only_request().form, plain);
    for provider in [messagebird(), textlocal(), vonage()] {
        let stand_in = StandIn::start(accepted.clone()).await;
        let gateway = gateway(provider, &stand_in.address);
        assert!(!gateway.speaks_whatsapp());
        gateway.send(&whatsapp).await.unwrap_err();
        assert!(stand_in.seen.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn other_alphabets_are_announced_to_vonage() {
    let stand_in = StandIn::start(all()[4].1.clone()).await;
    let cyrillic = OutgoingText { body: "Ваш код 123456".into(), ..text(TextChannel::Sms) };
    gateway(vonage(), &stand_in.address).send(&cyrillic).await.unwrap();
    let sent = stand_in.only_request().form;
    assert!(sent.contains(&("type".into(), "unicode".into())) && sent.contains(&("text".into(), cyrillic.body)));
}

#[tokio::test]
async fn twilio_verify_accepts_right_codes_and_rejects_wrong_ones() {
    let table = [
        (200, r#"{"sid": "VE1", "status": "approved", "valid": true}"#, Ok(true)),
        (200, r#"{"sid": "VE1", "status": "pending", "valid": false}"#, Ok(false)),
        (404, r#"{"code": 20404, "message": "The requested resource was not found", "status": 404}"#, Ok(false)),
        (429, r#"{"code": 60202, "message": "Max check attempts reached", "status": 429}"#, Ok(false)),
        (401, r#"{"code": 20003, "message": "Authenticate"}"#, Err(TextError::Refused("Authenticate".into()))),
        (404, "<html>", Err(TextError::Status(404))),
        (200, r#"{"status": true}"#, Err(TextError::Malformed)),
    ];
    for (status, body, expected) in table {
        let stand_in = StandIn::start(Conduct::Says(status, body)).await;
        let gateway = gateway(twilio_verify(), &stand_in.address);
        assert!(gateway.checks_codes());
        assert_eq!(gateway.check("15550001111", "123456").await, Some(expected), "{body}");
        let seen = stand_in.only_request();
        assert_eq!(seen.path, "/v2/Services/VA456/VerificationCheck");
        assert_eq!(seen.authorization.as_deref(), Some(TWILIO_BASIC));
        assert_eq!(seen.form, form(&[("To", "+15550001111"), ("Code", "123456")]));
    }
    // A text that cannot be a code causes no call
    let stand_in = StandIn::start(Conduct::Hangs).await;
    let gateway = gateway(twilio_verify(), &stand_in.address);
    for code in ["", "123", "12345678901", "12345a", "１２３４５６"] {
        assert_eq!(gateway.check("15550001111", code).await, Some(Ok(false)), "{code}");
    }
}

#[tokio::test]
async fn the_other_gateways_know_no_codes() {
    for (provider, ..) in all() {
        let gateway = gateway(provider, "http://127.0.0.1:9");
        if gateway.name() != "twilio_verify" {
            assert!(!gateway.checks_codes() && gateway.check("15550001111", "123456").await.is_none());
        }
    }
}

#[tokio::test]
async fn a_path_before_the_api_is_kept_and_no_setting_leaves_it() {
    let stand_in = StandIn::start(Conduct::Says(201, r#"{"sid": "SM1"}"#)).await;
    let odd = Twilio {
        account_sid: "../x?y#z".into(),
        auth_token: Credential::new("t0ken"),
        sender: "MG1".into(),
        content_sid: None,
    };
    let base = format!("{}/relay/", stand_in.address);
    gateway(TextProvider::Twilio(odd), &base).send(&text(TextChannel::Sms)).await.unwrap();
    assert_eq!(stand_in.only_request().path, "/relay/2010-04-01/Accounts/..%2Fx%3Fy%23z/Messages.json");
}

#[test]
fn credentials_are_sent_over_encrypted_connections_or_to_this_machine_only() {
    let at = |url: &str, allow_insecure_loopback| {
        let settings = TextGatewaySettings {
            base_url: Some(url.to_owned()),
            allow_insecure_loopback,
            ..TextGatewaySettings::new(vonage())
        };
        TextGateway::new(settings).map(drop)
    };
    for url in ["http://127.0.0.1:9", "http://localhost:9/x", "http://[::1]:9"] {
        assert_eq!(at(url, true), Ok(()), "{url}");
        assert_eq!(at(url, false), Err(TextGatewayError::Insecure), "{url}");
    }
    assert_eq!(at("https://rest-eu.nexmo.com", false), Ok(()));
    for url in ["http://rest.nexmo.com", "http://10.0.0.1", "http://127.0.0.1.portico.test", "ftp://127.0.0.1"] {
        assert_eq!(at(url, true), Err(TextGatewayError::Insecure), "{url}");
    }
    for url in
        ["nonsense", "https://a:b@rest.nexmo.com", "https://rest.nexmo.com?x", "https://rest.nexmo.com#x", "data:x"]
    {
        assert_eq!(at(url, true), Err(TextGatewayError::Address), "{url}");
    }
    assert!(TextGateway::new(TextGatewaySettings::new(vonage())).is_ok());
}
