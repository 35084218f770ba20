//! Objects that the program itself keeps in a bucket: listed and deleted as the service.

use http::Method;
use serde::Deserialize;

use crate::error::Result;
use crate::object::delete;
use crate::operation::{Actor, JSON_ARRAY, Operation, SqlStep, parse};
use crate::sql;
use crate::storage::Storage;

/// An object of a bucket.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedObject {
    /// Its name.
    pub name: String,
    /// The time since it was created, in seconds.
    pub age: f64,
}

/// The reason why objects could not be listed or deleted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReservedObjectError(String);

impl Storage {
    /// Returns objects of a bucket in the order of their names, at most 1,000 with names after
    /// `after` that begin with `prefix`.
    ///
    /// # Errors
    /// When the database cannot be used.
    pub async fn objects_after(
        &self,
        bucket: &str,
        prefix: &str,
        after: &str,
    ) -> std::result::Result<Vec<ListedObject>, ReservedObjectError> {
        let listed = async {
            let operation = self.own_operation("storage.object.list_v2");
            let values = [Some(bucket.as_bytes()), Some(prefix.as_bytes()), Some(after.as_bytes())];
            let step = SqlStep { text: sql::LIST_RESERVED, values: &values };
            let rows = operation.read(Actor::Service, step, JSON_ARRAY).await?;
            if rows.joined.rows == 0 { Ok(Vec::new()) } else { parse(&rows.bytes()) }
        };
        reported(listed.await)
    }

    /// Deletes objects, with their content. Names without an object are ignored.
    ///
    /// # Errors
    /// When the database cannot be used, or a trigger of the project keeps an object.
    pub async fn delete_objects(&self, bucket: &str, names: &[String]) -> std::result::Result<(), ReservedObjectError> {
        let operation = self.own_operation("storage.object.delete_many");
        reported(delete::delete_as_service(&operation, bucket, names).await)
    }

    fn own_operation(&self, name: &'static str) -> Operation {
        Operation::of_program(self.service(), name, &Method::GET, "")
    }
}

fn reported<T>(outcome: Result<T>) -> std::result::Result<T, ReservedObjectError> {
    outcome.map_err(|error| ReservedObjectError(error.message().into_owned()))
}
