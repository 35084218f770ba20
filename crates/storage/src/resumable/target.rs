//! The routes of the protocol.

/// A route below `/upload/resumable`, for all methods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResumableTarget {
    /// The upload is allowed by a signed URL.
    pub is_signed: bool,
    /// The rest of the path: the id of an upload.
    pub id: Option<String>,
}

impl ResumableTarget {
    /// Parses a path below `/upload`; `None` if there is no such route.
    pub fn parse(rest: &str) -> Option<Self> {
        let rest = rest.strip_prefix("resumable").filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        let (is_signed, id) = match rest.strip_prefix("sign").map(|id| (id.strip_prefix('/'), id)) {
            Some((Some(id), _)) => (true, id),
            Some((None, "")) => (true, ""),
            _ => (false, rest),
        };
        Some(Self { is_signed, id: (!id.is_empty()).then(|| id.to_owned()) })
    }
}
