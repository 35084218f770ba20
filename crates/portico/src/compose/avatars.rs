//! The pictures of accounts on the account home: a bucket of our own, in which every account has
//! the folder of its id.
//!
//! This is here and not in a service: it needs the accounts, the storage service and the database.
//! The page uploads a picture with the user's token and records its name in the user's metadata
//! (`web/src/features/account/avatar`). Pictures that no account refers to are deleted: at once
//! when this server deletes the account, and otherwise an hour later by a sweep, which also finds
//! what an interrupted change has left. Objects of other names stay: the bucket may be older.

use std::collections::HashMap;
use std::time::Duration;

use portico_auth::Auth;
use portico_database::{Database, DatabaseError, quote};
use portico_storage::{ListedObject, Storage};
use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use uuid::Uuid;

use super::service::Service;

/// The bucket. No bucket of a project has this name by chance. The web app knows it
/// (`web/src/lib/avatar.ts`).
const BUCKET: &str = "portico-avatars";
/// The role of migrations, which may make policies on the tables of the storage service.
const POLICY_MAKER: &str = "postgres";
/// The time between two sweeps.
const SWEEP_PERIOD: Duration = Duration::from_secs(600);
/// The age from which a picture that its account does not refer to, or without an account, is
/// deleted. The page uploads a picture before it records its name.
const GRACE_SECONDS: f64 = 3600.0;
/// The time after which a failed preparation is repeated for the first time. Doubles with each
/// further failure, up to [`SWEEP_PERIOD`].
const RETRY: Duration = Duration::from_secs(5);

/// Makes the bucket and its policies where they are missing; an existing bucket stays as it is. The
/// comment of a policy has the checksum of its definition, so that a changed one is made again.
/// Anonymous accounts have no picture: one with a name costs a sign-up. An account adds pictures of
/// eight names in each format, and replaces none, so that it keeps at most 24 MiB. Names of 36
/// characters are those of older pictures. The restrictive policies hold beside the project's own,
/// which may be meant for other buckets.
const PREPARE: &str = "
do $prepare$
declare
  own constant text := $own$bucket_id = 'portico-avatars'
    and not coalesce(((select auth.jwt()) ->> 'is_anonymous')::boolean, false)
    and name ~ ('^' || (select auth.uid())::text || '/([0-7]|[0-9a-f-]{36})[.](webp|jpg|png)$')$own$;
  added constant text := pg_catalog.replace(own, '([0-7]|[0-9a-f-]{36})', '[0-7]');
  other constant text := $other$bucket_id is distinct from 'portico-avatars' or $other$;
  policy record;
begin
  perform pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('portico-avatars', 0));
  if not exists (select from storage.buckets where id = 'portico-avatars') then
    insert into storage.buckets (id, name, public, file_size_limit, allowed_mime_types)
    values ('portico-avatars', 'portico-avatars', true, 1048576, '{image/webp,image/jpeg,image/png}');
  end if;
  for policy in
    select wanted.name, wanted.definition, pg_catalog.md5(wanted.definition) as checksum
    from (values
      ('portico avatars are read by their owner', 'for select to MEMBERS using (' || own || ')'),
      ('portico avatars are added by their owner', 'for insert to MEMBERS with check (' || added || ')'),
      ('portico avatars are deleted by their owner', 'for delete to MEMBERS using (' || own || ')'),
      ('portico avatars are added by no other', 'as restrictive for insert to VISITORS, MEMBERS with check ('
        || other || '(' || added || '))'),
      ('portico avatars are changed by no other', 'as restrictive for update to VISITORS, MEMBERS using ('
        || other || '(' || own || ')) with check (' || other || '(' || added || '))'),
      ('portico avatars are deleted by no other', 'as restrictive for delete to VISITORS, MEMBERS using ('
        || other || '(' || own || '))')
    ) as wanted (name, definition)
    where not exists (
      select from pg_catalog.pg_policy as made
      where made.polrelid = 'storage.objects'::regclass and made.polname = wanted.name
        and pg_catalog.obj_description(made.oid, 'pg_policy') = pg_catalog.md5(wanted.definition)
    )
  loop
    execute pg_catalog.format('drop policy if exists %I on storage.objects', policy.name);
    execute pg_catalog.format('create policy %I on storage.objects ', policy.name) || policy.definition;
    execute pg_catalog.format('comment on policy %I on storage.objects is %L', policy.name, policy.checksum);
  end loop;
end $prepare$";

/// Keeps the bucket and what is in it.
#[derive(Clone)]
pub(super) struct AvatarUpkeep {
    storage: Storage,
    auth: Auth,
    database: Database,
}

/// The metadata of an account.
type AccountMetadata = serde_json::Map<String, Value>;
/// The reason why pictures could not be deleted.
type KeeperError = Box<dyn std::error::Error + Send + Sync>;

