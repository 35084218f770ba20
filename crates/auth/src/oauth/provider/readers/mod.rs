//! The profile readers: one small function per provider, from its responses to a [`Profile`].
//!
//! Readers are pure. They trust nothing: a missing or wrongly typed value is either left out, or
//! makes the response an [`UnreadableProfile`] where an account cannot be created without it.

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::model::JsonObject;
use crate::oauth::provider::description::ProfileSources;
use crate::oauth::provider::profile::{Profile, ProfileBuilder, UnreadableProfile, identifier, text, truth};

type ProfileResult = Result<Profile, UnreadableProfile>;

fn member<'a>(claims: &'a JsonObject, key: &str) -> Option<&'a str> {
    claims.get(key).and_then(Value::as_str)
}

/// Starts a profile with the `iss` and `sub` of verified claims.
fn from_claims(sources: &ProfileSources<'_>, claims: &JsonObject) -> Result<ProfileBuilder, UnreadableProfile> {
    let subject = member(claims, "sub").ok_or(UnreadableProfile("subject"))?;
    ProfileBuilder::new(member(claims, "iss").unwrap_or(sources.issuer), subject)
}

/// Returns the claims of the id_token, else of the first userinfo document.
fn openid_claims<'a>(sources: &'a ProfileSources<'_>) -> Result<&'a JsonObject, UnreadableProfile> {
    sources.id_token.or_else(|| sources.document(0).as_object()).ok_or(UnreadableProfile("claims"))
}

/// The standard claims of OpenID Connect Core 5.1 that are texts and are copied unchanged.
const STANDARD: [&str; 12] = [
    "given_name",
    "family_name",
    "middle_name",
    "nickname",
    "preferred_username",
    "profile",
    "website",
    "gender",
    "birthdate",
    "zoneinfo",
    "locale",
    "updated_at",
];

/// Reads the standard claims of any OpenID Connect issuer.
pub fn openid(sources: &ProfileSources<'_>) -> ProfileResult {
    let claims = openid_claims(sources)?;
    let mut builder = from_claims(sources, claims)?
        .name(member(claims, "name"))
        .picture(member(claims, "picture"))
        .email(member(claims, "email"), truth(claims.get("email_verified")), true);
    for key in STANDARD {
        builder = builder.text(&[key], member(claims, key));
    }
    Ok(builder.build())
}

pub fn google(sources: &ProfileSources<'_>) -> ProfileResult {
    if let Some(claims) = sources.id_token {
        return Ok(from_claims(sources, claims)?
            .name(member(claims, "name"))
            .picture(member(claims, "picture"))
            .custom("hd", claims.get("hd"))
            .email(member(claims, "email"), truth(claims.get("email_verified")), true)
            .build());
    }
    let user = sources.document(0);
    // An OpenID userinfo has `sub` and `email_verified` where Google's own has `id` and
    // `verified_email`
    let subject = identifier(user, "id").or_else(|_| identifier(user, "sub"))?;
    let verified = truth(user.get("verified_email")) || truth(user.get("email_verified"));
    Ok(ProfileBuilder::new(sources.issuer, &subject)?
        .name(text(user, "name"))
        .picture(text(user, "picture"))
        .custom("hd", user.get("hd"))
        .email(text(user, "email"), verified, true)
        .build())
}

pub fn github(sources: &ProfileSources<'_>) -> ProfileResult {
    let user = sources.document(0);
    let mut builder = ProfileBuilder::new(sources.issuer, &identifier(user, "id")?)?
        .name(text(user, "name"))
        .text(&["preferred_username", "user_name"], text(user, "login"))
        .text(&["avatar_url"], text(user, "avatar_url"));
    let emails = sources.document(1).as_array().ok_or(UnreadableProfile("list of email addresses"))?;
    for email in emails {
        builder = builder.email(text(email, "email"), truth(email.get("verified")), truth(email.get("primary")));
    }
    Ok(builder.build())
}

