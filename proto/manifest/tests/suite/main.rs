//! Manifests as a reviewer writes them, right and wrong, and the rules they become.

#[cfg(test)]
mod faults;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod reading;
