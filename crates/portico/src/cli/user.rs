//! `portico user`: the accounts of a project.

use std::io::{IsTerminal as _, Read as _};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use portico_auth::{AccountCommand, AccountToAdd};
use portico_base::Secret;
use serde_json::{Map, Value};

use super::accounts::{AccountsTarget, ProjectAccounts};
use super::global::Global;
use super::prompt;

/// The longest text that is read from standard input, in bytes.
const MAX_PIPED: u64 = 4096;

#[derive(Debug, Args)]
pub(super) struct UserOptions {
    #[command(flatten)]
    target: AccountsTarget,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: UserCommand,
}

#[derive(Debug, Subcommand)]
enum UserCommand {
    /// Add an account; its password is asked for
    Add(Addition),
    /// List accounts, the newest first
    List {
        /// Only accounts whose address or full name contains this
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        /// The greatest number of accounts
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// The number of accounts to leave out at the start
        #[arg(long, default_value_t = 0)]
        offset: u32,
    },
    /// Show an account
    Show {
        /// An email address, phone number or id
        account: String,
    },
    /// Set the password of an account, and end its sessions
    SetPassword {
        /// An email address, phone number or id
        account: String,
        /// Read the password from standard input
        #[arg(long)]
        password_stdin: bool,
    },
    /// Ban an account
    Ban {
        /// An email address, phone number or id
        account: String,
        /// The duration, such as 24h or 1h30m [default: until the ban is lifted]
        #[arg(long = "for", value_name = "DURATION")]
        duration: Option<String>,
    },
    /// Lift the ban of an account
    Unban {
        /// An email address, phone number or id
        account: String,
    },
    /// Delete an account
    Delete {
        /// An email address, phone number or id
        account: String,
        /// Keep the row and its id, without personal data
        #[arg(long)]
        soft: bool,
    },
    /// Make an account that of an operator
    MakeOperator {
        /// An email address, phone number or id
        account: String,
        /// Make it an ordinary account again
        #[arg(long)]
        undo: bool,
    },
}

#[derive(Debug, Args)]
struct Addition {
    /// The email address
    #[arg(required_unless_present = "phone")]
    email: Option<String>,
    /// The phone number
    #[arg(long)]
    phone: Option<String>,
    /// Read the password from standard input
    #[arg(long, conflicts_with = "no_password")]
    password_stdin: bool,
    /// Set no password: the person signs in by code or link
    #[arg(long)]
    no_password: bool,
    /// The address and number must be confirmed first
    #[arg(long)]
    unconfirmed: bool,
    /// The metadata that the person may change
    #[arg(long, value_name = "JSON", value_parser = object)]
    user_metadata: Option<Map<String, Value>>,
    /// The metadata that only administrators change
    #[arg(long, value_name = "JSON", value_parser = object)]
    app_metadata: Option<Map<String, Value>>,
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("expected a JSON object: {error}"))
}

pub(super) async fn run(global: &Global, options: UserOptions) -> anyhow::Result<()> {
    let UserOptions { target, json, command } = options;
    // Asked for before the database is started
    let (command, done) = prepare(command)?;
    let is_list = matches!(command, AccountCommand::List { .. });
    let value = ProjectAccounts::open(global, &target).await?.run(command).await?;
    if json {
        anstream::println!("{value:#}");
    } else if is_list {
        print_list(&value);
    } else if let Some(done) = done {
        anstream::println!("{done} {} ({})", name_of(&value), text(&value, "id"));
    } else {
        print_account(&value);
    }
    Ok(())
}

/// Returns the operation, and what to print when it is done; `None` prints the account.
fn prepare(command: UserCommand) -> anyhow::Result<(AccountCommand, Option<&'static str>)> {
    Ok(match command {
        UserCommand::Add(addition) => {
            let password = match (addition.no_password, addition.password_stdin) {
                (true, _) => None,
                (false, from_stdin) => Some(password(from_stdin, "--no-password adds an account without one")?),
            };
            let account = AccountToAdd {
                email: addition.email,
                phone: addition.phone,
                password,
                confirmed: !addition.unconfirmed,
                user_metadata: addition.user_metadata.unwrap_or_default(),
                app_metadata: addition.app_metadata.unwrap_or_default(),
            };
            (AccountCommand::Add(account), Some("Added"))
        }
        UserCommand::List { filter, limit, offset } => (AccountCommand::List { filter, limit, offset }, None),
        UserCommand::Show { account } => (AccountCommand::Show { account }, None),
        UserCommand::SetPassword { account, password_stdin } => {
            let password = password(password_stdin, "")?;
            (AccountCommand::SetPassword { account, password }, Some("Set the password of"))
        }
        UserCommand::Ban { account, duration } => (AccountCommand::Ban { account, duration }, Some("Banned")),
        UserCommand::Unban { account } => (AccountCommand::Unban { account }, Some("Lifted the ban of")),
        UserCommand::Delete { account, soft } => (AccountCommand::Delete { account, soft }, Some("Deleted")),
        UserCommand::MakeOperator { account, undo } => {
            let done = if undo { "Not an operator any more:" } else { "Made an operator:" };
            (AccountCommand::SetOperator { account, operator: !undo }, Some(done))
        }
    })
}

