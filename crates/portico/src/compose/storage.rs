//! The storage service, at `/storage/v1`: `[storage]` of the configuration as its settings, its
//! routes and rules.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use portico_base::{AllowedOrigins, Secret};
use portico_database::wire::{CoalescingSettings, Pool, ReadCoalescer, WirePoolSettings};
use portico_gateway::{AccessRules, BoxedResponse, Cors, GatewayHeaders};
use portico_project::portico_toml::{
    ObjectStoreCredentials, ObjectStoreRole, ObjectStoreSettings, S3Extras, StorageExtras,
};
use portico_project::{Config, Project};
use portico_storage::{
    BackendSettings, ContainerToken, ExistingBuckets, GcOptions, ImageSettings, S3AccessKey, S3Settings,
    S3StoreCredentials, S3StoreKey, S3StoreRole, S3StoreSettings, SeedBucket, SeedError, Storage, StorageSettings,
};
use portico_tokens::{LOGIN_ROLE, development as well_known};
use serde_json::json;
use tokio::sync::mpsc;

use super::service::{Foundation, Service, json_error, unavailable};
use super::web_app::AvatarFacts;
use crate::control::Reply;

/// The folder of the content within the data folder.
const FOLDER: &str = "storage";
/// The folder of rendered images within the data folder.
const IMAGE_FOLDER: &str = "rendered-images";
/// The connections to the database where the data API, which shares its own, is turned off.
const CONNECTIONS: usize = 10;
/// The region of the S3 endpoint where none is configured.
const DEFAULT_REGION: &str = "us-east-1";
/// The time between two clean-ups of content without a row.
const CLEAN_UP_PERIOD: Duration = Duration::from_secs(600);
/// The time after which an upload in parts to which nothing was added is ended.
const ABANDONED_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);

const TURNED_OFF: &str = "the storage service is turned off: [storage] enabled in supabase/config.toml";

/// Returns the settings that the configuration describes; `None` if the service is turned off. The
/// content is below `data`, or in the store of `extras`.
#[must_use]
pub fn settings(config: &Config, extras: &StorageExtras, data: &Path) -> Option<StorageSettings> {
    let storage = &config.storage;
    let mut settings = StorageSettings {
        file_size_limit: storage.file_size_limit,
        sniff_mime_types: extras.sniff_mime_types,
        images: storage.image_transformation.then(|| ImageSettings {
            negotiate_avif: extras.negotiate_avif,
            ..ImageSettings::in_folder(data.join(IMAGE_FOLDER))
        }),
        ..StorageSettings::in_folder(data.join(FOLDER))
    };
    settings.resumable_lifetime = extras.resumable_lifetime.unwrap_or(settings.resumable_lifetime);
    if let Some(store) = &extras.backend {
        settings.backend = BackendSettings::S3 { store: object_store(store), folder: data.join(FOLDER) };
    }
    storage.enabled.then_some(settings)
}

fn object_store(store: &ObjectStoreSettings) -> S3StoreSettings {
    let credentials = match store.credentials.clone() {
        ObjectStoreCredentials::Key { access_key_id, secret_access_key, session_token } => {
            S3StoreCredentials::Key(S3StoreKey { access_key_id, secret_access_key, session_token })
        }
        ObjectStoreCredentials::Role(role) => S3StoreCredentials::Role(Box::new(store_role(role))),
    };
    let defaults = S3StoreSettings::new(&store.bucket, &store.region, credentials);
    S3StoreSettings {
        endpoint: store.endpoint.clone(),
        prefix: store.prefix.clone(),
        path_style: store.path_style,
        part_size: store.part_size.unwrap_or(defaults.part_size),
        timeout: store.timeout.unwrap_or(defaults.timeout),
        ..defaults
    }
}

fn store_role(role: ObjectStoreRole) -> S3StoreRole {
    match role {
        ObjectStoreRole::WebIdentity { token_file, role_arn, session_name, sts_url } => {
            S3StoreRole::WebIdentity { token_file, role_arn, session_name, sts_url }
        }
        ObjectStoreRole::Container { url, token_file, token } => {
            let token = token_file.map(ContainerToken::File).or(token.map(ContainerToken::Text));
            S3StoreRole::Container { url, token }
        }
        ObjectStoreRole::Instance { metadata_url } => S3StoreRole::Instance { metadata_url },
    }
}

