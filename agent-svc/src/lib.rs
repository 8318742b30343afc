//! Runs agents: sessions, runs and approvals; holds no key, no engine and no way out.
