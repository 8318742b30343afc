//! The only holder of third-party credentials and the only way out.