/// Returns what the web app needs to know about the pictures of accounts.
#[must_use]
pub fn avatars(config: &Config) -> AvatarFacts {
    let storage = &config.storage;
    AvatarFacts { are_kept: storage.enabled, are_rendered: storage.enabled && storage.image_transformation }
}

/// Returns the settings of the S3 endpoint, with the access keys of `[storage.s3]` in
/// `portico.toml`; `None` if it is turned off.
#[must_use]
pub fn s3_settings(config: &Config, extras: &S3Extras) -> Option<S3Settings> {
    let key = |(id, secret): (&String, &Secret)| S3AccessKey { id: id.clone(), secret: secret.clone() };
    let settings = S3Settings {
        region: extras.region.clone().unwrap_or_else(|| DEFAULT_REGION.to_owned()),
        access_keys: extras.access_keys.iter().map(key).collect(),
        pages: None,
    };
    config.storage.s3_protocol.then_some(settings)
}

/// Like [`s3_settings`], but with the published access key of development, which only the project's
/// own `pages` and programs may use.
#[must_use]
pub fn s3_development_settings(config: &Config, extras: &S3Extras, pages: AllowedOrigins) -> Option<S3Settings> {
    let mut settings = s3_settings(config, extras)?;
    let secret = Secret::new(well_known::S3_SECRET_ACCESS_KEY);
    settings.access_keys.push(S3AccessKey { id: well_known::S3_ACCESS_KEY_ID.to_owned(), secret });
    settings.pages = Some(pages);
    if extras.region.is_none() {
        settings.region = well_known::S3_REGION.to_owned();
    }
    Some(settings)
}

/// Makes the buckets of `[storage.buckets]` that do not exist and uploads the files of their
/// folders. Calls `progress` with each step. Without the service nothing is done.
///
/// # Errors
/// When a bucket or file cannot be stored; the text names it.
pub async fn seed_missing(
    storage: Option<&Storage>,
    project: &Project,
    progress: &(dyn Fn(String) + Send + Sync),
) -> anyhow::Result<()> {
    let seeded = seed(storage, project, ExistingBuckets::Keep, progress).await;
    seeded.context("[storage.buckets] in supabase/config.toml")
}