pub fn apple(sources: &ProfileSources<'_>) -> ProfileResult {
    let claims = sources.claims()?;
    let name = sources.form_user.and_then(|user| user.get("name")).map(|name| {
        let part = |key| text(name, key).unwrap_or_default();
        format!("{} {}", part("firstName"), part("lastName"))
    });
    Ok(from_claims(sources, claims)?
        .name(name.as_deref())
        .custom("is_private_email", claims.get("is_private_email"))
        .custom("auth_time", claims.get("auth_time"))
        .custom("transfer_sub", claims.get("transfer_sub"))
        .email(member(claims, "email"), true, true)
        .build())
}

pub fn facebook(sources: &ProfileSources<'_>) -> ProfileResult {
    // Limited Login on iOS gives an id_token instead of an access token
    if let Some(claims) = sources.id_token {
        return Ok(from_claims(sources, claims)?
            .name(member(claims, "name"))
            .picture(member(claims, "picture"))
            .email(member(claims, "email"), true, true)
            .build());
    }
    let user = sources.document(0);
    let part = |key| text(user, key).unwrap_or_default();
    let name = format!("{} {}", part("first_name"), part("last_name"));
    let picture = user.pointer("/picture/data/url").and_then(Value::as_str);
    // Identities of this provider have the URL of its profiles as issuer
    let issuer = format!("{}/me?fields=email,first_name,last_name,name,picture", sources.issuer);
    Ok(ProfileBuilder::new(&issuer, &identifier(user, "id")?)?
        .name(Some(&name))
        .text(&["nickname", "slug"], text(user, "name"))
        .picture(picture)
        .email(text(user, "email"), true, true)
        .build())
}

/// Claims of Microsoft's tokens that do not describe the person, or that are copied elsewhere.
const AZURE_TOKEN_CLAIMS: [&str; 16] = [
    "aud",
    "iss",
    "iat",
    "nbf",
    "exp",
    "c_hash",
    "at_hash",
    "aio",
    "nonce",
    "rh",
    "uti",
    "jti",
    "ver",
    "sub",
    "name",
    "preferred_username",
];

pub fn azure(sources: &ProfileSources<'_>) -> ProfileResult {
    let claims = sources.claims()?;
    // The claim "email domain owner verified" is optional; where the operator has enabled it, it
    // decides
    let verified = claims.get("xms_edov").is_none_or(|owned| truth(Some(owned)));
    let mut builder = from_claims(sources, claims)?
        .text(&["full_name"], member(claims, "name"))
        .text(&["preferred_username"], member(claims, "preferred_username"))
        .email(member(claims, "email"), verified, true);
    for (key, value) in claims.iter().filter(|(key, _)| !AZURE_TOKEN_CLAIMS.contains(&key.as_str())) {
        builder = builder.custom(key, Some(value));
    }
    Ok(builder.build())
}

/// The tenant of personal accounts, whose addresses Microsoft itself verifies.
const AZURE_PERSONAL_ACCOUNTS: &str = "https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0";

/// Like [`azure`], where every tenant may sign in. A tenant's administrator can write any address
/// into its accounts, so an address is verified only where Microsoft states that the tenant owns
/// its domain.
pub fn azure_of_any_tenant(sources: &ProfileSources<'_>) -> ProfileResult {
    let claims = sources.claims()?;
    let is_owner_verified = claims.contains_key("xms_edov") || member(claims, "iss") == Some(AZURE_PERSONAL_ACCOUNTS);
    let mut profile = azure(sources)?;
    for email in &mut profile.emails {
        email.verified &= is_owner_verified;
    }
    Ok(profile)
}

pub fn discord(sources: &ProfileSources<'_>) -> ProfileResult {
    let user = sources.document(0);
    let id = identifier(user, "id")?;
    let username = text(user, "username").unwrap_or_default();
    let discriminator = text(user, "discriminator").unwrap_or("0");
    let picture = match text(user, "avatar").filter(|hash| !hash.is_empty()) {
        Some(hash) => {
            let kind = if hash.starts_with("a_") { "gif" } else { "png" };
            format!("https://cdn.discordapp.com/avatars/{id}/{hash}.{kind}")
        }
        None => {
            let index = discriminator.parse::<u32>().unwrap_or(0) % 5;
            format!("https://cdn.discordapp.com/embed/avatars/{index}.png")
        }
    };
    Ok(ProfileBuilder::new(sources.issuer, &id)?
        .text(&["name"], Some(&format!("{username}#{discriminator}")))
        .text(&["full_name"], Some(username))
        .picture(Some(&picture))
        .custom("global_name", user.get("global_name"))
        .email(text(user, "email"), truth(user.get("verified")), true)
        .build())
}

