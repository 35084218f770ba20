//! The limit of open files, and the connection limits that follow from it: each client connection
//! is an open file.

use std::num::NonZeroU32;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The default limit of client connections.
const DEFAULT: usize = 10_000;

/// The largest default limit of connections of one address: enough for a large office behind one
/// address.
const DEFAULT_PER_ADDRESS: usize = 1_000;

/// The files that are not client connections: connections to the database, to providers and mail
/// servers, and files that the program reads.
const RESERVED: usize = 256;

/// Raises the limit of open files as far as the system allows, and returns the limit of client
/// connections. `configured` is the number in the configuration.
pub(crate) fn max_connections(configured: Option<NonZeroU32>) -> usize {
    limit(configured, raised())
}

/// Returns how many of `most` connections may come from one address. `configured` is the number in
/// the configuration.
pub(crate) fn max_connections_per_address(configured: Option<NonZeroU32>, most: usize) -> usize {
    match configured {
        Some(configured) => usize::try_from(configured.get()).unwrap_or(usize::MAX),
        None => (most / 4).clamp(1, DEFAULT_PER_ADDRESS),
    }
}

fn limit(configured: Option<NonZeroU32>, files: Option<u64>) -> usize {
    let room = files.map_or(usize::MAX, |files| {
        usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(RESERVED).max(RESERVED)
    });
    let Some(configured) = configured.map(|configured| usize::try_from(configured.get()).unwrap_or(usize::MAX)) else {
        return DEFAULT.min(room);
    };
    if configured > room {
        tracing::warn!(
            max_connections = configured,
            open_files = files,
            "[server] max_connections is more than the limit of open files allows: raise it (ulimit -n, LimitNOFILE=)"
        );
    }
    configured
}

/// Raises the limit of open files as far as the system allows, and returns it. `None`: there is no
/// limit.
fn raised() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        // macOS reports that there is no limit, and rejects the attempt to set none
        tracing::debug!(error = %error, "the limit of open files is unchanged");
        return current;
    }
    maximum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_never_exceeds_the_open_files_and_a_configured_limit_may() {
        assert_eq!(limit(None, None), 10_000);
        assert_eq!(limit(None, Some(1_048_576)), 10_000);
        assert_eq!(limit(None, Some(1024)), 768);
        assert_eq!(limit(None, Some(10)), 256);
        assert_eq!(limit(NonZeroU32::new(50_000), Some(1024)), 50_000);
        assert_eq!(limit(NonZeroU32::new(5), Some(1024)), 5);
    }

    #[test]
    fn one_address_gets_at_most_a_quarter_of_the_connections() {
        assert_eq!(max_connections_per_address(None, 10_000), 1_000);
        assert_eq!(max_connections_per_address(None, 768), 192);
        assert_eq!(max_connections_per_address(None, 1), 1);
        assert_eq!(max_connections_per_address(NonZeroU32::new(5_000), 768), 5_000);
    }

    #[test]
    fn the_limit_of_open_files_is_raised_to_its_maximum() {
        let _ = raised();
        let limits = getrlimit(Resource::Nofile);
        assert!(limits.current == limits.maximum || limits.maximum.is_none(), "{limits:?}");
    }
}
