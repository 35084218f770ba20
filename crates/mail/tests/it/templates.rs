use portico_base::colour::Colour;
use portico_mail::{MailKind, Templates, Variables, plain_text};
use serde_json::json;

fn variables() -> Variables {
    Variables {
        site_url: "https://app.example.com".into(),
        brand_name: "Harbour & Sons".into(),
        confirmation_url: Some(
            "https://app.example.com/auth/v1/verify?token=abc&type=signup&redirect_to=https://app.example.com".into(),
        ),
        token: Some("246813".into()),
        token_hash: Some("abc".into()),
        email: "ann@example.com".into(),
        new_email: Some("new@example.com".into()),
        old_email: Some("old@example.com".into()),
        old_phone: Some("4170".into()),
        phone: Some("4179".into()),
        provider: Some("google".into()),
        factor_type: Some("totp".into()),
        passkey_name: Some("Ann's phone".into()),
        recovery_codes_left: Some("7".into()),
        security_url: Some("https://app.example.com/app/security".into()),
        sign_in_url: Some("https://app.example.com/sign-in".into()),
        data: json!({"name": "Ann"}),
        ..Variables::default()
    }
}

#[test]
fn every_kind_has_a_mail_of_its_own() {
    for kind in MailKind::ALL {
        let mail = Templates::default().render(kind, &variables()).unwrap();
        let text = plain_text(&mail.html);
        let link = "href=\"https://app.example.com/auth/v1/verify?token=abc&amp;type=signup&amp;redirect_to=https://app.example.com\"";
        assert_eq!(mail.html.contains(link), kind.link_type().is_some(), "{kind:?}");
        let help = "href=\"https://app.example.com/app/security\"";
        assert_eq!(mail.html.contains(help), kind.is_notification(), "{kind:?}");
        let sign_in = "href=\"https://app.example.com/sign-in\"";
        assert_eq!(mail.html.contains(sign_in), kind == MailKind::AccountExists, "{kind:?}");
        let has_link = kind.link_type().is_some() || kind.is_notification() || kind == MailKind::AccountExists;
        assert_eq!(mail.html.matches("href=").count(), usize::from(has_link), "{kind:?}");
        let has_code = kind.link_type().is_some() || kind == MailKind::Reauthentication;
        assert_eq!(text.contains("246813"), has_code, "{kind:?}");
        assert_eq!(text.contains("Never share this code."), has_code, "{kind:?}");
        assert!(text.contains("Harbour & Sons"), "{kind:?}");
        assert!(!mail.subject.as_str().is_empty() && !mail.html.contains("[["), "{kind:?}");
        assert_eq!(MailKind::from_key(kind.key()), Some(kind));
        // A suite that looks for six digits must find the code and no colour
        let digits = mail.html.split(|character: char| !character.is_ascii_digit()).find(|run| run.len() == 6);
        assert_eq!(digits, has_code.then_some("246813"), "{kind:?}");
    }
    let mail = Templates::default().render(MailKind::Reauthentication, &variables()).unwrap();
    assert_eq!(mail.subject.as_str(), "246813 is your verification code");
    let mail = Templates::default().render(MailKind::MfaFactorEnrolled, &variables()).unwrap();
    assert!(plain_text(&mail.html).contains("now needs a second step: an authenticator app."));
    let mail = Templates::default().render(MailKind::IdentityLinked, &variables()).unwrap();
    assert!(plain_text(&mail.html).contains("You can now sign in to ann@example.com with Google."));
    for (kind, named, unnamed) in [
        (MailKind::PasskeyAdded, "sign in to ann@example.com with the passkey “Ann's phone”.", "with a passkey."),
        (
            MailKind::PasskeyRemoved,
            "sign in to ann@example.com with the passkey “Ann's phone”.",
            "one of your passkeys.",
        ),
    ] {
        for (name, expected) in [(Some("Ann's phone".to_owned()), named), (None, unnamed)] {
            let mail = Templates::default().render(kind, &Variables { passkey_name: name, ..variables() }).unwrap();
            assert!(plain_text(&mail.html).contains(expected), "{}", mail.html);
        }
    }
    let mail = Templates::default().render(MailKind::RecoveryCodeUsed, &variables()).unwrap();
    assert!(plain_text(&mail.html).contains("to ann@example.com. Codes left: 7."));
    let mail = Templates::default().render(MailKind::EmailChange, &variables()).unwrap();
    assert!(plain_text(&mail.html).contains("changes from ann@example.com to new@example.com"));
    let to = |address: &str| Variables { sending_to: Some(address.to_owned()), ..variables() };
    for (address, subject, action) in [
        ("ann@example.com", "Approve changing your email address", "Approve the change"),
        ("new@example.com", "Confirm your new email address", "Confirm email address"),
    ] {
        let mail = Templates::default().render(MailKind::EmailChange, &to(address)).unwrap();
        assert_eq!(mail.subject.as_str(), subject);
        assert!(
            mail.html.contains(action) && mail.html.contains(&format!("<title>{subject}</title>")),
            "{}",
            mail.html
        );
    }
}

