//! The schema cache: relations, relationships and functions of the exposed schemas.
//!
//! [`load`] queries the catalog, with a few statements that are sent at once. Everything else is
//! pure: `catalog` has the rows, `views` parses the definitions of views, `assemble` builds the
//! cache, `relationships` derives relationships. [`nearest`] finds the name that was probably
//! meant.

mod assemble;
mod catalog;
mod fuzzy;
mod load;
mod model;
mod relationships;
mod routines;
#[cfg(test)]
pub(crate) mod testing;
mod views;

pub use fuzzy::nearest;
pub use load::{LoadSettings, load};
pub use model::{
    ByName, Column, Junction, MediaHandler, QualifiedName, Relation, RelationKind, Relationship, RelationshipKind,
    Representation, ReturnType, Routine, RoutineParameter, SchemaCache, Volatility,
};
