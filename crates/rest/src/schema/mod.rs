//! What is known of the database: relations, relationships, functions (contract 17).
//!
//! [`load`] asks the catalog, in a handful of statements that are sent at once; everything else is pure: `catalog` are the rows as they
//! come, `views` reads what views show, `assemble` puts it together, `relationships` derives who belongs to whom. [`nearest`] finds the
//! name that was meant.

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
    ByName, Column, Junction, MediaHandler, Parameter, QualifiedName, Relation, RelationKind, Relationship,
    RelationshipKind, Representation, ReturnType, Routine, SchemaCache, Volatility,
};
