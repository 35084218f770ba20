//! The pictures of accounts on the account home: a bucket of our own, in which every account has
//! the folder of its id.
//!
//! The page uploads a picture with the user's token and records its name in the user's metadata
//! (`web/src/features/account/avatar`). Pictures that no account refers to are deleted: at once
//! when this server deletes the account, and otherwise by a sweep, which also finds what an
//! interrupted change has left.

use std::collections::HashMap;
use std::time::Duration;

use portico_auth::Auth;
use portico_database::{Database, DatabaseError};
use portico_storage::{ListedObject, Storage};
use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;
use uuid::Uuid;

use super::service::Service;

/// The bucket. No bucket of a project has this name by chance. The web app knows it
/// (`web/src/lib/avatar.ts`).
const BUCKET: &str = "portico-avatars";
/// The role of migrations, which may make policies on the tables of the storage service.
const POLICY_MAKER: &str = "postgres";
/// The time between two sweeps.
const SWEEP_PERIOD: Duration = Duration::from_secs(600);
/// The age from which a picture that its account does not refer to is deleted. The page uploads a
/// picture before it records its name.
const GRACE_SECONDS: f64 = 3600.0;
/// The time after which a failed preparation is repeated.
const RETRY: Duration = Duration::from_secs(5);

/// Makes the bucket and its policies where they are missing; an existing bucket stays as it is.
/// Guests have no picture: an account with a name costs a sign-up.
const PREPARE: &str = "
do $prepare$
declare
  own constant text := $own$bucket_id = 'portico-avatars'
    and not coalesce(((select auth.jwt()) ->> 'is_anonymous')::boolean, false)
    and name ~ ('^' || (select auth.uid())::text || '/[0-9a-f-]{36}[.](webp|jpg|png)$')$own$;
begin
  perform pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('portico-avatars', 0));
  if not exists (select from storage.buckets where id = 'portico-avatars') then
    insert into storage.buckets (id, name, public, file_size_limit, allowed_mime_types)
    values ('portico-avatars', 'portico-avatars', true, 5242880, '{image/webp,image/jpeg,image/png}');
  end if;
  if not exists (select from pg_catalog.pg_policy where polrelid = 'storage.objects'::regclass and polname = 'portico avatars are read by their owner') then
    execute 'create policy \"portico avatars are read by their owner\" on storage.objects for select to MEMBERS using (' || own || ')';
    execute 'create policy \"portico avatars are added by their owner\" on storage.objects for insert to MEMBERS with check (' || own || ')';
    execute 'create policy \"portico avatars are deleted by their owner\" on storage.objects for delete to MEMBERS using (' || own || ')';
  end if;
end $prepare$";

/// Keeps the bucket and what is in it.
pub(super) fn service(storage: &Storage, auth: &Auth, database: &Database) -> Service {
    let keeper = AvatarKeeper { storage: storage.clone(), auth: auth.clone(), database: database.clone() };
    Service::new().run(async move { keeper.run().await })
}

struct AvatarKeeper {
    storage: Storage,
    auth: Auth,
    database: Database,
}

/// The metadata of an account.
type JsonObject = serde_json::Map<String, Value>;
/// The reason why pictures could not be deleted.
type KeeperError = Box<dyn std::error::Error + Send + Sync>;

impl AvatarKeeper {
    async fn run(&self) {
        let mut deleted = self.auth.deleted_accounts();
        while let Err(error) = self.prepare().await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the bucket of avatars could not be made");
            tokio::time::sleep(RETRY).await;
        }
        let mut ticks = tokio::time::interval(SWEEP_PERIOD);
        loop {
            let outcome = tokio::select! {
                _ = ticks.tick() => self.sweep("").await,
                account = deleted.recv() => match account {
                    Ok(id) => self.remove_folder(id).await,
                    Err(RecvError::Lagged(_)) => self.sweep("").await,
                    // Only when the account service ends
                    Err(RecvError::Closed) => return,
                },
            };
            if let Err(error) = outcome {
                tracing::warn!(error = %error, "avatars without an account could not be deleted");
            }
        }
    }

    async fn prepare(&self) -> Result<(), DatabaseError> {
        let client = self.database.acting_as(POLICY_MAKER).await?;
        let members = self.database.role_for("authenticated").replace('"', "\"\"").replace('\'', "''");
        Ok(client.batch_execute(&PREPARE.replace("MEMBERS", &format!("\"{members}\""))).await?)
    }

    async fn remove_folder(&self, account: Uuid) -> Result<(), KeeperError> {
        self.sweep(&format!("{account}/")).await
    }

    /// Deletes the pictures that no account refers to, of names that begin with `prefix`.
    async fn sweep(&self, prefix: &str) -> Result<(), KeeperError> {
        let mut after = String::new();
        loop {
            let objects = self.storage.objects_after(BUCKET, prefix, &after).await?;
            let Some(last) = objects.last() else { return Ok(()) };
            after.clone_from(&last.name);
            let owners: Vec<Uuid> = objects.iter().filter_map(|object| owner_of(&object.name)).collect();
            let accounts: HashMap<Uuid, JsonObject> = self.auth.metadata_of(&owners).await?.into_iter().collect();
            let is_unused = |object: &ListedObject| match owner_of(&object.name).and_then(|id| accounts.get(&id)) {
                None => true,
                Some(metadata) => object.age >= GRACE_SECONDS && !refers_to(metadata, &object.name),
            };
            let unused: Vec<String> = objects.into_iter().filter(is_unused).map(|object| object.name).collect();
            self.storage.delete_objects(BUCKET, &unused).await?;
        }
    }
}

/// Returns the account that has the folder of an object.
fn owner_of(name: &str) -> Option<Uuid> {
    name.split_once('/').and_then(|(folder, _)| folder.parse().ok())
}

/// Returns true if the metadata of an account names an object: for the account home, or in the
/// address that applications read. A sign-in with a provider replaces the latter.
fn refers_to(metadata: &JsonObject, name: &str) -> bool {
    let text = |field| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    let file = name.split_once('/').map_or("", |(_, file)| file);
    text("portico_avatar") == file || text("avatar_url").contains(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn an_account_refers_to_its_picture_by_its_file_or_its_address() {
        let name = "0b9c7a52-3f57-4c3e-9d5f-1d2f0f9a7c11/a.webp";
        let refers = |metadata: Value| refers_to(metadata.as_object().unwrap(), name);
        assert!(refers(json!({ "portico_avatar": "a.webp", "avatar_url": "https://provider.example/x" })));
        assert!(refers(
            json!({ "avatar_url": format!("https://x.example/storage/v1/object/public/portico-avatars/{name}") })
        ));
        assert!(!refers(json!({ "portico_avatar": "b.webp", "avatar_url": 1 })));
        assert!(!refers(json!({})));
        assert_eq!(owner_of(name).unwrap().to_string(), name[..36]);
        assert_eq!((owner_of("a.webp"), owner_of("x/a.webp")), (None, None));
    }
}