/// The objects that a sweep deletes.
#[derive(Clone, Copy, PartialEq)]
enum Sweep {
    /// Old pictures that no account refers to.
    Everything,
    /// The pictures of an account whose deletion is known, also new ones.
    Deleted(Uuid),
}

impl AvatarUpkeep {
    pub(super) fn new(storage: &Storage, auth: &Auth, database: &Database) -> Self {
        Self { storage: storage.clone(), auth: auth.clone(), database: database.clone() }
    }

    /// Returns the periodic work.
    pub(super) fn service(&self) -> Service {
        let keeper = self.clone();
        Service::new().run(async move { keeper.run().await })
    }

    /// Makes the bucket and its policies where they are missing or have changed.
    ///
    /// # Errors
    /// When the database cannot be used, or refuses a policy.
    pub(super) async fn prepare(&self) -> Result<(), DatabaseError> {
        let client = self.database.acting_as(POLICY_MAKER).await?;
        // Inside a literal of the script, where an apostrophe is doubled
        let quoted = |role| quote::identifier(&self.database.role_for(role)).replace('\'', "''");
        let script = PREPARE.replace("MEMBERS", &quoted("authenticated")).replace("VISITORS", &quoted("anon"));
        Ok(client.batch_execute(&script).await?)
    }

    async fn run(&self) {
        let mut deleted = self.auth.deleted_accounts();
        let mut next = Instant::now();
        let mut failures = 0;
        loop {
            let outcome = tokio::select! {
                () = tokio::time::sleep_until(next) => {
                    let outcome = self.prepare_again(&mut failures).await;
                    next = Instant::now() + pause_after(failures);
                    if outcome { self.sweep(Sweep::Everything).await } else { Ok(()) }
                }
                account = deleted.recv() => match account {
                    Ok(id) => self.sweep(Sweep::Deleted(id)).await,
                    Err(RecvError::Lagged(_)) => self.sweep(Sweep::Everything).await,
                    // Only when the account service ends
                    Err(RecvError::Closed) => return,
                },
            };
            if let Err(error) = outcome {
                tracing::warn!(error = %error, "avatars without an account could not be listed");
            }
        }
    }

    /// Returns true if the bucket is there, and counts the failures in a row.
    async fn prepare_again(&self, failures: &mut u32) -> bool {
        let Err(error) = self.prepare().await else {
            *failures = 0;
            return true;
        };
        if *failures == 0 {
            tracing::warn!(error = %error, "the bucket of avatars could not be made");
        } else {
            tracing::debug!(error = %error, failures = *failures, "the bucket of avatars could not be made");
        }
        *failures = failures.saturating_add(1);
        false
    }

    /// Deletes pictures that no account refers to. A page that fails is logged and left out.
    async fn sweep(&self, sweep: Sweep) -> Result<(), KeeperError> {
        let prefix = match sweep {
            Sweep::Everything => String::new(),
            Sweep::Deleted(account) => format!("{account}/"),
        };
        let mut after = String::new();
        loop {
            let objects = self.storage.objects_after(BUCKET, &prefix, &after).await?;
            let Some(last) = objects.last() else { return Ok(()) };
            after.clone_from(&last.name);
            if let Err(error) = self.delete_unused(sweep, objects).await {
                tracing::warn!(error = %error, "avatars without an account could not be deleted");
            }
        }
    }

    async fn delete_unused(&self, sweep: Sweep, objects: Vec<ListedObject>) -> Result<(), KeeperError> {
        let owners: Vec<Uuid> = objects.iter().filter_map(|object| owner_of(&object.name)).collect();
        let accounts: HashMap<Uuid, AccountMetadata> = self.auth.metadata_of(&owners).await?.into_iter().collect();
        let is_unused = |object: &ListedObject| is_unused(sweep, object, &accounts);
        let unused: Vec<String> = objects.into_iter().filter(is_unused).map(|object| object.name).collect();
        Ok(self.storage.delete_objects(BUCKET, &unused).await?)
    }
}

/// Returns the time until the next preparation, after some failures in a row.
fn pause_after(failures: u32) -> Duration {
    match failures.checked_sub(1) {
        None => SWEEP_PERIOD,
        Some(repeats) => RETRY.saturating_mul(2_u32.saturating_pow(repeats)).min(SWEEP_PERIOD),
    }
}

/// Returns true if a sweep deletes an object. Objects of other names are not the program's.
fn is_unused(sweep: Sweep, object: &ListedObject, accounts: &HashMap<Uuid, AccountMetadata>) -> bool {
    let Some(owner) = owner_of(&object.name) else { return false };
    let is_old = object.age >= GRACE_SECONDS;
    match accounts.get(&owner) {
        None => is_old || sweep == Sweep::Deleted(owner),
        Some(metadata) => is_old && !refers_to(metadata, &object.name),
    }
}

