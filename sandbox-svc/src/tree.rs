//! Trees that someone else may change while they are read: paths as bytes, descriptors instead of path
//! strings, refusals instead of surprises. Nothing here follows a link or trusts a name twice.

pub(crate) mod blobs;
pub(crate) mod carry;
pub(crate) mod content;
pub(crate) mod dir;
pub(crate) mod inventory;
pub(crate) mod link;
pub(crate) mod name;
pub(crate) mod path;
pub(crate) mod reason;
pub(crate) mod rules;
pub(crate) mod scan;
pub(crate) mod stamp;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod witness;

pub(crate) use blobs::Blobs;
pub(crate) use dir::{Closer, Dir, Kind, Meta};
pub(crate) use inventory::{Inventory, Node};
pub(crate) use path::RelPath;
pub(crate) use reason::{NotCarried, Reason};
pub(crate) use rules::Rules;
pub(crate) use stamp::{Stamp, Stamps};