/// Reads a password from standard input, or asks for it twice at the terminal.
fn password(from_stdin: bool, hint: &str) -> anyhow::Result<Secret> {
    let text = if from_stdin {
        let mut text = String::new();
        std::io::stdin().take(MAX_PIPED).read_to_string(&mut text).context("standard input is not text")?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        Secret::new(line.strip_suffix('\r').unwrap_or(line))
    } else {
        let remedy = if hint.is_empty() { String::new() } else { format!(", and {hint}") };
        let advice = format!(
            "there is no terminal to type a password at: --password-stdin reads it from standard input{remedy}"
        );
        // A script that runs in a terminal must not wait for an answer
        if !std::io::stdin().is_terminal() {
            bail!(advice);
        }
        let ask = |label| prompt::password(label).with_context(|| advice.clone());
        let first = ask("Password: ")?;
        if ask("Repeat the password: ")? != first {
            bail!("the passwords are not the same");
        }
        first
    };
    if text.is_empty() {
        bail!("the password is empty");
    }
    Ok(text)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Returns the address of an account, else its number.
fn name_of(user: &Value) -> String {
    match (text(user, "email"), text(user, "phone")) {
        ("", "") => "an account without a contact".to_owned(),
        ("", phone) => format!("+{phone}"),
        (email, _) => email.to_owned(),
    }
}

/// Returns the state of an account in a word or two.
fn state(user: &Value) -> String {
    let is_set = |name: &str| !text(user, name).is_empty();
    let now = portico_base::Clock::system().now();
    let banned_until =
        time::OffsetDateTime::parse(text(user, "banned_until"), &time::format_description::well_known::Rfc3339);
    let mut states = Vec::new();
    if is_set("deleted_at") {
        states.push("deleted");
    }
    if banned_until.is_ok_and(|until| until > now) {
        states.push("banned");
    }
    if user["is_anonymous"] == true {
        states.push("anonymous");
    } else if !is_set("confirmed_at") {
        states.push("unconfirmed");
    }
    if user["app_metadata"]["role"] == "operator" {
        states.push("operator");
    }
    states.join(", ")
}

/// Returns the first 19 characters of a time: without fraction and zone.
fn short_time(user: &Value, name: &str) -> String {
    text(user, name).chars().take(19).collect::<String>().replace('T', " ")
}

fn print_list(value: &Value) {
    let users = value["users"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<[String; 5]> = users
        .iter()
        .map(|user| {
            let times = [short_time(user, "created_at"), short_time(user, "last_sign_in_at")];
            let [created, last] = times;
            [name_of(user), text(user, "id").to_owned(), created, last, state(user)]
        })
        .collect();
    let heads = ["Account", "Id", "Created (UTC)", "Last sign-in (UTC)", "State"];
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heads[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: &[&str]| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        anstream::println!("{}", format!("  {}", padded.join(" │ ")).trim_end());
    };
    line(&heads);
    anstream::println!("  {}", widths.iter().map(|width| "─".repeat(*width)).collect::<Vec<_>>().join("─┼─"));
    for row in &rows {
        line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let total = value["total"].as_i64().unwrap_or_default();
    anstream::eprintln!("{} of {total} accounts", rows.len());
}

fn print_account(user: &Value) {
    let providers: Vec<&str> =
        user["identities"].as_array().into_iter().flatten().map(|one| text(one, "provider")).collect();
    let factors: Vec<&str> =
        user["factors"].as_array().into_iter().flatten().map(|one| text(one, "factor_type")).collect();
    for (label, value) in [
        ("Id", text(user, "id").to_owned()),
        ("Email", text(user, "email").to_owned()),
        ("Phone", text(user, "phone").to_owned()),
        ("Role", text(user, "role").to_owned()),
        ("State", state(user)),
        ("Created (UTC)", short_time(user, "created_at")),
        ("Last sign-in", short_time(user, "last_sign_in_at")),
        ("Banned until", short_time(user, "banned_until")),
        ("Identities", providers.join(", ")),
        ("Factors", factors.join(", ")),
        ("User metadata", user["user_metadata"].to_string()),
        ("App metadata", user["app_metadata"].to_string()),
    ] {
        if !value.is_empty() {
            anstream::println!("{label:>14}  {value}");
        }
    }
}
