//! The pure modules of `portico_realtime::decode`.

#[path = "../../src/decode/array.rs"]
mod array;
#[path = "../../src/decode/change.rs"]
pub(crate) mod change;
#[path = "../../src/decode/decoder.rs"]
pub(crate) mod decoder;
#[path = "../../src/decode/document.rs"]
mod document;
#[path = "../../src/decode/error.rs"]
mod error;
#[path = "../../src/decode/json.rs"]
pub(crate) mod json;
#[path = "../../src/decode/json_string.rs"]
mod json_string;
#[path = "../../src/decode/message.rs"]
mod message;
#[path = "../../src/decode/number.rs"]
mod number;
#[path = "../../src/decode/row.rs"]
mod row;
#[path = "../../src/decode/shape.rs"]
pub(crate) mod shape;
#[path = "../../src/decode/tuple.rs"]
pub(crate) mod tuple;
