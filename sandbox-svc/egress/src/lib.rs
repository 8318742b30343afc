//! The broker between a command without a network and the hosts it may reach. It decides by name, dials what it
//! decided about, and holds no key, no engine and no state.

mod address;
mod broker;
mod config;
mod handover;
mod head;
mod hello;
mod hosts;
mod line;
mod meter;
mod process;
mod rules;
mod serve;
mod tunnel;
mod world;

pub use address::{Standing, standing};
pub use broker::Broker;
pub use config::{BadConfig, Config, Effect, Host, Layer, Limits, Otherwise, Rule};
pub use handover::{Handover, NotHandedOver, give};
pub use head::{BadHead, Head};
pub use hello::{BadHello, Hello};
pub use hosts::{BadTarget, Pattern, Target};
pub use line::{End, LINE_BYTES, Line, Reason};
pub use process::main;
pub use rules::{Rules, Verdict};
pub use world::{System, World};
