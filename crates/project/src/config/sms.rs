//! `[auth.sms]`: text messages and sign-in by phone.

use std::collections::BTreeMap;
use std::time::Duration;

use portico_base::Secret;

use crate::error::WarningKind;
use crate::section::Section;

/// `[auth.sms]`
#[derive(Debug, Clone)]
pub struct SmsConfig {
    /// True if the phone provider is on.
    pub enable_signup: bool,
    /// True if a new number has to be confirmed.
    pub enable_confirmations: bool,
    /// Text of the message.
    pub template: String,
    /// The pause between two messages to one number.
    pub max_frequency: Duration,
    /// Fixed codes by phone number (digits only).
    pub test_otp: BTreeMap<String, String>,
    /// The first enabled provider.
    pub provider: Option<SmsProvider>,
}

/// The provider that delivers text messages.
#[derive(Debug, Clone)]
pub enum SmsProvider {
    /// `[auth.sms.twilio]`
    Twilio {
        /// Account.
        account_sid: String,
        /// Messaging service or sender.
        message_service_sid: String,
        /// Its password.
        auth_token: Secret,
    },
    /// `[auth.sms.twilio_verify]`
    TwilioVerify {
        /// Account.
        account_sid: String,
        /// Verification service.
        message_service_sid: String,
        /// Its password.
        auth_token: Secret,
    },
    /// `[auth.sms.messagebird]`
    Messagebird {
        /// Sender.
        originator: String,
        /// Its password.
        access_key: Secret,
    },
    /// `[auth.sms.textlocal]`
    Textlocal {
        /// Sender.
        sender: String,
        /// Its password.
        api_key: Secret,
    },
    /// `[auth.sms.vonage]`
    Vonage {
        /// Sender.
        from: String,
        /// Account.
        api_key: String,
        /// Its password.
        api_secret: Secret,
    },
}

impl SmsConfig {
    pub(crate) fn read(mut sms: Section<'_, '_, '_>) -> Self {
        let enable_signup = sms.flag_or("enable_signup", false);
        let mut test = sms.section("test_otp");
        let numbers = test.names();
        let test_otp =
            numbers.into_iter().filter_map(|number| Some((number.to_owned(), test.any_text(number)?))).collect();
        let is_off = sms.is_quiet();
        let provider = [twilio, twilio_verify, messagebird, textlocal, vonage]
            .map(|read| read(&mut sms))
            .into_iter()
            .flatten()
            .next();
        if enable_signup && provider.is_none() && !is_off {
            sms.reading().warn(
                WarningKind::Information,
                sms.position("enable_signup"),
                "auth.sms",
                "no SMS provider is enabled: `portico dev` captures text messages, `portico serve` disables phone login",
            );
        }
        Self {
            enable_signup,
            enable_confirmations: sms.flag_or("enable_confirmations", false),
            template: sms.text_or("template", "Your code is {{ .Code }}"),
            max_frequency: sms.duration_or("max_frequency", Duration::from_secs(5)),
            test_otp,
            provider,
        }
    }
}

/// Opens a provider's section. Warnings and requirements apply only if it is enabled.
fn open<'r, 'e, 'n>(sms: &mut Section<'r, 'e, 'n>, name: &'static str) -> (Section<'r, 'e, 'n>, bool) {
    let mut section = sms.section(name);
    let enabled = section.flag_or("enabled", false);
    section.quiet_unless(enabled);
    (section, enabled)
}

fn required_text(section: &mut Section<'_, '_, '_>, name: &'static str) -> Option<String> {
    let text = section.text(name).filter(|text| !text.is_empty());
    section.require(name, text.is_some());
    text
}

fn required_secret(section: &mut Section<'_, '_, '_>, name: &'static str) -> Option<Secret> {
    let secret = section.secret(name);
    section.require(name, secret.is_some());
    secret
}

fn twilio_account(section: &mut Section<'_, '_, '_>) -> (Option<String>, Option<String>, Option<Secret>) {
    (
        required_text(section, "account_sid"),
        required_text(section, "message_service_sid"),
        required_secret(section, "auth_token"),
    )
}

fn twilio(sms: &mut Section<'_, '_, '_>) -> Option<SmsProvider> {
    let (mut section, enabled) = open(sms, "twilio");
    let (account_sid, message_service_sid, auth_token) = twilio_account(&mut section);
    let provider = SmsProvider::Twilio {
        account_sid: account_sid?,
        message_service_sid: message_service_sid?,
        auth_token: auth_token?,
    };
    enabled.then_some(provider)
}

fn twilio_verify(sms: &mut Section<'_, '_, '_>) -> Option<SmsProvider> {
    let (mut section, enabled) = open(sms, "twilio_verify");
    let (account_sid, message_service_sid, auth_token) = twilio_account(&mut section);
    let provider = SmsProvider::TwilioVerify {
        account_sid: account_sid?,
        message_service_sid: message_service_sid?,
        auth_token: auth_token?,
    };
    enabled.then_some(provider)
}

fn messagebird(sms: &mut Section<'_, '_, '_>) -> Option<SmsProvider> {
    let (mut section, enabled) = open(sms, "messagebird");
    let originator = required_text(&mut section, "originator");
    let access_key = required_secret(&mut section, "access_key");
    let provider = SmsProvider::Messagebird { originator: originator?, access_key: access_key? };
    enabled.then_some(provider)
}

fn textlocal(sms: &mut Section<'_, '_, '_>) -> Option<SmsProvider> {
    let (mut section, enabled) = open(sms, "textlocal");
    let sender = required_text(&mut section, "sender");
    let api_key = required_secret(&mut section, "api_key");
    let provider = SmsProvider::Textlocal { sender: sender?, api_key: api_key? };
    enabled.then_some(provider)
}

fn vonage(sms: &mut Section<'_, '_, '_>) -> Option<SmsProvider> {
    let (mut section, enabled) = open(sms, "vonage");
    let from = required_text(&mut section, "from");
    let api_key = required_text(&mut section, "api_key");
    let api_secret = required_secret(&mut section, "api_secret");
    let provider = SmsProvider::Vonage { from: from?, api_key: api_key?, api_secret: api_secret? };
    enabled.then_some(provider)
}