/// Returns the account of a picture, by its name as the policies allow it: the id of the account
/// and a digit, or the random name of an older picture; `None` for all other names.
fn owner_of(name: &str) -> Option<Uuid> {
    let (folder, file) = name.split_once('/')?;
    let (id, kind) = file.split_once('.')?;
    let is_older = id.len() == 36 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
    let is_file = (is_older || matches!(id.as_bytes(), [b'0'..=b'7'])) && matches!(kind, "webp" | "jpg" | "png");
    folder.parse().ok().filter(|owner: &Uuid| is_file && owner.hyphenated().to_string() == folder)
}

/// Returns true if the metadata of an account names an object: for the account home, or in the
/// address that applications read. A sign-in with a provider replaces the latter.
fn refers_to(metadata: &AccountMetadata, name: &str) -> bool {
    let text = |field| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    let file = name.split_once('/').map_or("", |(_, file)| file);
    // Behind them is the version
    let path_of = |field| text(field).split(['?', '#']).next().unwrap_or_default();
    let path = path_of("avatar_url");
    path_of("portico_avatar") == file || path.ends_with(&format!("/{BUCKET}/{name}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    const OWNER: &str = "0b9c7a52-3f57-4c3e-9d5f-1d2f0f9a7c11";

    fn file(character: &str) -> String {
        format!("{}.webp", character.repeat(36))
    }

    #[test]
    fn an_account_refers_to_its_picture_by_its_file_or_its_address() {
        let name = format!("{OWNER}/{}", file("a"));
        let refers = |metadata: Value| refers_to(metadata.as_object().unwrap(), &name);
        assert!(refers(json!({ "portico_avatar": file("a"), "avatar_url": "https://provider.example/x" })));
        let address = format!("https://x.example/storage/v1/object/public/portico-avatars/{name}");
        assert!(refers(json!({ "avatar_url": address })));
        assert!(refers(json!({ "avatar_url": format!("{address}?width=64") })));
        assert!(!refers(json!({ "avatar_url": format!("{address}/x") })));
        let metadata = json!({ "portico_avatar": "3.webp?v=0123456789abcdef" });
        assert!(refers_to(metadata.as_object().unwrap(), &format!("{OWNER}/3.webp")));
        assert!(!refers_to(metadata.as_object().unwrap(), &format!("{OWNER}/4.webp")));
        assert!(!refers(json!({ "avatar_url": format!("https://x.example/other/{name}") })));
        assert!(!refers(json!({ "portico_avatar": file("b"), "avatar_url": 1 })));
        assert!(!refers(json!({})));
    }

    #[test]
    fn only_names_that_the_page_makes_belong_to_an_account() {
        assert_eq!(owner_of(&format!("{OWNER}/{}", file("a"))).unwrap().to_string(), OWNER);
        assert_eq!(owner_of(&format!("{OWNER}/7.png")).unwrap().to_string(), OWNER);
        let upper = OWNER.to_uppercase();
        for name in [
            file("a"),
            format!("x/{}", file("a")),
            format!("{upper}/{}", file("a")),
            format!("{OWNER}/me.webp"),
            format!("{OWNER}/8.webp"),
            format!("{OWNER}/00.webp"),
            format!("{OWNER}/{}.html", file("a")),
            format!("{OWNER}/deeper/{}", file("a")),
            format!("{OWNER}/{}", file("g")),
        ] {
            assert_eq!(owner_of(&name), None, "{name}");
        }
    }

    #[test]
    fn a_new_picture_is_deleted_only_with_its_account() {
        let owner: Uuid = OWNER.parse().unwrap();
        let object = |age| ListedObject { name: format!("{OWNER}/{}", file("a")), age };
        let missing = HashMap::new();
        assert!(!is_unused(Sweep::Everything, &object(60.0), &missing));
        assert!(is_unused(Sweep::Everything, &object(GRACE_SECONDS), &missing));
        assert!(is_unused(Sweep::Deleted(owner), &object(0.0), &missing));
        let unreferred = HashMap::from([(owner, AccountMetadata::new())]);
        assert!(!is_unused(Sweep::Deleted(owner), &object(60.0), &unreferred));
        assert!(is_unused(Sweep::Everything, &object(GRACE_SECONDS), &unreferred));
        let foreign = ListedObject { name: "invoices/2020.pdf".into(), age: 1e9 };
        assert!(!is_unused(Sweep::Everything, &foreign, &missing));
    }

    #[test]
    fn the_pause_after_a_failure_doubles_up_to_the_period_of_the_sweep() {
        assert_eq!([0, 1, 2, 3, 8, 100].map(|failures| pause_after(failures).as_secs()), [600, 5, 10, 20, 600, 600]);
    }
}
