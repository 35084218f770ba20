//! How many files may be open, and what follows from it: each connection of a client is one.

use std::num::NonZeroU32;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections of clients where nobody says how many.
const USUAL: usize = 10_000;

/// Connections of one address, at most, where the configuration does not say how many: enough for a large office behind one address.
const USUAL_PER_ADDRESS: usize = 1_000;

/// Files that are not connections of clients: those to the database, calls to providers and mail servers, what the program reads.
const OWN: usize = 256;

/// How many clients may be connected at a time, after the limit of open files was raised as far as the system lets us. `wish`: the number
/// that the configuration names.
pub(crate) fn max_connections(wish: Option<NonZeroU32>) -> usize {
    settle(wish, raised())
}

/// Returns how many of `most` connections may come from one address. `wish`: the number that the configuration names.
pub(crate) fn max_connections_per_address(wish: Option<NonZeroU32>, most: usize) -> usize {
    match wish {
        Some(wish) => usize::try_from(wish.get()).unwrap_or(usize::MAX),
        None => (most / 4).clamp(1, USUAL_PER_ADDRESS),
    }
}

fn settle(wish: Option<NonZeroU32>, files: Option<u64>) -> usize {
    let room =
        files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(OWN).max(OWN));
    let Some(wish) = wish.map(|wish| usize::try_from(wish.get()).unwrap_or(usize::MAX)) else { return USUAL.min(room) };
    if wish > room {
        tracing::warn!(
            max_connections = wish,
            open_files = files,
            "[server] max_connections is more than the limit of open files allows: raise it (ulimit -n, LimitNOFILE=)"
        );
    }
    wish
}

/// The limit of open files, once it is as high as we may set it. `None`: there is none.
fn raised() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        // macOS says that there is no limit, and refuses to have none
        tracing::debug!(%error, "the limit of open files stays as it is");
        return current;
    }
    maximum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_connections_than_files_unless_somebody_says_so() {
        assert_eq!(settle(None, None), 10_000);
        assert_eq!(settle(None, Some(1_048_576)), 10_000);
        assert_eq!(settle(None, Some(1024)), 768);
        assert_eq!(settle(None, Some(10)), 256);
        assert_eq!(settle(NonZeroU32::new(50_000), Some(1024)), 50_000);
        assert_eq!(settle(NonZeroU32::new(5), Some(1024)), 5);
    }

    #[test]
    fn one_address_gets_a_quarter_of_the_connections_at_most() {
        assert_eq!(max_connections_per_address(None, 10_000), 1_000);
        assert_eq!(max_connections_per_address(None, 768), 192);
        assert_eq!(max_connections_per_address(None, 1), 1);
        assert_eq!(max_connections_per_address(NonZeroU32::new(5_000), 768), 5_000);
    }

    #[test]
    fn the_limit_is_raised_to_what_may_be() {
        let _ = raised();
        let limits = getrlimit(Resource::Nofile);
        assert!(limits.current == limits.maximum || limits.maximum.is_none(), "{limits:?}");
    }
}
