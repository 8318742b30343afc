//! Shows a session's executors who owns it, with its grant and manifest of the moment.

use receipt::{Executor, Signed};
use transport::Fault;

use crate::peers::Offers;
use crate::runtime::Runtime;
use crate::store::{Error, Owner};

/// The outer failure is ours, the inner one an executor's.
pub(crate) async fn raise(
    runtime: &Runtime,
    owner: Owner,
) -> Result<Result<Offers, (Executor, Fault)>, Error> {
    let (grant, manifest) = runtime.store.grant_and_manifest(owner.session).await?;
    let grant = Signed::parse(&grant).map_err(|_| Error::Corrupt { what: "grant" })?;
    Ok(runtime.peers.fence(owner, &grant, &manifest).await)
}
