//! Signing and verifying with minted certificates, and what holds for every plan and payload.

#[cfg(test)]
mod admission;
#[cfg(test)]
mod approval;
#[cfg(test)]
mod counting;
#[cfg(test)]
mod people;
#[cfg(test)]
mod pki;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod verify;
