//! The broker from outside: what it takes for a name, what it refuses, what it lets through, and how it ends.

#[cfg(test)]
mod addresses;
#[cfg(test)]
mod broker;
#[cfg(test)]
mod caller;
#[cfg(test)]
mod heads;
#[cfg(test)]
mod hellos;
#[cfg(test)]
mod names;
#[cfg(test)]
mod process;
#[cfg(test)]
mod rules;
