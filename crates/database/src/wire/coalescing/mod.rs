pub(crate) mod times;
pub(crate) mod together;
