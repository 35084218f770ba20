//! The parts of an object, as `portico_storage::object` names them.

#[path = "../../src/object/description.rs"]
pub(crate) mod description;