pub fn gitlab(sources: &ProfileSources<'_>) -> ProfileResult {
    let user = sources.document(0);
    let mut builder = ProfileBuilder::new(sources.issuer, &identifier(user, "id")?)?
        .name(text(user, "name"))
        .picture(text(user, "avatar_url"));
    let primary = text(user, "email");
    let confirmed = text(user, "confirmed_at").is_some_and(|at| !at.is_empty());
    for email in sources.document(1).as_array().into_iter().flatten() {
        if text(email, "email") != primary {
            builder = builder.email(text(email, "email"), false, false);
        }
    }
    Ok(builder.email(primary, confirmed, true).build())
}

pub fn bitbucket(sources: &ProfileSources<'_>) -> ProfileResult {
    let user = sources.document(0);
    let mut builder = ProfileBuilder::new(sources.issuer, &identifier(user, "uuid")?)?
        .name(text(user, "display_name"))
        .picture(user.pointer("/links/avatar/href").and_then(Value::as_str));
    let emails = sources.document(1).get("values").and_then(Value::as_array);
    for email in emails.ok_or(UnreadableProfile("list of email addresses"))? {
        builder = builder.email(text(email, "email"), truth(email.get("is_confirmed")), truth(email.get("is_primary")));
    }
    Ok(builder.build())
}

pub fn linkedin_oidc(sources: &ProfileSources<'_>) -> ProfileResult {
    let claims = sources.claims()?;
    let locale = match claims.get("locale") {
        Some(Value::Object(parts)) => match (member(parts, "language"), member(parts, "country")) {
            (Some(language), Some(country)) => Some(format!("{language}_{country}")),
            _ => None,
        },
        Some(Value::String(locale)) => Some(locale.clone()),
        _ => None,
    };
    Ok(from_claims(sources, claims)?
        .name(member(claims, "name"))
        .text(&["given_name"], member(claims, "given_name"))
        .text(&["family_name"], member(claims, "family_name"))
        .text(&["locale"], locale.as_deref())
        .picture(member(claims, "picture"))
        .email(member(claims, "email"), truth(claims.get("email_verified")), true)
        .build())
}

/// Returns LinkedIn's text in the preferred locale.
fn localized<'a>(user: &'a Value, key: &str) -> &'a str {
    let Some(value) = user.get(key) else { return "" };
    let part = |key| value.pointer(key).and_then(Value::as_str).unwrap_or_default();
    let locale = format!("{}_{}", part("/preferredLocale/language"), part("/preferredLocale/country"));
    value.get("localized").and_then(|texts| text(texts, &locale)).unwrap_or_default()
}

pub fn linkedin(sources: &ProfileSources<'_>) -> ProfileResult {
    let user = sources.document(0);
    let name = format!("{} {}", localized(user, "firstName"), localized(user, "lastName"));
    let picture = user.pointer("/profilePicture/displayImage~/elements/0/identifiers/0/identifier");
    let email = sources.document(1).pointer("/elements/0/handle~/emailAddress").and_then(Value::as_str);
    Ok(ProfileBuilder::new(sources.issuer, &identifier(user, "id")?)?
        .name(Some(&name))
        .picture(picture.and_then(Value::as_str))
        .email(email, true, true)
        .build())
}

pub fn twitter(sources: &ProfileSources<'_>) -> ProfileResult {
    let user = sources.document(0);
    Ok(ProfileBuilder::new(sources.issuer, &identifier(user, "id_str").or_else(|_| identifier(user, "id"))?)?
        .name(text(user, "name"))
        .text(&["preferred_username", "user_name"], text(user, "screen_name"))
        .picture(text(user, "profile_image_url_https").or_else(|| text(user, "profile_image_url")))
        .email(text(user, "email"), true, true)
        .build())
}

