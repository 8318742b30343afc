//! The service as a whole, over real mTLS, between a gateway and executors that tests play.

mod answers;
mod approvals;
mod attended;
mod audit;
mod calls;
mod children;
mod damage;
mod gateway;
mod grants;
mod ledger;
pub(crate) mod mesh;
mod model;
mod patches;
mod presence;
mod refusals;
mod restart;
mod runs;
mod sandbox;
mod sessions;
mod sources;
mod stops;
mod undo;
