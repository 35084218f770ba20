//! What is known of the database: relations, relationships, functions (contract 17).

mod model;
mod relationships;
#[cfg(test)]
pub(crate) mod testing;

pub use model::{
    ByName, Column, Junction, MediaHandler, Parameter, QualifiedName, Relation, RelationKind, Relationship,
    RelationshipKind, Representation, ReturnType, Routine, SchemaCache, Volatility,
};