pub fn x(sources: &ProfileSources<'_>) -> ProfileResult {
    let user = sources.document(0).get("data").ok_or(UnreadableProfile("data"))?;
    let username = text(user, "username");
    let profile = username.filter(|name| !name.is_empty()).map(|name| format!("https://x.com/{name}"));
    Ok(ProfileBuilder::new(sources.issuer, &identifier(user, "id")?)?
        .name(text(user, "name"))
        .text(&["preferred_username", "user_name"], username)
        .picture(text(user, "profile_image_url"))
        .text(&["profile"], profile.as_deref())
        .text(&["website"], text(user, "url"))
        .custom("created_at", user.get("created_at"))
        .email(text(user, "confirmed_email"), true, true)
        .build())
}

fn slack_user(sources: &ProfileSources<'_>, always_verified: bool) -> ProfileResult {
    const TEAM: &str = "https://slack.com/team_id";
    let user = sources.document(0);
    let subject = identifier(user, "https://slack.com/user_id")?;
    let verified = always_verified || truth(user.get("email_verified"));
    Ok(ProfileBuilder::new(sources.issuer, &subject)?
        .name(text(user, "name"))
        .picture(text(user, "picture"))
        .custom(TEAM, user.get(TEAM))
        .email(text(user, "email"), verified, true)
        .build())
}

pub fn slack_oidc(sources: &ProfileSources<'_>) -> ProfileResult {
    slack_user(sources, false)
}

pub fn slack(sources: &ProfileSources<'_>) -> ProfileResult {
    slack_user(sources, true)
}

pub fn spotify(sources: &ProfileSources<'_>) -> ProfileResult {
    let user = sources.document(0);
    let images = user.get("images").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let area = |image: &&Value| {
        let side = |key| image.get(key).and_then(Value::as_u64).unwrap_or(0);
        side("width").saturating_mul(side("height"))
    };
    let largest = images.iter().max_by_key(area);
    Ok(ProfileBuilder::new(sources.issuer, &identifier(user, "id")?)?
        .name(text(user, "display_name"))
        .picture(largest.and_then(|image| text(image, "url")))
        // The provider does not verify addresses
        .email(text(user, "email"), false, true)
        .build())
}

pub fn twitch(sources: &ProfileSources<'_>) -> ProfileResult {
    let user = sources.document(0).pointer("/data/0").ok_or(UnreadableProfile("data"))?;
    let mut builder = ProfileBuilder::new(sources.issuer, &identifier(user, "id")?)?
        .name(text(user, "login"))
        .text(&["nickname", "slug"], text(user, "display_name"))
        .picture(text(user, "profile_image_url"))
        .email(text(user, "email"), true, true);
    for key in ["broadcaster_type", "description", "type", "offline_image_url", "view_count"] {
        builder = builder.custom(key, user.get(key));
    }
    Ok(builder.build())
}

pub fn notion(sources: &ProfileSources<'_>) -> ProfileResult {
    let user = sources.document(0).pointer("/bot/owner/user").ok_or(UnreadableProfile("owner"))?;
    Ok(ProfileBuilder::new(sources.issuer, &identifier(user, "id")?)?
        .name(text(user, "name"))
        .picture(text(user, "avatar_url"))
        .email(user.pointer("/person/email").and_then(Value::as_str), true, true)
        .build())
}

pub fn figma(sources: &ProfileSources<'_>) -> ProfileResult {
    let user = sources.document(0);
    Ok(ProfileBuilder::new(sources.issuer, &identifier(user, "id")?)?
        .name(text(user, "handle"))
        .picture(text(user, "img_url"))
        .email(text(user, "email"), true, true)
        .build())
}

pub fn kakao(sources: &ProfileSources<'_>) -> ProfileResult {
    if sources.id_token.is_some() {
        return openid(sources);
    }
    let user = sources.document(0);
    let account = user.get("kakao_account").unwrap_or(&Value::Null);
    let nickname = account.pointer("/profile/nickname").and_then(Value::as_str);
    let verified = truth(account.get("is_email_verified")) && truth(account.get("is_email_valid"));
    Ok(ProfileBuilder::new(sources.issuer, &identifier(user, "id")?)?
        .name(nickname)
        .text(&["preferred_username", "user_name"], nickname)
        .picture(account.pointer("/profile/profile_image_url").and_then(Value::as_str))
        .email(text(account, "email"), verified, true)
        .build())
}

