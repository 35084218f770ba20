//! Several servers of one project.

mod node;

pub(crate) use node::NodeId;
