//! The kernel from outside: worked examples, properties over random schedules, and the transition table.

#[cfg(test)]
mod asks;
#[cfg(test)]
mod budgets;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod ends;
#[cfg(test)]
mod given;
#[cfg(test)]
mod invariants;
#[cfg(test)]
mod record;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod transitions;
#[cfg(test)]
mod world;
