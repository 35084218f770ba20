//! The pages of the stand-in. They work without scripts and load nothing from elsewhere.

use std::sync::LazyLock;

use axum::response::{Html, IntoResponse, Response};
use http::header;
use portico_mail::Template;
use serde::Serialize;

use super::account::Account;

/// Nothing but our own style and pictures. `form-action` is left open on purpose: browsers apply it
/// to the redirects that follow a form as well, and those lead to the application.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'";

static CHOOSER: LazyLock<Template> =
    LazyLock::new(|| Template::parse(include_str!("chooser.html")).expect("the chooser's page is a template"));
static ERROR: LazyLock<Template> =
    LazyLock::new(|| Template::parse(include_str!("error.html")).expect("the error page is a template"));

/// The content of the account chooser.
pub(super) struct Chooser<'p> {
    pub issuer: &'p str,
    pub request: &'p str,
    /// The host, and port, that the person goes back to.
    pub client: &'p str,
    pub people: &'p [&'p Account],
    pub problem: Option<&'p str>,
    pub hosted_domain: Option<&'p str>,
    pub name: &'p str,
    pub email: &'p str,
}

#[derive(Serialize)]
struct Person<'p> {
    sub: &'p str,
    name: &'p str,
    email: &'p str,
    verified: bool,
    picture: String,
}

#[derive(Serialize)]
struct ChooserPage<'p> {
    issuer: &'p str,
    request: &'p str,
    client: &'p str,
    people: Vec<Person<'p>>,
    problem: Option<&'p str>,
    domain: Option<&'p str>,
    name: &'p str,
    email: &'p str,
}

pub(super) fn chooser(page: &Chooser<'_>) -> Response {
    let people = page.people.iter().map(|account| Person {
        sub: &account.sub,
        name: &account.name,
        email: &account.email,
        verified: account.email_verified,
        // The version changes with the name, so that a browser does not show the old letters
        picture: format!("{}/avatar/{}.svg?v={}", page.issuer, account.sub, account.initials()),
    });
    let shown = ChooserPage {
        issuer: page.issuer,
        request: page.request,
        client: page.client,
        people: people.collect(),
        problem: page.problem,
        domain: page.hosted_domain,
        name: page.name,
        email: page.email,
    };
    html(&CHOOSER, &shown)
}

pub(super) fn error(style: &str, title: &str, text: &str) -> Response {
    #[derive(Serialize)]
    struct ErrorPage<'p> {
        style: &'p str,
        title: &'p str,
        text: &'p str,
    }
    html(&ERROR, &ErrorPage { style, title, text })
}

fn html(template: &Template, shown: &impl Serialize) -> Response {
    match template.render(shown) {
        Ok(page) => (
            [
                (header::CONTENT_SECURITY_POLICY, POLICY),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (header::X_FRAME_OPTIONS, "DENY"),
                // With no-referrer browsers would send `Origin: null` along with the form
                (header::REFERRER_POLICY, "same-origin"),
                (header::CACHE_CONTROL, "no-store"),
            ],
            Html(page),
        )
            .into_response(),
        Err(error) => {
            tracing::error!(error = %error, "a page of the identity provider could not be written");
            http::StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// `GET /style.css`
pub(super) async fn style() -> Response {
    (
        [(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")],
        include_str!("style.css"),
    )
        .into_response()
}

/// Returns a picture with the person's initials.
pub(super) fn avatar(account: &Account) -> String {
    let hue = account.hue();
    let letters: String = account
        .initials()
        .chars()
        .map(|letter| match letter {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            other => other.to_string(),
        })
        .collect();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 96 96\" width=\"96\" height=\"96\">\
         <rect width=\"96\" height=\"96\" fill=\"hsl({hue} 52% 36%)\"/>\
         <text x=\"48\" y=\"49\" fill=\"#fff\" font-family=\"system-ui,sans-serif\" font-size=\"38\" font-weight=\"600\" \
         text-anchor=\"middle\" dominant-baseline=\"central\">{letters}</text></svg>"
    )
}
