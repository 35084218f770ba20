//! What is known of the database: relations, relationships, functions (contract 17).

mod model;

pub use model::{
    Column, Junction, MediaHandler, Parameter, QualifiedName, Relation, RelationKind, Relationship, RelationshipKind,
    Representation, ReturnType, Routine, SchemaCache, Volatility,
};