/// Makes or changes the buckets of `[storage.buckets]` as the project has them now, and replaces
/// the objects of the same names as their files. Sends each step and the outcome to `replies`.
pub async fn seed_again(storage: Option<&Storage>, project: &Project, replies: &mpsc::Sender<Reply>) {
    let report = |line: String| {
        // Does not wait: a command that reads slowly or has ended must not delay the work
        let _ = replies.try_send(Reply::Progress { line });
    };
    let seeded = match project.reload() {
        Ok(project) => {
            seed(storage, &project, ExistingBuckets::Update, &report).await.map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    let reply = match seeded {
        Ok(()) => Reply::Done { value: serde_json::Value::Null },
        Err(message) => Reply::Failed { message },
    };
    let _ = replies.send(reply).await;
}

async fn seed(
    storage: Option<&Storage>,
    project: &Project,
    existing: ExistingBuckets,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<(), SeedError> {
    let Some(storage) = storage else {
        if existing == ExistingBuckets::Update {
            progress(format!("WARN: {TURNED_OFF}"));
        }
        return Ok(());
    };
    let limit = project.config().storage.file_size_limit;
    for (name, bucket) in &project.config().storage.buckets {
        if bucket.file_size_limit > limit {
            let key = format!("[storage.buckets.{name}] file_size_limit");
            progress(format!("WARN: {key} is above [storage] file_size_limit, which applies: {limit} bytes"));
        }
    }
    let buckets = project.config().storage.buckets.iter().map(|(name, bucket)| SeedBucket {
        name: name.clone(),
        public: bucket.public,
        // 0 means the global limit
        file_size_limit: Some(bucket.file_size_limit).filter(|limit| *limit > 0),
        allowed_mime_types: bucket.allowed_mime_types.clone(),
        objects: bucket.objects_path.clone(),
    });
    let buckets: Vec<SeedBucket> = buckets.collect();
    storage.seed(&buckets, existing, project.root(), progress).await
}

/// Compares the rows of the service with its content beside everything else, and sends progress and
/// the summary to `replies`.
pub fn collect_garbage(storage: Option<&Storage>, options: GcOptions, replies: mpsc::Sender<Reply>) {
    let storage = storage.cloned();
    tokio::spawn(async move {
        let Some(storage) = storage else {
            let _ = replies.send(Reply::Failed { message: TURNED_OFF.to_owned() }).await;
            return;
        };
        let report = |line: String| {
            // Does not wait: a command that reads slowly must not delay the work
            let _ = replies.try_send(Reply::Progress { line });
        };
        // Younger content may belong to an upload in progress on another server
        if options.grace < storage.grace() {
            let minutes = storage.grace().as_secs() / 60;
            report(format!("The grace period is {minutes} minutes, the shortest one: an upload may be in progress"));
        }
        let options = GcOptions { grace: options.grace.max(storage.grace()), ..options };
        let collection = storage.collect_garbage(options, &report);
        let outcome = tokio::select! {
            outcome = collection => outcome,
            // The command has ended
            () = replies.closed() => return,
        };
        let reply = match outcome {
            Ok(summary) => Reply::Done { value: json!(summary) },
            Err(error) => Reply::Failed { message: error.to_string() },
        };
        let _ = replies.send(reply).await;
    });
}

/// Opens the service on the connections of the data API; `None` if that is turned off.
///
/// # Errors
/// When the folder of the content cannot be made.
pub(super) fn open(
    settings: StorageSettings,
    reads: Option<ReadCoalescer>,
    foundation: &Foundation,
) -> anyhow::Result<Storage> {
    let Foundation { database, keys, clock } = foundation;
    let endpoint = database.endpoint();
    let reads = match reads {
        Some(reads) => reads,
        None => {
            let pool_settings = WirePoolSettings { max_connections: CONNECTIONS, ..WirePoolSettings::default() };
            ReadCoalescer::new(Pool::open(endpoint, LOGIN_ROLE, pool_settings)?, &CoalescingSettings::default())
        }
    };
    Storage::new(settings, reads, endpoint, keys.clone(), clock.clone()).context("the folder of stored files")
}

/// Returns the routes of the service. Without it every request is rejected as the storage service
/// rejects a feature that is off.
pub(super) fn service(storage: Option<&Storage>) -> Service {
    let Some(storage) = storage else { return unavailable("/storage/v1", reject) };
    let (responding, cleaned, closed) = (storage.clone(), storage.clone(), storage.clone());
    let respond = move |request: Request, gateway: GatewayHeaders| -> BoxedResponse {
        let storage = responding.clone();
        Box::pin(async move { storage.respond(request, |headers| gateway.write_to(headers)).await })
    };
    let checked = storage.clone();
    let check = async move {
        // It may be down for a moment only, so the server starts
        if let Err(error) = checked.check_backend().await {
            tracing::warn!(error, "the content of stored objects cannot be reached: check [storage.backend]");
        }
    };
    let clean_up = async move {
        let mut ticks = tokio::time::interval(CLEAN_UP_PERIOD);
        loop {
            ticks.tick().await;
            cleaned.clean_up(cleaned.grace()).await;
            if let Err(error) = cleaned.end_abandoned_uploads(ABANDONED_AFTER).await {
                tracing::warn!(error = %error, "abandoned uploads in parts could not be ended");
            }
        }
    };
    Service::new()
        .mount_function("/storage/v1", respond, access())
        .run(async move {
            tokio::join!(check, clean_up);
        })
        .before_close(move || async move { closed.close() })
}

/// Returns the rules for requests to the service. It needs no API key, as on the hosted service:
/// private objects need a token, and public ones nothing. Limits of size and time are its own.
fn access() -> AccessRules {
    let cors = Cors::default().max_age(Duration::from_secs(24 * 60 * 60)).exposing(
        "Accept-Ranges, Cache-Control, Content-Disposition, Content-Length, Expires, Last-Modified, X-Robots-Tag",
    );
    let open = AccessRules::open().body_limit(usize::MAX).timeout(None).reads_before_responding();
    open.cors(cors).own_cors(["/upload/resumable"])
}

fn reject() -> Response {
    let body = json!({
        "statusCode": "409",
        "error": "FeatureNotEnabled",
        "message": "The feature storage is not enabled for this resource",
        "code": "FeatureNotEnabled",
    });
    json_error(StatusCode::FORBIDDEN, &body)
}
