//! The command line.
//!
//! Results go to standard output, progress and errors to standard error. A command that fails exits
//! with status 1.

mod accounts;
mod capacity;
mod dev;
mod folder;
mod generate;
mod global;
mod keys;
mod migration;
mod panel;
mod prompt;
mod reset;
mod seed;
mod serve;
mod signals;
mod status;
mod storage;
mod store;
mod unsupported_commands;
mod user;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::global::Global;
use crate::telemetry::{self, LogFormat};

/// Accounts, the pages around them, and your data as an API, on a real PostgreSQL: one program
#[derive(Debug, Parser)]
#[command(name = "portico", version, max_term_width = 100, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the development server in a project folder
    Dev(dev::DevOptions),
    /// Start the production server
    Serve(serve::ServeOptions),
    /// Show the running server's addresses and keys
    Status(status::StatusOptions),
    /// Stop the running development server; data is kept
    Stop(folder::StopOptions),
    /// Make a project folder here
    Init(folder::InitOptions),
    /// The project's database
    #[command(subcommand)]
    Db(DbCommand),
    /// The project's accounts
    User(user::UserOptions),
    /// The project's migrations
    #[command(subcommand)]
    Migration(migration::MigrationCommand),
    /// Parts of the project that are stored again on request
    #[command(subcommand)]
    Seed(SeedCommand),
    /// The stored files of the project
    #[command(subcommand)]
    Storage(storage::StorageCommand),
    /// The keys that sign access tokens
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Keys and tokens for the project folder
    #[command(subcommand)]
    Gen(generate::GenerateCommand),
}

#[derive(Debug, Subcommand)]
enum DbCommand {
    /// Throw the local database away and set it up anew from migrations and seeds
    Reset(reset::ResetOptions),
}

#[derive(Debug, Subcommand)]
enum SeedCommand {
    /// Make or change the buckets of supabase/config.toml on the running server, and upload their
    /// files
    Buckets(seed::SeedBucketsOptions),
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let arguments: Vec<String> =
                std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
            match unsupported_commands::advice(&error, &arguments) {
                Some(advice) => {
                    report(&anyhow::Error::msg(advice));
                    return ExitCode::from(2);
                }
                None => error.exit(),
            }
        }
    };
    let default = match cli.command {
        Command::Dev(_) => "warn,portico=info,portico_auth=info",
        Command::Serve(_) => "info",
        _ => "warn",
    };
    let format = match (cli.global.log_format, &cli.command) {
        // Only the log of the production server is read by programs; a developer's output does not
        // depend on a pipe
        (LogFormat::Auto, command) if !matches!(command, Command::Serve(_)) => LogFormat::Text,
        (format, _) => format,
    };
    telemetry::install(format, default);
    crate::install_cryptography();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            anstream::eprintln!("error: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(run(cli));
    // Work that still runs (a slow look-up, a blocked hash) must not delay the exit
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Dev(options) => dev::run(&cli.global, options).await,
        Command::Serve(options) => serve::run(&cli.global, options).await,
        Command::Status(options) => status::run(&cli.global, options).await,
        Command::Stop(options) => folder::stop(&cli.global, options).await,
        Command::Init(options) => folder::init(&cli.global, &options),
        Command::Db(DbCommand::Reset(options)) => reset::run(&cli.global, options).await,
        Command::User(options) => user::run(&cli.global, options).await,
        Command::Seed(SeedCommand::Buckets(options)) => seed::run(&cli.global, options).await,
        Command::Migration(command) => migration::run(&cli.global, command).await,
        Command::Storage(command) => storage::run(&cli.global, command).await,
        Command::Keys(command) => keys::run(&cli.global, command).await,
        Command::Gen(command) => generate::run(&cli.global, command),
    }
}

/// Prints the error and its causes. A cause that the text above already quotes is left out.
fn report(error: &anyhow::Error) {
    let style = anstyle::Style::new().bold().fg_color(Some(anstyle::AnsiColor::Red.into()));
    let mut shown = error.to_string();
    // Errors of PostgreSQL begin with their own severity
    let (severity, text) = match shown.split_once(": ") {
        Some((severity @ ("ERROR" | "FATAL" | "PANIC"), text)) => (severity, text),
        _ => ("error", shown.as_str()),
    };
    anstream::eprintln!("{style}{severity}:{style:#} {text}");
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        let plain = text.strip_prefix("ERROR: ").unwrap_or(&text);
        // The driver's wrapper of an error of PostgreSQL, which follows
        if plain != "db error" && !shown.contains(plain) {
            anstream::eprintln!("  because: {text}");
            shown = text;
        }
    }
}