pub fn keycloak(sources: &ProfileSources<'_>) -> ProfileResult {
    let claims = openid_claims(sources)?;
    let subject = member(claims, "sub").ok_or(UnreadableProfile("subject"))?;
    let mut builder = ProfileBuilder::new(sources.issuer, subject)?.name(member(claims, "name")).email(
        member(claims, "email"),
        truth(claims.get("email_verified")),
        true,
    );
    const COPIED: [&str; 4] = ["sub", "name", "email", "email_verified"];
    // Claims of an id_token that do not describe the person
    const TOKEN: [&str; 8] = ["iss", "aud", "exp", "iat", "nbf", "nonce", "at_hash", "jti"];
    let from_token = sources.id_token.is_some();
    for (key, value) in claims {
        let of_token = from_token && TOKEN.contains(&key.as_str());
        if !of_token && !COPIED.contains(&key.as_str()) {
            builder = builder.custom(key, Some(value));
        }
    }
    Ok(builder.build())
}

pub fn workos(sources: &ProfileSources<'_>) -> ProfileResult {
    let user = sources.token.get("profile").ok_or(UnreadableProfile("profile"))?;
    let part = |key| text(user, key).unwrap_or_default();
    let name = format!("{} {}", part("first_name"), part("last_name"));
    Ok(ProfileBuilder::new(sources.issuer, &identifier(user, "id")?)?
        .name(Some(&name))
        .custom("connection_id", user.get("connection_id"))
        .custom("organization_id", user.get("organization_id"))
        .email(text(user, "email"), true, true)
        .build())
}

pub fn zoom(sources: &ProfileSources<'_>) -> ProfileResult {
    let user = sources.document(0);
    let part = |key| text(user, key).unwrap_or_default();
    let name = format!("{} {}", part("first_name"), part("last_name"));
    // "100" is an account at Zoom itself; other accounts signed in at a service that verifies
    // addresses
    let with_zoom = matches!(user.get("login_type"), Some(kind) if *kind == json!("100") || *kind == json!(100));
    let verified = !with_zoom || truth(user.get("verified"));
    Ok(ProfileBuilder::new(sources.issuer, &identifier(user, "id")?)?
        .name(Some(&name))
        .picture(text(user, "pic_url"))
        .email(text(user, "email"), verified, true)
        .build())
}

pub fn snapchat(sources: &ProfileSources<'_>) -> ProfileResult {
    if sources.id_token.is_some() {
        return openid(sources);
    }
    let user = sources.document(0).pointer("/data/me").ok_or(UnreadableProfile("data"))?;
    Ok(ProfileBuilder::new(sources.issuer, &identifier(user, "externalId")?)?
        .name(text(user, "displayName"))
        .picture(user.pointer("/bitmoji/avatar").and_then(Value::as_str))
        .email(text(user, "email"), true, true)
        .build())
}

pub fn fly(sources: &ProfileSources<'_>) -> ProfileResult {
    let user = sources.document(0);
    let mut builder = ProfileBuilder::new(sources.issuer, &identifier(user, "user_id")?)?
        .name(text(user, "user_name"))
        .email(text(user, "email"), true, true);
    for key in ["resource_owner_id", "organizations", "application", "scope", "created_at"] {
        builder = builder.custom(key, user.get(key));
    }
    Ok(builder.build())
}

pub fn vercel_marketplace(sources: &ProfileSources<'_>) -> ProfileResult {
    let claims = sources.claims()?;
    let subject = match member(claims, "global_user_id").filter(|id| !id.is_empty()) {
        Some(id) => format!("global_user_id:{id}"),
        None => member(claims, "sub").ok_or(UnreadableProfile("subject"))?.to_owned(),
    };
    Ok(ProfileBuilder::new(member(claims, "iss").unwrap_or(sources.issuer), &subject)?
        .name(member(claims, "user_name"))
        .picture(member(claims, "user_avatar_url"))
        .email(member(claims, "user_email"), true, true)
        .build())
}
