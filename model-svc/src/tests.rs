//! The service in this process, over real mutual TLS: beside it a ledger and a provider that do as a test says.

mod audit;
mod budget;
mod calls;
mod fence;
mod provider;
mod rig;
mod tools;
mod upstream;
