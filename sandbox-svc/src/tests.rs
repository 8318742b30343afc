//! The service as a whole, over real mTLS and with a real container engine, between an agent-svc and a
//! ledger that tests play.

mod approvals;
mod audit;
mod batch;
mod bindings;
mod boundary;
mod canary;
mod children;
mod commands;
mod dependencies;
mod edits;
mod engine;
mod engine_dies;
mod fence;
mod limits;
mod lockdown;
mod mounts;
mod network;
mod own_engine;
mod patches;
mod podman;
mod reads;
mod refusals;
mod restart;
mod run;
mod searches;
mod secrets;
mod servers;
mod steps;
mod stops;
mod undo;
mod warm;
mod world;
