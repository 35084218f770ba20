//! stand-in
use crate::{error::RestError, handler::Asked, service::Rest, state::Snapshot};
pub(crate) async fn answer(_: &Rest, _: &Snapshot, _: &Asked<'_>, _: &str) -> Result<Vec<u8>, RestError> {
    Ok(b"{}".to_vec())
}
