//! The whole, as its users and its enemies meet it: real processes, real mTLS, a real engine, a real database.

mod approvals;
mod ask;
mod attacks;
mod bad_input;
mod children;
mod decisions;
mod demo;
mod denials;
mod edits;
mod faults;
mod held;
mod imports;
mod isolation;
mod kills;
mod leftovers;
mod matrix;
mod network;
mod race;
mod red_team;
mod servers;
mod undo;
