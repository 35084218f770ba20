//! The leeway for the times of a token. Only the data API has one: elsewhere a token ends on time.

use time::Duration;

/// The tolerated difference between the clocks of this server and of a token's issuer.
pub(super) const JWT_LEEWAY: Duration = Duration::seconds(30);