#[test]
fn a_notification_names_the_provider_as_people_know_it() {
    for (provider, name) in [
        ("google", "Google"),
        ("azure", "Microsoft"),
        ("linkedin_oidc", "LinkedIn"),
        ("x", "X"),
        ("email", "an email address"),
        ("phone", "a phone number"),
        ("custom:acme", "acme"),
        ("custom:", "custom:"),
        ("vercel_marketplace", "vercel_marketplace"),
        ("ö<b>", "ö<b>"),
    ] {
        for (kind, text) in [
            (MailKind::IdentityLinked, "You can now sign in to ann@example.com with"),
            (MailKind::IdentityUnlinked, "You can no longer sign in to ann@example.com with"),
        ] {
            let variables = Variables { provider: Some(provider.to_owned()), ..variables() };
            let mail = Templates::default().render(kind, &variables).unwrap();
            let shown = plain_text(&mail.html);
            assert!(shown.contains(&format!("{text} {name}.")), "{provider}: {shown}");
            assert!(!mail.html.contains("<b>"), "{}", mail.html);
        }
    }
}

#[test]
fn buttons_have_the_colour_of_the_product_and_readable_text() {
    for (accent, style) in [
        ("#4f46e5", "background:#4f46e5;color:#ffffff"),
        ("#fde047", "background:#fde047;color:#000"),
        // Six decimal digits could be taken for a code
        ("#123456", "background:#135;color:#ffffff"),
    ] {
        let templates = Templates::with_accent(Colour::parse(accent).unwrap());
        let html = templates.render(MailKind::MagicLink, &variables()).unwrap().html;
        assert!(html.contains(style), "{accent}: {html}");
    }
}

#[test]
fn an_email_without_a_page_to_lead_to_has_no_link() {
    let leads_to_page = |kind: &MailKind| kind.is_notification() || *kind == MailKind::AccountExists;
    for kind in MailKind::ALL.into_iter().filter(leads_to_page) {
        let variables = Variables { security_url: None, sign_in_url: None, ..variables() };
        let mail = Templates::default().render(kind, &variables).unwrap();
        assert!(!mail.html.contains("href=") && plain_text(&mail.html).contains("If this wasn’t you"), "{kind:?}");
    }
}

#[test]
fn a_projects_own_texts_replace_the_built_in_ones() {
    let mut templates = Templates::default();
    templates.set_subject(MailKind::MagicLink, "Hi {{ .Data.name }}\n{{ .Missing }}& more").unwrap();
    templates
        .set_body(
            MailKind::MagicLink,
            "<a href=\"{{ .SiteURL }}/auth/confirm?token_hash={{ .TokenHash }}&type=email\">go</a>",
        )
        .unwrap();
    let mail = templates.render(MailKind::MagicLink, &variables()).unwrap();
    assert_eq!(mail.subject.as_str(), "Hi Ann & more");
    assert_eq!(mail.html, "<a href=\"https://app.example.com/auth/confirm?token_hash=abc&type=email\">go</a>");
    assert!(templates.set_body(MailKind::Invite, "{{ if }}").is_err());
}

#[test]
fn a_template_that_fails_gives_way_to_the_built_in_one() {
    let mut templates = Templates::default();
    templates.set_body(MailKind::Recovery, "{{ range .Token }}{{ end }}").unwrap();
    templates.set_subject(MailKind::Recovery, "{{ lt .Token 1 }}").unwrap();
    let mail = templates.render(MailKind::Recovery, &variables()).unwrap();
    assert_eq!(mail.subject.as_str(), "Reset your password");
    assert!(mail.html.contains("246813"));
}

#[test]
fn a_template_file_is_read_again_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("invite.html");
    std::fs::write(&path, "first {{ .Token }}").unwrap();
    let mut templates = Templates::default();
    templates.set_body_file(MailKind::Invite, &path).unwrap();
    let body = |templates: &Templates| templates.render(MailKind::Invite, &variables()).unwrap().html;
    assert_eq!(body(&templates), "first 246813");
    std::fs::write(&path, "the second {{ .Token }}").unwrap();
    assert_eq!(body(&templates), "the second 246813");
    std::fs::write(&path, "broken {{ if }} and longer").unwrap();
    assert_eq!(body(&templates), "the second 246813");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(body(&templates), "the second 246813");
    assert!(templates.set_body_file(MailKind::Invite, folder.path().join("none.html")).is_err());
}

#[test]
fn a_body_that_arrives_later_replaces_the_built_in_one() {
    let mut templates = Templates::default();
    templates.expect_body(MailKind::Recovery);
    let clone = templates.clone();
    let body = || clone.render(MailKind::Recovery, &variables()).unwrap().html;
    let built_in = Templates::default().render(MailKind::Recovery, &variables()).unwrap().html;
    assert_eq!(body(), built_in);
    templates.put_body(MailKind::Recovery, "<p>{{ .Data.name }}</p>").unwrap();
    assert_eq!(body(), "<p>Ann</p>");
    assert!(templates.put_body(MailKind::Recovery, "{{ if }}").is_err());
    assert!(templates.put_body(MailKind::Recovery, &"x".repeat(1_000_001)).is_err());
    assert_eq!(body(), "<p>Ann</p>", "the last good one stays");
    // A body that was not announced stays unchanged
    templates.put_body(MailKind::Invite, "<p>other</p>").unwrap();
    assert!(!templates.render(MailKind::Invite, &variables()).unwrap().html.contains("other"));
}
